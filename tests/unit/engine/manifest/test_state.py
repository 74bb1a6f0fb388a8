"""What the rows of a manifest mean, without a disk."""

import dataclasses
import json
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from omnigraph.engine.manifest import records
from omnigraph.engine.manifest.delta import UpdateTable
from omnigraph.engine.manifest.records import MANIFEST_SCHEMA, CommitRecord, Head, Row, TableEntry, TableLocation
from omnigraph.engine.manifest.state import ManifestState, apply_changes, decode, genesis, without_commits
from omnigraph.errors import FormatError
from omnigraph.ids import CommitId, TableKey

PERSON = TableKey("node:Person")
GENESIS = CommitRecord(CommitId("01GENESIS"), None, 1, None, None, None, 1_700_000_000_000_000)


def _row(object_id: str, object_type: str, **columns: Any) -> Row:
    row: Row = dict.fromkeys(MANIFEST_SCHEMA.names)
    row.update(object_id=object_id, object_type=object_type, table_key="", **columns)
    return row


def _table(key: str = PERSON, location: str = "nodes/p", n: int = 1) -> Row:
    facts = None if n == 1 else json.dumps({"incarnation": n})
    return _row(key if n == 1 else f"{key}#{n}", "table", location=location, metadata=facts) | {"table_key": key}


def _version(version: int, *, key: str = PERSON, n: int = 1, branch: str | None = None) -> Row:
    facts = json.dumps({"e_tag": None} if n == 1 else {"e_tag": None, "incarnation": n})
    subject = key if n == 1 else f"{key}#{n}"
    row = _row(f"{subject}${version:020d}", "table_version", metadata=facts, table_version=version, row_count=version)
    return row | {"table_key": key, "table_branch": branch}


def _tombstone(version: int, *, key: str = PERSON, n: int = 1) -> Row:
    facts = None if n == 1 else json.dumps({"incarnation": n})
    subject = key if n == 1 else f"{key}#{n}"
    row = _row(f"{subject}$tombstone${version:020d}", "table_tombstone", metadata=facts, table_version=version)
    return row | {"table_key": key}


def _state(*rows: Row) -> ManifestState:
    return decode(rows, branch="main", version=9)


def test_the_greatest_version_of_a_table_is_visible_whatever_the_order_of_rows() -> None:
    state = _state(_version(3), _table(), _version(12, branch="b"), _version(7))
    assert state.entries == {PERSON: TableEntry(PERSON, "nodes/p", 12, "b", 12)}


@pytest.mark.parametrize(("tombstone", "visible"), [(4, True), (5, False), (6, False)])
def test_a_tombstone_hides_versions_up_to_its_own(tombstone: int, visible: bool) -> None:
    state = _state(_table(), _version(5), _tombstone(tombstone))
    assert (PERSON in state.entries) is visible
    assert state.current_version(PERSON) == (5 if visible else tombstone)


def test_a_tombstone_hides_only_its_own_incarnation() -> None:
    state = _state(_table(), _version(5), _tombstone(5), _table(location="nodes/p-2", n=2), _version(1, n=2))
    assert state.entries[PERSON] == TableEntry(PERSON, "nodes/p-2", 1, None, 1, 2)
    state = _state(_table(), _table(location="nodes/p-2", n=2), _version(1, n=2), _tombstone(5), _tombstone(1, n=2))
    assert state.entries == {}


def test_tables_are_listed_in_key_order() -> None:
    keys = ["node:Zoo", "edge:A", "node:Ant"]
    rows = [row for key in keys for row in (_table(key, key), _version(1, key=key))]
    assert list(_state(*rows).entries) == ["edge:A", "node:Ant", "node:Zoo"]


def test_rows_written_read_back_as_the_same_state() -> None:
    entries = [TableEntry(PERSON, "nodes/p", 1, None, 0, 1, {"e_tag": "x", "future": [1]})]
    state = genesis(entries, GENESIS)
    commit = CommitRecord(
        CommitId("01NEXT"), None, 2, state.head, CommitId("01MERGED"), "act-alice", 5, {"omnigraph.stream": "s"}
    )
    after = apply_changes(state, [UpdateTable(PERSON, 2, "review", 3, {"e_tag": "y"})], commit)
    back = decode(after.to_table().to_pylist(), branch="main", version=2)
    assert back == after
    assert back.commits[commit.graph_commit_id] == commit
    assert back.heads == {"main": Head("main", commit.graph_commit_id, GENESIS.graph_commit_id)}
    assert back.latest[PERSON].metadata["e_tag"] == "y"
    assert decode(state.to_table().to_pylist(), branch="main", version=1).latest[PERSON].metadata["future"] == [1]


def test_a_state_knows_how_many_rows_it_has_without_spelling_them() -> None:
    schema = _row("graph_schema", "graph_schema", metadata='{"schema_hash":"h"}')
    strange = _row("policy:1", "graph_policy", metadata="{}")
    every_kind = [_table(), _version(5), _tombstone(4), *genesis([], GENESIS).to_table().to_pylist(), schema, strange]
    for rows in (every_kind, every_kind[:-2]):
        state = _state(*rows)
        assert state.row_count == state.to_table().num_rows == len(rows)


def test_rows_of_unknown_kinds_are_carried_along_unchanged() -> None:
    strange = _row("policy:1", "graph_policy", metadata='{"x":1}', table_version=7, location="there")
    state = decode([*genesis([], GENESIS).to_table().to_pylist(), strange], branch="main", version=1)
    after = apply_changes(state, [], CommitRecord(CommitId("01N"), None, 2, state.head, None, None, 2))
    assert strange in after.to_table().to_pylist()


def test_a_branch_without_commits_of_its_own_is_at_the_commit_it_was_created_at() -> None:
    state = decode(genesis([], GENESIS).to_table().to_pylist(), branch="review", version=1)
    assert state.head == GENESIS.graph_commit_id
    after = apply_changes(state, [], CommitRecord(CommitId("01B"), "review", 2, state.head, None, None, 2))
    assert after.head == "01B"
    assert set(after.heads) == {"main", "review"}


def test_commits_leave_the_manifest_except_heads_and_the_newest_of_each_stream() -> None:
    state = genesis([], GENESIS)
    for number in range(2, 6):
        facts = {"omnigraph.stream": "s"} if number in (2, 3) else {}
        commit = CommitRecord(CommitId(f"01C{number}"), None, number, state.head, None, None, number, facts)
        state = apply_changes(state, [], commit)
    assert set(without_commits(state, list(state.commits)).commits) == {"01C3", "01C5"}


CORRUPT = {
    "a table without a location": _table(location=""),
    "a version of an unregistered table": _version(1, key="node:Ghost"),
    "a version without metadata": _version(1) | {"metadata": None},
    "a version without a row count": _version(1) | {"row_count": None},
    "a version without a number": _version(1) | {"table_version": None},
    "metadata that is not JSON": _version(1) | {"metadata": "{"},
    "metadata that is not an object": _version(1) | {"metadata": "[1]"},
    "an incarnation that is not a number": _version(1) | {"metadata": '{"incarnation": "x"}'},
    "a tombstone without a version": _tombstone(1) | {"table_version": None},
    "a commit without a time": _row("01C", "graph_commit", metadata="{}", table_version=1),
    "a commit without a version": _row("01C", "graph_commit", metadata='{"created_at": 1}'),
    "a commit without metadata": _row("01C", "graph_commit", table_version=1),
    "a head that names no commit": _row("graph_head:main", "graph_head", metadata="{}"),
}


@pytest.mark.parametrize("what", sorted(CORRUPT))
def test_a_corrupt_row_is_refused_and_named(what: str) -> None:
    row = CORRUPT[what]
    with pytest.raises(FormatError, match="manifest row") as caught:
        _state(*([row] if row["object_type"] == "table" else [_table(), row]))
    assert row["object_id"] in str(caught.value)


def test_two_rows_with_one_id_are_refused() -> None:
    with pytest.raises(FormatError, match="two rows"):
        _state(_table(), _version(3), _version(3))


@pytest.mark.parametrize(
    ("stamp", "complaint"), [(b"5", "newer"), (b"99", "newer"), (b"four", "unreadable"), (b"", "unreadable")]
)
def test_a_stamp_this_release_does_not_know_is_refused(stamp: bytes, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        records.read_stamp(pa.schema([], metadata={records.STAMP_KEY: stamp}))


def test_a_missing_stamp_means_the_first_format() -> None:
    assert records.read_stamp(pa.schema([])) == 1
    assert records.read_stamp(MANIFEST_SCHEMA) == 4


def test_a_record_is_spelled_once_and_as_an_equal_one_would_be() -> None:
    entry = TableEntry(PERSON, "nodes/p", 3, None, 7, metadata={"written_by": "01OP"})
    commit = (records.commit_row, GENESIS, dataclasses.replace(GENESIS))
    for spell, record, again in (commit, (records.entry_row, entry, replace(entry))):
        assert spell(record) is spell(record)
        assert spell(again) == spell(record)
        assert spell(again) is not spell(record)
    moved = replace(entry, version=4)
    assert records.entry_row(moved)["table_version"] == 4


def test_the_next_state_spells_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publish writes every row of the window, and encodes the one commit that came."""
    keys = [TableKey(f"node:T{number}") for number in range(8)]
    state = genesis([TableEntry(key, f"nodes/{key[5:]}", 1, None, 0) for key in keys], GENESIS)
    for number in range(2, 60):
        commit = CommitRecord(CommitId(f"01C{number:03d}"), None, number, state.head, None, "me", GENESIS.created_at)
        state = apply_changes(state, [UpdateTable(keys[0], number, None, number)], commit)
    plain = state.to_table()
    commit = CommitRecord(CommitId("01LAST"), None, 60, state.head, None, None, GENESIS.created_at)
    after = apply_changes(state, [UpdateTable(keys[1], 2, None, 5)], commit)
    spelled, dumps = [], json.dumps
    monkeypatch.setattr(records.json, "dumps", lambda *given, **how: spelled.append(given) or dumps(*given, **how))
    rows = after.to_table()
    monkeypatch.undo()
    assert len(spelled) <= 3
    assert rows.num_rows == plain.num_rows + 1
    fresh = decode(rows.to_pylist(), branch="main", version=60)
    assert fresh.to_table().equals(rows)


def test_rows_handed_from_state_to_state_are_those_that_the_state_alone_would_write() -> None:
    state = genesis([TableEntry(PERSON, "nodes/p", 1, None, 0)], GENESIS)
    # The fourth claims a version that is older than what is there already, and the seventh follows a removal.
    for number, version in enumerate((2, 3, 4, 2, 5, 6, 7, 8), start=1):
        commit = CommitRecord(CommitId(f"01C{number}"), None, version, state.head, None, "me", GENESIS.created_at)
        before = without_commits(state, [CommitId("01C2"), CommitId("01C3")]) if number == 7 else state
        state = apply_changes(before, [UpdateTable(PERSON, number + 1, None, number)], commit)
        assert state.to_table().equals(replace(state).to_table())
        assert state.to_table().num_rows == state.row_count
    held = [row["object_id"] for row in state.to_table().to_pylist() if row["object_type"] == "graph_commit"]
    assert held == ["01GENESIS", "01C1", "01C4", "01C5", "01C6", "01C7", "01C8"]


def test_rows_become_the_columns_they_name_in_the_schema_of_the_manifest() -> None:
    unknown = {**dict.fromkeys(MANIFEST_SCHEMA.names), "object_id": "x", "object_type": "newer", "table_key": ""}
    entry = TableEntry(TableKey("node:P"), "nodes/p", 3, "side", 7, 2, {"written_by": "somebody"})
    rows = [
        records.location_row(TableLocation(TableKey("node:P"), "nodes/p", 2)),
        records.entry_row(entry),
        records.commit_row(GENESIS),
        {**unknown, "base_objects": ["a", "b"]},
    ]
    for given in (rows, []):
        plain = {name: [row[name] for row in given] for name in MANIFEST_SCHEMA.names}
        table = records.to_table(records.encoded(given))
        assert table.schema.equals(MANIFEST_SCHEMA, check_metadata=True)
        assert table.equals(pa.table(plain, schema=MANIFEST_SCHEMA))
