"""What taking files over from one line of a table to another rests on; none of it is promised by a document."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import FragmentMetadata
from tests.substrate.lance_tables import commit, fenced, identities, ids_of, make, staged_append, staged_delete


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def adopted(source: LanceDataset, fragment: int, number: int, **facts: Any) -> FragmentMetadata:
    """A fragment of another line under a new number, with row ids to be given by the commit."""
    document = source.get_fragment(fragment).metadata.to_json()
    for file in document["files"]:
        file["base_id"] = facts.get("base_id")
    nothing = dict.fromkeys(("row_id_meta", "created_at_version_meta", "last_updated_at_version_meta"))
    document.update(id=number, **nothing)
    if not facts.get("with_deletions", True):
        document["deletion_file"] = None
    return FragmentMetadata.from_json(json.dumps(document))


def taking(table: LanceDataset, *fragments: FragmentMetadata) -> Transaction:
    fence = min(table.get_fragments(), key=lambda fragment: fragment.fragment_id).metadata
    return Transaction(table.version, LanceOperation.Update([], [fence], list(fragments), update_mode="rewrite_rows"))


def branched(uri: str) -> tuple[LanceDataset, LanceDataset]:
    """A table of two fragments, and a branch of it with one more."""
    table = make(uri, ["a", "b"], ["c"])
    branch = table.create_branch("side")
    branch = commit(branch, staged_append(branch, "x", "y"))
    return table, branch


def link(uri: str, name: str) -> None:
    os.link(f"{uri}/tree/side/data/{name}", f"{uri}/data/{name}")


def file_of(table: LanceDataset, fragment: int) -> str:
    return str(table.get_fragment(fragment).metadata.files[0].path)


def test_a_fragment_keeps_the_number_it_is_given_before_the_commit(uri: str) -> None:
    table, branch = branched(uri)
    link(uri, file_of(branch, 2))
    table = commit(table, taking(table, adopted(branch, 2, 7)))
    assert [fragment.fragment_id for fragment in table.get_fragments()] == [0, 1, 7]
    assert ids_of(table) == ["a", "b", "c", "x", "y"]
    table = commit(table, staged_append(table, "z"))
    assert table.get_fragments()[-1].fragment_id == 8, "numbers go on behind the highest"
    found = identities(table)
    assert len({row_id for row_id, _, _ in found.values()}) == len(found), "row ids are unique"


def test_the_number_zero_asks_for_a_number(uri: str) -> None:
    table, branch = branched(uri)
    link(uri, file_of(branch, 2))
    table = commit(table, taking(table, adopted(branch, 2, 0)))
    assert [fragment.fragment_id for fragment in table.get_fragments()] == [0, 1, 2]


def test_deletions_are_found_under_the_new_number(uri: str) -> None:
    table, branch = branched(uri)
    branch = commit(branch, staged_delete(branch, 2, [0]))
    metadata = branch.get_fragment(2).metadata
    link(uri, file_of(branch, 2))
    os.makedirs(f"{uri}/_deletions", exist_ok=True)
    source, target = metadata.deletion_file.path(2), metadata.deletion_file.path(7)
    assert source != target
    shutil.copy(f"{uri}/tree/side/{source}", f"{uri}/{target}")
    table = commit(table, taking(table, adopted(branch, 2, 7)))
    assert ids_of(table) == ["a", "b", "c", "y"]


def test_an_append_behind_a_fence_lands_right_after_it(uri: str) -> None:
    table, branch = branched(uri)
    link(uri, file_of(branch, 2))
    base = table.version
    table = commit(table, fenced(table, "d"))
    later = Transaction(table.version, LanceOperation.Append([adopted(branch, 2, 9)]))
    table = commit(table, later)
    assert table.version == base + 2
    assert ids_of(table) == ["a", "b", "c", "d", "x", "y"]
    found = identities(table)
    assert len({row_id for row_id, _, _ in found.values()}) == len(found)


def test_cleanup_spares_what_a_branch_refers_to(uri: str) -> None:
    table, branch = branched(uri)
    (base,) = (number for number, place in branch.base_paths().items() if place.path.endswith("table"))
    table = commit(table, staged_append(table, "m", "n"))
    branch = commit(branch, taking(branch, adopted(table, 2, 9, base_id=base)))
    table = commit(table, Transaction(table.version, LanceOperation.Overwrite(table.lance_schema, [])))
    table = lance.dataset(uri)
    table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False)
    found = lance.dataset(uri).checkout_version(("side", None))
    assert ids_of(found) == ["a", "b", "c", "m", "n", "x", "y"]


def test_cleanup_asks_no_branch_whose_root_stays(uri: str) -> None:
    """So what a branch was given later has to be kept by us."""
    table, branch = branched(uri)
    root = table.version
    (base,) = (number for number, place in branch.base_paths().items() if place.path.endswith("table"))
    table = commit(table, staged_append(table, "m", "n"))
    given = file_of(table, 2)
    branch = commit(branch, taking(branch, adopted(table, 2, 9, base_id=base)))
    table = commit(table, Transaction(table.version, LanceOperation.Overwrite(table.lance_schema, [])))
    doomed = [each["version"] for each in table.versions() if each["version"] not in (root, table.version)]
    lance.dataset(uri).cleanup_old_versions(versions=doomed, error_if_tagged_old_versions=False)
    assert not Path(uri, "data", given).exists()


def test_an_overwrite_takes_no_deletions(uri: str) -> None:
    table, branch = branched(uri)
    branch = commit(branch, staged_delete(branch, 2, [0]))
    link(uri, file_of(branch, 2))
    taken = LanceOperation.Overwrite(table.lance_schema, [adopted(branch, 2, 7)])
    with pytest.raises((OSError, ValueError), match=r"(?i)delet"):
        commit(table, Transaction(table.version, taken))


def test_a_link_outlives_the_branch(uri: str) -> None:
    table, branch = branched(uri)
    link(uri, file_of(branch, 2))
    table = commit(table, taking(table, adopted(branch, 2, 7)))
    table.branches.delete("side")
    shutil.rmtree(f"{uri}/tree", ignore_errors=True)
    found = lance.dataset(uri)
    assert ids_of(found) == ["a", "b", "c", "x", "y"]
    found.validate()


def test_the_same_file_twice_in_one_version_is_not_refused(uri: str) -> None:
    """So whoever takes files over has to look whether they are there."""
    table = make(uri, ["a", "b"], ["c"])
    table = commit(table, taking(table, adopted(table, 1, 7)))
    assert ids_of(table) == ["a", "b", "c", "c"]
