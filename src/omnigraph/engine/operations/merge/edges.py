"""Edges that both sides have added: the same edge twice, and two edges where people expect one.

Nobody refers to an edge, so where a `@unique` group says that two edges are one and all their properties are equal, the
insert of theirs is dropped. Without such a group two edges between the same nodes are legal and both stay; they are
counted, because few expect them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.catalog import wide, zeros
from omnigraph.catalog.model import EdgeType
from omnigraph.engine.changes.located import Located, same
from omnigraph.engine.changes.rows import Ints
from omnigraph.engine.operations.merge.decided import TableMerge, Taken

PARALLEL_SHOWN = 1_000
"""How many pairs of parallel edges a plan lists."""


def settle_edges(table: TableMerge) -> None:
    """Drop the edges that both sides have added alike, and count those that run beside an edge of the other side."""
    entity, kept = table.entity, table.kept
    if not isinstance(entity, EdgeType) or kept is None:
        return
    mine = np.flatnonzero(kept.base.absent & kept.ours.present)
    if not len(mine):
        return
    own_ids, own = wide.take(kept.ids, mine), kept.ours.where(mine)
    for group in entity.unique:
        table.taken = [_without_convergent(table, part, own, group) for part in table.taken]
    for part in table.taken:
        fresh = part.where(part.over.absent)
        pairs = _matches(fresh.rows, own, ("src", "dst"))
        beside = np.unique(pairs[0], return_index=True)
        table.parallel_edges += len(beside[0])
        for left, right in zip(beside[0].tolist(), pairs[1][beside[1]].tolist(), strict=True):
            if len(table.parallel) < PARALLEL_SHOWN:
                table.parallel.append((fresh.ids[left].as_py(), own_ids[right].as_py()))


def _without_convergent(table: TableMerge, part: Taken, own: Located, group: tuple[str, ...]) -> Taken:
    fresh = np.flatnonzero(part.over.absent)
    rows = part.rows.where(fresh)
    left, right = _matches(rows, own, group)
    if not len(left):
        return part
    alike = same(rows.where(left), own.where(right))
    keep = np.ones(len(part), dtype=np.bool_)
    keep[fresh[left[alike]]] = False
    table.convergent_edges += int(np.count_nonzero(~keep))
    return part.where(keep)


def _matches(left: Located, right: Located, group: tuple[str, ...]) -> tuple[Ints, Ints]:
    """Which rows of both have the same values in some columns, none of them null."""
    if not len(left) or not len(right):
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing
    names = [str(number) for number in range(len(group))]
    one, other = (_columns(side, group, names, place) for side, place in ((left, "left"), (right, "right")))
    found = one.join(other, keys=names, join_type="inner").sort_by([("left", "ascending"), ("right", "ascending")])
    return found.column("left").to_numpy(), found.column("right").to_numpy()


def _columns(rows: Located, group: tuple[str, ...], names: list[str], place: str) -> pa.Table:
    wanted = list(dict.fromkeys(group))
    schema = pa.schema([rows.handles[0].schema.field(name) for name in wanted])
    table = rows.read(lambda handle, at: handle.take_addresses(at, wanted), schema)
    columns = [zeros.one_zero(table.column(name)) for name in group]
    return pa.Table.from_arrays([*columns, pa.array(np.arange(len(rows)))], names=[*names, place]).drop_null()
