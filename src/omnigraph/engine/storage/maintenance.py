"""Physical upkeep, staged like any write: compaction and index builds.

Lance commits an index build on top of whatever happened since, so a build alone is not strict. Whoever maintains a
table therefore commits a bare fence first, which is strict: from then on the table's head is above its pin, every other
writer is refused, and the compaction and the builds that follow meet nobody.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import lance
import numpy as np
from lance import LanceOperation
from lance.optimize import Compaction
from msgspec import Struct
from msgspec.structs import replace

from omnigraph.catalog.indexes import IndexKind, IndexSpec
from omnigraph.engine.storage.folding import Folded, rewrite
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.lance_internals.row_versions import bound_row_versions
from omnigraph.engine.storage.staged import StagedWrite, new_files, stage_update
from omnigraph.engine.storage.steps import step
from omnigraph.engine.storage.translate import translated

COMPACTED_ROWS = 1_048_576
# An index gains a segment for fragments it does not cover; beyond this many it is built anew as one.
SEGMENTS_MAX = 4


class IndexGap(Struct, frozen=True):
    """What an index of a table lacks: everything, or the fragments it does not cover."""

    spec: IndexSpec
    missing: bool
    uncovered: tuple[int, ...]


def index_gaps(handle: TableHandle, specs: Sequence[IndexSpec]) -> list[IndexGap]:
    """The declared indexes of a table that do not exist or do not cover every fragment."""
    fragments = {fragment.id for fragment in handle.fragments()}
    covered: dict[str, set[int]] = {}
    for index in handle.indexes():
        covered.setdefault(index.name, set()).update(index.fragment_ids)
    gaps = []
    for spec in specs:
        known = covered.get(spec.name)
        left = fragments - (known or set())
        if fragments and (known is None or left):
            gaps.append(IndexGap(spec, known is None, tuple(sorted(left))))
    return gaps


def why_untrainable(handle: TableHandle, spec: IndexSpec) -> str | None:
    """Why an index cannot be built yet: a vector index needs vectors, and such whose distances are numbers."""
    if spec.kind is not IndexKind.VECTOR:
        return None
    largest, found = 0.0, False
    # One pass, and no copy of the numbers: this is all of an index build that is not Lance's own work.
    for batch in handle.scan_batches([spec.column]):
        values = batch.column(0).flatten().to_numpy(zero_copy_only=False)
        if len(values):
            largest, found = max(largest, float(values.max()), -float(values.min())), True
    if not found:
        return "no vectors to build it from yet"
    if largest * largest * handle.schema.field(spec.column).type.list_size > float(np.finfo(np.float32).max) / 4:
        return "some vectors are too large for their distances to be numbers"
    return None


def stage_compaction(base: TableHandle) -> StagedWrite | None:
    """Stage the rewrite of small and much-deleted fragments; None when there is nothing to gain.

    Row ids stay, and row versions up to their bound, so an index that covers all fragments of a group covers what they
    become; others are completed afterwards. Lance lets appends pass a rewrite, so it is committed behind a fence,
    `on_top` of it.
    """
    groups: list[LanceOperation.RewriteGroup] = []
    with translated(f"compacting {base.path}"):
        plan = Compaction.plan(base.dataset, {"target_rows_per_fragment": COMPACTED_ROWS, "num_threads": 1})
        for task in plan.tasks:
            with step("compact", base.path):
                done = rewrite(base, task)
            originals = list(done.original_fragments)
            bound_row_versions(base, [int(fragment.id) for fragment in originals], list(done.new_fragments))
            groups.append(LanceOperation.RewriteGroup(originals, done.new_fragments))
    if not groups:
        return None
    files = new_files(fragment for group in groups for fragment in group.new_fragments)
    return StagedWrite(base.version, LanceOperation.Rewrite(groups, []), 0, 0, files)


def stage_fence(base: TableHandle) -> StagedWrite:
    """Stage a version with the same content: it only takes the table for its writer."""
    return stage_update(
        base, added=[], changed=[], emptied=[], rows_added=0, rows_removed=0, fold=lambda base, touched: Folded()
    )


def on_top(compaction: StagedWrite, fence: TableHandle) -> StagedWrite:
    """A compaction on top of its writer's own fence, which left every fragment as it was.

    The new fragments are numbered here. Lance would do so only after it has told the indexes which fragments take the
    place of those they cover, and would tell them zero: the number of another fragment, perhaps of another segment.
    A number that no fragment has and no index knows is safe to give while the table is fenced.
    """
    taken = [fragment.id for fragment in fence.fragments()]
    taken += [number for index in fence.indexes() for number in index.fragment_ids]
    numbers = itertools.count(max(taken, default=-1) + 1)
    for group in compaction.operation.groups:
        for fragment in group.new_fragments:
            fragment.id = next(numbers)
    return replace(compaction, base_version=fence.version)


def stage_indexes(base: TableHandle, gaps: Sequence[IndexGap]) -> StagedWrite | None:
    """Stage all missing index parts of a table as one transaction; None without gaps."""
    built: list[lance.Index] = []
    removed: list[lance.Index] = []
    for gap in gaps:
        segments = _segments(base, gap.spec.name)
        whole = (
            gap.missing
            or len(segments) >= SEGMENTS_MAX
            or gap.spec.kind is IndexKind.VECTOR
            or (gap.spec.kind is IndexKind.TEXT and _moved_rows(base, gap.uncovered, segments))
        )
        fragment_ids = [fragment.id for fragment in base.fragments()] if whole else list(gap.uncovered)
        with translated(f"indexing {gap.spec.column} of {base.path}"), step("build_index", base.path):
            built.append(_build(base, gap.spec, fragment_ids))
        if whole:
            removed.extend(segments)
    if not built:
        return None
    return StagedWrite(base.version, LanceOperation.CreateIndex(built, removed), 0, 0, keeps_rows=True)


def _build(base: TableHandle, spec: IndexSpec, fragment_ids: list[int]) -> lance.Index:
    options = {"num_partitions": 1, "metric": "l2"} if spec.kind is IndexKind.VECTOR else {}
    index = base.dataset.create_index_uncommitted(
        spec.column, str(spec.kind), name=spec.name, replace=True, fragment_ids=fragment_ids, **options
    )
    if spec.kind is IndexKind.TEXT:
        # A word index staged per fragment is readable only once its parts have been merged.
        index = base.dataset.merge_existing_index_segments([index])
    return index


def _moved_rows(base: TableHandle, fragment_ids: Sequence[int], segments: Sequence[lance.Index]) -> bool:
    """True when these fragments hold rows that a segment may know already, because an update or a fold moved them.

    Word search asks every segment and joins the answers, so a row that two segments know would be found twice, and
    also by words it has lost.
    """
    indexed_at = max(segment.dataset_version for segment in segments)
    older = f"_row_created_at_version <= {indexed_at}"
    found = base.scan(["_row_created_at_version"], older, fragment_ids=list(fragment_ids), limit=1)
    return bool(found.num_rows)


def _segments(base: TableHandle, name: str) -> list[lance.Index]:
    """The stored segments of an index, in the form a transaction removes them by."""
    return [
        lance.Index(
            uuid=index.uuid,
            name=name,
            fields=[base.field_ids[column] for column in index.columns],
            dataset_version=index.built_at,
            fragment_ids=set(index.fragment_ids),
            index_version=0,
        )
        for index in base.indexes()
        if index.name == name
    ]
