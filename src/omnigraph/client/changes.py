"""The feed of a graph behind a server: `graph.changes`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

from omnigraph.boundary import leaving, verb
from omnigraph.change_verbs import Baseline, following
from omnigraph.client import decode
from omnigraph.client.connection import Connection, only_direct
from omnigraph.client.lines import whole_lines
from omnigraph.client.transport import NDJSON, Call, segment
from omnigraph.engine.operations.export import write_lines
from omnigraph.engine.operations.feed import ChangePage, CommitChanges
from omnigraph.errors import InputError, StorageError
from omnigraph.ids import MAIN, Moment, parse_branch


class RemoteChanges:
    """What happens on a graph, commit by commit; the verbs and arguments are those of `Graph.changes`."""

    def __init__(self, at: Connection) -> None:
        self._at = at

    @verb()
    def poll(
        self,
        cursor: str | None = None,
        *,
        start: str | None = None,
        page_token: str | None = None,
        branch: str = MAIN,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
        values: str = "changed",
        limit: int | None = None,
        limit_bytes: int | None = None,
        limit_commits: int | None = None,
    ) -> ChangePage:
        """What came after a cursor, or after a start.

        Raises:
            ChangeCursorError, ChangeFeedGapError, ChangesUnavailableError, LimitError: as `Graph.changes.poll`.
        """
        wanted = {"kind": [*kinds], "type": [*types], "op": [*ops], "values": values}
        sizes = {"limit": limit, "max_bytes": limit_bytes, "max_commits": limit_commits}
        asked = {"cursor": cursor, "start": start, "page_token": page_token}
        return decode.change_page(self._at.get("/changes", branch=parse_branch(branch), **asked, **wanted, **sizes))

    @verb()
    def follow(
        self,
        cursor: str | None = None,
        *,
        start: str | None = None,
        branch: str = MAIN,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
        values: str = "changed",
        limit: int | None = None,
        limit_bytes: int | None = None,
        poll_seconds: float = 1.0,
        idle_seconds: float | None = None,
    ) -> Iterator[ChangePage]:
        """The pages of `poll` one after the other, without end: where nothing is new, it waits.

        Raises:
            As `poll`, at once or when it gets there.
        """
        wanted: dict[str, Any] = {"types": types, "kinds": kinds, "ops": ops, "values": values, "branch": branch}
        sizes: dict[str, Any] = {"limit": limit, "limit_bytes": limit_bytes}
        first = self.poll(cursor, start=start, **wanted, **sizes)

        def ask(page: ChangePage) -> ChangePage:
            return self.poll(page.cursor, page_token=page.next_page_token, **wanted, **sizes)

        return leaving(following(first, ask, lambda: self._at.closed, poll_seconds, idle_seconds))

    @verb()
    def baseline(
        self,
        out: str | os.PathLike[str],
        branch: str = MAIN,
        at: Moment | None = None,
        *,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
    ) -> Baseline:
        """Write the newest state as load records, and last a line with its commit and the cursor to go on with.

        Raises:
            StorageError: the server was cut off before that line; nothing was written.
        """
        if at is not None:
            only_direct("a baseline of the past")
        body = {"branch": parse_branch(branch), "type": [*types], "kind": [*kinds], "op": [*ops]}
        told: dict[str, Any] = {}

        def lines() -> Iterator[str]:
            line = ""
            with self._at.stream(Call("POST", "/changes/baseline", json=body, headers={"Accept": NDJSON})) as answer:
                try:
                    for line in whole_lines(answer.iter_bytes()):
                        yield line
                except httpx.HTTPError as exc:
                    raise StorageError(f"the baseline broke off, and was not written: {exc}; take it again") from exc
            found = json.loads(line or "null")
            if not isinstance(found, dict) or "baseline" not in found:
                raise StorageError("the server was cut off before the end of the baseline; take it again")
            told.update(found["baseline"])

        written = write_lines(out, lines())
        return Baseline(os.fspath(out), written - 1, told["snapshot_commit_id"], told["resume_cursor"])

    @verb()
    def of(
        self,
        commit_id: str,
        *,
        page_token: str | None = None,
        types: Sequence[str] = (),
        kinds: Sequence[str] = (),
        ops: Sequence[str] = (),
        values: str = "changed",
        limit: int | None = None,
        limit_bytes: int | None = None,
    ) -> CommitChanges:
        """What one commit changed against its first parent, a page at a time.

        Raises:
            CommitNotFoundError, ChangesUnavailableError, ChangeFeedGapError: as `Graph.changes.of`.
        """
        if not commit_id.strip():
            raise InputError("the id of the commit is empty")
        wanted = {"kind": [*kinds], "type": [*types], "op": [*ops], "values": values}
        sizes = {"page_token": page_token, "limit": limit, "max_bytes": limit_bytes}
        return decode.commit_changes(self._at.get(f"/commits/{segment(commit_id)}/changes", **wanted, **sizes))
