"""Files that a caller named: regular ones whole or not at all, everything else written through and never replaced."""

from __future__ import annotations

import os
import pty
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import omnigraph
from omnigraph.engine.storage.outlet import check_outlet, is_replaced, outlet
from omnigraph.errors import InputError

SCHEMA = "node Doc { name: String @key  body: Blob? }"
LINE = '{"type":"Doc","data":{"id":"x","body":null,"name":"x"}}\n'


@pytest.fixture
def graph(tmp_path: Path) -> omnigraph.Graph:
    graph = omnigraph.create(tmp_path / "g", SCHEMA)
    graph.load([{"type": "Doc", "data": {"name": "x"}}], engine="local")
    return graph


@contextmanager
def reading(fifo: Path) -> Iterator[list[str]]:
    """Somebody who reads a FIFO to its end meanwhile."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(fifo.read_text()), daemon=True)
    thread.start()
    yield found
    thread.join(10)


def test_an_export_goes_through_a_fifo_and_leaves_it_there(graph: omnigraph.Graph, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with reading(fifo) as found:
        assert graph.export(fifo) == 1
    assert found == [LINE]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_an_export_goes_through_a_device(graph: omnigraph.Graph, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    device = os.ttyname(theirs)
    link = tmp_path / "link to a device"
    link.symlink_to(device)
    # By way of a link, so that code that replaces what it is given can do no harm to the machine.
    assert graph.export(link) == 1
    assert os.read(ours, 1_000).decode().replace("\r", "") == LINE
    assert stat.S_ISCHR(os.stat(device).st_mode)
    assert link.is_symlink()


@pytest.mark.parametrize("there", [True, False])
def test_an_export_writes_what_a_link_names_and_keeps_the_link(
    graph: omnigraph.Graph, tmp_path: Path, there: bool
) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "target"
    if there:
        target.write_text("before")
        target.chmod(0o640)
    (tmp_path / "first").symlink_to("elsewhere/target")
    (tmp_path / "second").symlink_to("first")
    assert graph.export(tmp_path / "second") == 1
    assert target.read_text() == LINE
    assert (tmp_path / "second").is_symlink()
    assert (tmp_path / "first").is_symlink()
    assert not there or stat.S_IMODE(target.stat().st_mode) == 0o640
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_a_folder_a_socket_and_impossible_names_are_refused(graph: omnigraph.Graph, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for name in ("socket", "missing/out", "file/out", "nul\0", "a" * 300):
            with pytest.raises(InputError):
                graph.export(tmp_path / name if "\0" not in name else f"{tmp_path}/{name}")
        assert stat.S_ISSOCK((tmp_path / "socket").stat().st_mode)
    with pytest.raises(InputError, match="folder"), outlet(tmp_path):
        pass
    with pytest.raises(InputError), outlet(""):
        pass
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("kind", ["fifo", "device", "file"])
def test_parquet_needs_a_folder_and_replaces_nothing_else(graph: omnigraph.Graph, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "file":
        path.write_text("kept")
    else:
        path.symlink_to("/dev/null")
    with pytest.raises(InputError, match="folder"):
        graph.export(path, format="parquet")
    assert path.is_file() == (kind == "file")


def test_a_failed_export_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("before")

    def broken() -> None:
        with outlet(tmp_path / "out") as stream:
            stream.write(b"half")
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError):
        broken()
    assert (tmp_path / "out").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_would_be_refused_at_the_end_is_refused_at_the_beginning(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "new", tmp_path / "fifo", "/dev/stdout", "/dev/null"):
        check_outlet(path)
    for path in (tmp_path, tmp_path / "missing" / "x", f"{tmp_path}/\0"):
        with pytest.raises(InputError):
            check_outlet(path)
    assert is_replaced(tmp_path / "new")
    assert not is_replaced(tmp_path / "fifo")


def program(*words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "omnigraph.cli.main", *words], check=False, timeout=60, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.long
def test_standard_output_is_appended_to_as_the_shell_has_opened_it(graph: omnigraph.Graph, tmp_path: Path) -> None:
    (tmp_path / "stdout").symlink_to("/dev/stdout")
    (tmp_path / "one").symlink_to("/dev/fd/1")
    out = tmp_path / "out.txt"
    out.write_text("before\n")
    inode = out.stat().st_ino
    with out.open("ab") as stream:
        done = program("export", graph.uri, "--to", str(tmp_path / "stdout"), stdout=stream, stderr=subprocess.PIPE)
    assert (done.returncode, out.read_text(), out.stat().st_ino) == (0, f"before\n{LINE}", inode)
    assert b"exported 1" in done.stderr
    piped = program("export", graph.uri, "--to", str(tmp_path / "one"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert piped.stdout.decode() == LINE


@pytest.mark.long
def test_a_blob_is_written_through_what_is_no_file(graph: omnigraph.Graph, tmp_path: Path) -> None:
    graph.load([{"type": "Doc", "data": {"name": "b", "body": "base64:aGk="}}], mode="merge", engine="local")
    (tmp_path / "target").write_text("before")
    (tmp_path / "link").symlink_to("target")
    words = ("blob", "get", "node", "Doc", "b", "body", graph.uri, "--out")
    assert program(*words, str(tmp_path / "link")).returncode == 0
    assert (tmp_path / "target").read_text() == "hi"
    assert (tmp_path / "link").is_symlink()
    refused = program(*words, str(tmp_path), stderr=subprocess.PIPE)
    assert refused.returncode == 1
    assert refused.stderr.startswith(b"error: ")
