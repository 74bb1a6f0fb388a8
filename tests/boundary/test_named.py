"""Single calls at the boundary that are worth a sentence of their own."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.boundary.test_boundary import READ, SCHEMA, WRITE, root, template
from tests.cli.program import call

import omnigraph
from omnigraph import boundary
from omnigraph.errors import CommitNotFoundError, ExecutionError, GraphError, InputError, StorageError

__all__ = ["root", "template"]


@pytest.fixture
def graph(root: Path) -> omnigraph.Graph:
    return omnigraph.connect(root)


@pytest.mark.parametrize("at", [dt.date(2020, 1, 1), -1, 0, 2**63, 2**70, True, 1.0, b"x"])
def test_the_past_is_named_by_a_commit_a_version_or_a_moment(graph: omnigraph.Graph, at: Any) -> None:
    for read in (graph.snapshot, partial(graph.query, READ, {"n": "ana"}), graph.export):
        with pytest.raises(InputError, match="at must be"):
            read(at=at)
    with pytest.raises(InputError):
        graph.snapshot(at="9" * 30)
    with pytest.raises(CommitNotFoundError):
        graph.snapshot(at=999)


def test_the_past_is_named_by_what_the_history_lists(graph: omnigraph.Graph) -> None:
    before = graph.history.list()[0]
    tag = graph.tags.create("then", at=before)
    graph.mutate('query q() { insert Person { name: "eve" } }')
    after = graph.history.list()[0]
    assert (tag.graph_commit_id, graph.snapshot(at=after).head) == (before.graph_commit_id, after.graph_commit_id)
    for at in (before, tag):
        assert graph.snapshot(at=at).head == before.graph_commit_id
        assert len(graph.query(READ, {"n": "eve"}, at=at)) == 0
        assert graph.diff(at, after).inserted == 1
    graph.branches.create("old", at=before)
    assert graph.snapshot("old").head == before.graph_commit_id
    for branch in ("old", "main"):
        with pytest.raises(CommitNotFoundError, match=f"no tag '{branch}', but a branch: pass it as the branch"):
            graph.query(READ, {"n": "eve"}, at=branch)


def test_a_path_with_a_nul_is_refused_by_every_door(graph: omnigraph.Graph, root: Path) -> None:
    attempts = [
        lambda: omnigraph.connect(f"{root}\0"),
        lambda: omnigraph.create("a\0b", SCHEMA),
        lambda: graph.export("a\0b"),
        lambda: graph.load("a\0b", engine="local"),
        lambda: graph.load("a\0b"),
        lambda: graph.load(["a\0b"]),
        lambda: graph.query("a\0b.gq"),
        lambda: graph.schema.plan(Path("a\0b")),
    ]
    for attempt in attempts:
        with pytest.raises(GraphError):
            attempt()


def test_a_load_streams_what_has_no_size(root: Path) -> None:
    """As `omnigraph load --data /dev/stdin` and a process substitution of a shell give it."""
    script = f"import omnigraph; print(omnigraph.connect({str(root)!r}).load('/dev/stdin', mode='merge').nodes)"
    line = '{"type":"Person","data":{"name":"zoe"}}\n'
    done = subprocess.run(
        [sys.executable, "-c", script], input=line, capture_output=True, encoding="utf-8", check=False, timeout=60
    )
    assert done.stdout == "{'Person': 1}\n", done.stderr
    fifo = root.parent / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_text(line), daemon=True)
    writer.start()
    assert omnigraph.connect(root).load(fifo, mode="merge").nodes == {"Person": 1}
    writer.join(10)


def test_a_file_that_only_can_be_streamed_is_refused_where_it_cannot(graph: omnigraph.Graph) -> None:
    with pytest.raises(InputError, match="no regular file"):
        graph.load("file:///dev/null")


def test_a_span_longer_than_time_keeps_everything(graph: omnigraph.Graph, root: Path) -> None:
    versions = graph.snapshot().version
    for span in (dt.timedelta(days=9_999_999), dt.timedelta.max):
        report = graph.maintenance.cleanup(older_than=span)
        assert not any(table.old_versions_removed for table in report.tables)
    done = call("cleanup", root, "--older-than", "9999999d", "--confirm")
    assert (done.code, graph.snapshot().version) == (0, versions), done.err
    assert call("cleanup", root, "--older-than", "99999999999999d", "--confirm").code == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "extra", "script"),
    [
        ("pyspark", "spark", "graph.spark()"),
        ("pyspark", "spark", "graph.load('/etc/hosts', engine='spark')"),
        ("pyspark", "spark", "graph.export('out/', engine='spark')"),
        ("pandas", "spark", "graph.query(READ, {'n': 'ana'}).to_pandas()"),
        ("wordllama", "embed", "graph.query(NEAREST)"),
    ],
)
def test_a_missing_extra_is_one_sentence_that_names_it(
    root: Path, package: str, extra: str, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import pytest
from tests.boundary.test_boundary import READ, hide
hide(pytest.MonkeyPatch(), {package!r})
import omnigraph
SCHEMA = "node Person {{ name: String @key  age: I32?  v: Vector(256)? }}"
graph = omnigraph.create({str(root.parent / "extra")!r}, SCHEMA)
graph.load([{{"type": "Person", "data": {{"name": "ana", "v": [1.0] * 256}}}}], engine="local")
NEAREST = 'query q() {{ match {{ $p: Person }} return {{ $p.name }} order {{ nearest($p.v, "hello") }} limit 1 }}'
try:
    {script}
except omnigraph.GraphError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", child], capture_output=True, encoding="utf-8", check=False, timeout=120
    )
    assert f"omnigraph[{extra}]" in done.stdout, done.stderr + done.stdout
    assert len(done.stdout.strip().splitlines()) == 1


def test_a_call_that_does_not_fit_the_signature_is_pythons_own(graph: omnigraph.Graph) -> None:
    for wrong in (
        lambda: graph.query(),  # type: ignore[call-arg]
        lambda: graph.query(READ, nonsense=1),  # type: ignore[call-arg]
        lambda: graph.mutate(*range(20)),  # type: ignore[arg-type]
        lambda: omnigraph.connect(),  # type: ignore[call-arg]
    ):
        with pytest.raises((TypeError, InputError)) as caught:
            wrong()
        assert type(caught.value) in (TypeError, InputError)


class OwnError(Exception):
    """An error of the caller's own."""


def test_what_the_callers_own_code_raises_passes_unchanged(graph: omnigraph.Graph) -> None:
    def records() -> Iterator[dict[str, Any]]:
        yield {"type": "Person", "data": {"name": "zoe"}}
        raise OwnError

    def listener(_: Any) -> None:
        raise OwnError

    version = graph.snapshot().version
    with pytest.raises(OwnError):
        graph.load(records(), engine="local")
    with pytest.raises(OwnError):
        graph.load([], progress=listener, engine="local")
    assert graph.snapshot().version == version


def test_every_verb_of_a_closed_graph_is_refused(root: Path) -> None:
    from tests.boundary.test_boundary import Caller, public_verbs

    caller = Caller(root)
    groups = [caller.graph.branches, caller.graph.history, caller.graph.schema, caller.graph.maintenance]
    kept = caller.graph.query(READ, {"n": "ana"})
    bound = {verb: caller.bound(verb) for verb in public_verbs() if verb.startswith("graph.")}
    caller.graph.close()
    caller.graph.close()
    assert len(groups) == 4
    for verb, method in bound.items():
        with pytest.raises(ExecutionError, match="was closed"):
            method(**caller.examples[verb])
    with pytest.raises(ExecutionError, match="was closed"):
        caller.graph.schema.source  # noqa: B018 - reading it is the call
    assert (len(kept), caller.graph.uri) == (1, str(root))
    with omnigraph.connect(root) as again:
        again.mutate(WRITE, {"n": "ana", "a": 1})
    with pytest.raises(ExecutionError):
        again.query(READ, {"n": "ana"})
    assert omnigraph.connect(root).query(READ, {"n": "ana"}).to_pylist() == [{"p.age": 1}]


# --- what a call leaves behind, and what it says ----------------------------------------------------------------------

VECTORS = "node Doc { name: String @key  v: Vector(256)? }"
NEAREST = "query q($t: String?) { match { $d: Doc } return { $d.name } order { nearest($d.v, $t) } limit 3 }"


@pytest.mark.long
def test_the_offline_model_leaves_logging_as_it_was(tmp_path: Path) -> None:
    child = f"""
import logging, omnigraph
graph = omnigraph.create({str(tmp_path / "v")!r}, {VECTORS!r})
graph.load([{{"type": "Doc", "data": {{"name": "a", "v": [1.0] * 256}}}}], engine="local")
assert len(graph.query({NEAREST!r}, {{"t": "hello"}})) == 1
root = logging.getLogger()
print(root.handlers, root.level == logging.WARNING)
"""
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, encoding="utf-8", check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[] True\n", "")


@pytest.mark.parametrize("text", ["", " ", "\n\t", None])
def test_an_empty_text_is_near_to_nothing_and_warns_of_nothing(tmp_path: Path, text: str | None) -> None:
    graph = omnigraph.create(tmp_path / "v", VECTORS)
    graph.load([{"type": "Doc", "data": {"name": "a", "v": [1.0] * 256}}], engine="local")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert graph.query(NEAREST, {"t": text}).to_pylist() == []
        assert len(graph.query(NEAREST, {"t": "hello"})) == 1


def test_a_text_without_a_direction_is_refused_without_a_warning() -> None:
    from omnigraph.engine.embedding import LocalEmbedder

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match="text 2 of 2 is empty"):
            LocalEmbedder().embed_documents(["words", ""], 256)
        with pytest.raises(InputError, match="zero"):
            LocalEmbedder().embed_query("", 256)


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_a_load_says_its_mode_as_text_and_how_much_it_wrote(tmp_path: Path, mode: str) -> None:
    graph = omnigraph.create(tmp_path / "g", SCHEMA)
    before = set((tmp_path / "g").glob("*/*/data/*.lance"))
    result = graph.load([{"type": "Person", "data": {"name": "zoe"}}], mode=mode, engine="local")
    assert type(result.mode) is str
    assert result.mode == mode
    written = set((tmp_path / "g").glob("*/*/data/*.lance")) - before
    assert result.bytes_written == sum(path.stat().st_size for path in written) > 0


@contextmanager
def read_only_disk(folder: Path) -> Iterator[None]:
    """The folder as if its disk took no changes; needs the right to mount."""
    words = ["mount", "--bind", str(folder), str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, check=False, capture_output=True).returncode:
        pytest.skip("this needs the right to mount")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_cleanup_that_removes_nothing_from_a_read_only_disk_says_so(graph: omnigraph.Graph, root: Path) -> None:
    for age in range(3):
        graph.mutate(WRITE, {"n": "ana", "a": age})
    with read_only_disk(root):
        with pytest.raises(StorageError, match="Read-only"):
            graph.maintenance.cleanup(keep=1)
        done = call("cleanup", root, "--keep", "1", "--confirm")
    assert (done.code, "Read-only" in done.err) == (1, True)
    assert not graph.maintenance.cleanup(keep=1).failed


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_behind_an_error_leaves_as_what_it_is(kind: type[BaseException]) -> None:
    """Python 3.11 wraps whatever stops the making of a class, as in a module that a verb imports, in a RuntimeError."""

    @boundary.verb()
    def interrupted() -> None:
        try:
            raise kind
        except BaseException as stopped:
            raise RuntimeError("Error calling __set_name__") from stopped

    with pytest.raises(kind):
        interrupted()
