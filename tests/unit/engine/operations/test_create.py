"""Where a graph may be created: in a folder of its own."""

from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import AlreadyExistsError

SCHEMA = "node Person { name: String @key }\n"


def test_a_folder_with_other_things_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "list.txt").write_text("mine too")
    for force in (False, True):
        with pytest.raises(AlreadyExistsError, match=r"other things \(README.md, nodes\)"):
            omnigraph.create(tmp_path, schema=SCHEMA, force=force)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["README.md", "list.txt", "nodes"]


def test_an_empty_folder_and_what_the_system_puts_into_it_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / ".DS_Store").write_text("")
    (tmp_path / "lost+found").mkdir()
    with omnigraph.create(tmp_path, schema=SCHEMA) as graph:
        assert graph.branches.list() == ["main"]


def test_what_an_attempt_left_is_taken_over_by_force_beside_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "g.omni"
    root.mkdir()
    (root / "_schema.pg").write_text(SCHEMA)
    with pytest.raises(AlreadyExistsError, match="--force"):
        omnigraph.create(root, schema=SCHEMA)
    (root / "notes.txt").write_text("mine")
    with pytest.raises(AlreadyExistsError, match=r"notes\.txt"):
        omnigraph.create(root, schema=SCHEMA, force=True)
    (root / "notes.txt").unlink()
    with omnigraph.create(root, schema=SCHEMA, force=True) as graph:
        assert graph.branches.list() == ["main"]


def test_an_object_store_is_asked_as_well() -> None:
    store = omnigraph.graph.TableStore.at("memory://others/graph")
    store.objects.write_text("data/list.txt", "mine")
    store.objects.write_text("README.md", "mine")
    assert store.objects.names_at_root() == ["README.md", "data"]
