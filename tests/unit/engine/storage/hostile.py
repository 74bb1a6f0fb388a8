"""Things tests do in a process of their own, because they bend or end it."""

import os
import resource
import signal

from tests.unit.engine.storage.people import PEOPLE, insert, people

from omnigraph.engine.storage.staged import stage_changes
from omnigraph.engine.storage.tables import TableStore
from omnigraph.errors import ConflictError, GraphError, StorageError

NOBODY = 65534


def write_without_room(root: str) -> tuple[str, str]:
    """Stage a write whose file may not grow: the kind of the failure, and its message."""
    store = TableStore(root)
    table = store.open(PEOPLE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
    try:
        stage_changes(table, new_rows=people([f"p{number}" for number in range(50)]))
    except StorageError as exc:
        return exc.kind, str(exc)
    return "none", ""


def look_without_permission(root: str) -> list[str]:
    """Open, list and read as somebody who may not: the kinds of the failures."""
    store = TableStore(root)
    os.chmod(root, 0o700)
    if os.geteuid() == 0:
        os.setuid(NOBODY)
    else:
        os.chmod(root, 0o000)
    kinds = []
    for look in (
        lambda: store.open(PEOPLE),
        lambda: store.objects.exists(PEOPLE),
        lambda: store.objects.list_dir(PEOPLE),
        lambda: store.objects.read_text("_schema.pg"),
        lambda: store.objects.write_text("_schema.pg", "x"),
    ):
        try:
            look()
            kinds.append("none")
        except StorageError as exc:
            kinds.append(exc.kind)
        except GraphError as exc:
            kinds.append(type(exc).__name__)
    return kinds


def insert_many(root: str, names: list[str]) -> list[str]:
    """Insert each name unless it is there, retrying from a fresh version after every conflict: those inserted."""
    store = TableStore(root)
    won = []
    for name in names:
        while True:
            table = store.open(PEOPLE)
            if table.count_rows(f"id = '{name}'"):
                break
            try:
                insert(store, table, name)
            except ConflictError:
                continue
            won.append(name)
            break
    return won
