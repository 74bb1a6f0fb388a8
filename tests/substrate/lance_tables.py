"""Lance as it is, without anything of ours: a table and the ways to change it."""

from collections.abc import Sequence
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}


def schema(*, keyed: bool = True) -> pa.Schema:
    metadata = PRIMARY_KEY if keyed else None
    return pa.schema([pa.field("id", pa.string(), nullable=False, metadata=metadata), pa.field("n", pa.int64())])


def rows(*ids: str, n: int = 0, keyed: bool = True) -> pa.Table:
    return pa.table({"id": list(ids), "n": [n] * len(ids)}, schema=schema(keyed=keyed))


def make(uri: str, *fragments: Sequence[str], keyed: bool = True) -> LanceDataset:
    """A table with stable row ids and one fragment per group of ids."""
    table = lance.write_dataset(
        rows(*fragments[0], keyed=keyed), uri, enable_stable_row_ids=True, data_storage_version="2.2"
    )
    for ids in fragments[1:]:
        table = lance.write_dataset(rows(*ids, keyed=keyed), uri, mode="append")
    return table


def upsert(table: LanceDataset) -> Any:
    return table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().conflict_retries(0)


def staged_append(table: LanceDataset, *ids: str) -> Transaction:
    return write_fragments(rows(*ids), table, mode="append", return_transaction=True)


def staged_overwrite(table: LanceDataset, *ids: str) -> Transaction:
    return write_fragments(rows(*ids), table, mode="overwrite", return_transaction=True)


def staged_delete(table: LanceDataset, fragment_id: int, offsets: list[int]) -> Transaction:
    after = table.get_fragment(fragment_id).delete_rows(offsets)
    gone = [fragment_id] if after is None else []
    changed = [] if after is None else [after]
    return Transaction(table.version, LanceOperation.Delete(changed, gone, "by row"))


def fenced(table: LanceDataset, *ids: str) -> Transaction:
    """An insert that also names the lowest fragment, unchanged."""
    added = write_fragments(rows(*ids), table, mode="append")
    fence = min(table.get_fragments(), key=lambda fragment: fragment.fragment_id).metadata
    return Transaction(table.version, LanceOperation.Update([], [fence], added, update_mode="rewrite_rows"))


def commit(table: LanceDataset, transaction: Transaction, *, max_retries: int = 0) -> LanceDataset:
    return LanceDataset.commit(table, transaction, max_retries=max_retries)


def ids_of(table: LanceDataset) -> list[str]:
    found: list[str] = sorted(table.to_table(columns=["id"])["id"].to_pylist())
    return found


def identities(table: LanceDataset) -> dict[str, tuple[int, int, int]]:
    names = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
    found = table.scanner(columns=names, with_row_id=True).to_table().to_pylist()
    return {row["id"]: (row["_rowid"], row[names[1]], row[names[2]]) for row in found}
