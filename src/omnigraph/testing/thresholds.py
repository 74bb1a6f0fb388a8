"""One switch that lowers every threshold of derived state, so that a graph of ten rows takes all its ways.

Thresholds say from which size on something is kept, joined, indexed, folded or written beside the graph. None of them
may change an answer, and hardly a test has the size at which one of them does something. `lower_thresholds` sets all of
them at once, in this process; a test demands that each is named here, or in `EXEMPT` with the reason why not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

PACKAGES = (
    "engine.read",
    "engine.storage",
    "engine.manifest",
    "engine.values",
    "engine.rules",
    "engine.ingest",
    "engine.write",
    "engine.commit",
)
"""Where each numeric constant is either lowered or exempt."""

LOWERED: dict[str, dict[str, float]] = {
    "engine.changes.brief": {"WIDE_IMAGES": 2},
    "engine.changes.rows": {"COMPARED_ROWS": 3, "WIDE_ROWS": 2},
    "engine.operations.merge.compose": {"COMPOSED_ROWS": 2},
    "engine.storage.adopting": {"APPENDED_ROWS_MIN": 2},
    "engine.operations.merge.decided": {"DESCRIBED_AT_ONCE": 2},
    "engine.operations.merge.stage": {"CHUNK_ROWS_MAX": 2, "BLOB_ROWS": 2},
    "engine.operations.merge.workers": {"GROUP_ROWS": 2, "READ_ROWS": 3},
    "engine.operations.merge.writing": {"TASK_BYTES": 1},
    "catalog.wide": {"PLAIN_MAX": 24},
    "engine.rules.arrow": {"ASKED_ONCE_ROWS": 2, "FEW_PAIRS": 1, "SAMPLE_ROWS": 1},
    "engine.read.graph.adjacency": {"FEW_NODES_FACTOR": 2},
    "engine.read.operators.aggregate": {"CODES_MIN": 4},
    "engine.read.operators.alternatives": {"ALTERNATIVES_MAX": 2},
    "engine.read.columns.values": {"FEW_ITEMS": 1},
    "engine.read.graph.shortest": {"PAIRS_AT_ONCE": 2},
    "engine.read.graph.assembly": {"ASSEMBLED_MAX": 2, "NEWLY_DEAD_SHARE": 3},
    "engine.read.graph.intersect": {"FEW_ROWS": 2, "LISTED_MAX": 3, "BLOCK": 4, "PRUNED_SHARE": 2},
    "engine.read.operators.conditions": {"TESTED_SHARE": 4, "MARKS_BYTES_MAX": 64, "ASKED_MAX": 3},
    "engine.read.state": {"FOLLOWED_ROWS_MAX": 8},
    "engine.read.reader": {"STATES_MAX": 3, "PROGRAMS_MAX": 4},
    "engine.read.columns.views": {"VIEWS_MAX": 4},
    "engine.read.cache.derived": {"KEPT": 2, "_VERIFIED_MAX": 2},
    "engine.read.columns.dictionary": {"TAIL_MAX": 4, "TAIL_BITS": 4, "SMALL": 5, "SHARED_WORK_MIN": 12, "FEW": 2},
    "engine.read.execute": {"BATCH_ROWS": 4, "FEW_ROWS": 2},
    "engine.read.operators.expand": {"FLOW_FACTOR": 1},
    "engine.read.kernels": {
        "VISITED_CELLS_MAX": 24,
        "PAIRS_BLOCK": 4,
        "FEW_SLOTS_FACTOR": 2,
        "WIDE_SHARE": 4,
        "MARKS_PER_SLOT": 4,
        "MARKS_BITS_MIN": 4,
        "MARKS_BITS_MAX": 10,
    },
    "engine.read.operators.lookup": {
        "ASKED_BEFORE_INDEXING": 1,
        "INDEX_LOOKUP_ROWS": 3,
        "DELETED_BESIDE_SHARE": 8,
        "INDEXED_ROWS_MIN": 3,
    },
    "engine.read.operators.match": {"MERGE_MIN": 3, "DENSE_FACTOR": 2, "SORT_EDGES_FROM": 3},
    "engine.read.vector.nearest": {
        "SKETCHED_ROWS_MIN": 4,
        "NARROWED_ROWS_MIN": 3,
        "TAKES_BEFORE_HOLDING": 1,
        "TAKEN_ROWS_MAX": 3,
        "WIDENED_NUMBERS": 8,
    },
    "engine.read.operators.ordering": {
        "RANKS_FROM_DICTIONARY_MIN": 4,
        "FEW_TEXTS": 3,
        "WORDS_MAX": 2,
        "WORDS_ROWS_MIN": 2,
        "WORDS_ROWS_MAX": 9,
        "LONG_TEXT_BYTES": 8,
    },
    "engine.read.cache.persist": {"EDGES_MIN": 4, "TEXT_ROWS_MIN": 4, "TEXTS_KEPT": 4, "STATES_KEPT": 3},
    "engine.read.plan.cost": {"FEW_STARTS": 2, "PREFER_ASKED_FACTOR": 2.0},
    "engine.read.plan.plan_cache": {"PREPARED_MAX": 4},
    "engine.read.text.search": {"DENSE_SHARE": 3},
    "engine.read.graph.segments": {"OVERLAY_MIN": 4, "SPARE_NODES": 1, "SPARE_SHARE": 8},
    "engine.read.vector.quantised": {
        "HEAD_STEP": 1,
        "SAMPLE_ROWS": 8,
        "BLOCK_ROWS": 3,
        "SEED_BLOCK": 2,
        "SHARED_BYTES_MIN": 32,
        "MEASURED_AT_ONCE": 2,
    },
    "engine.read.columns.tables": {
        "VALUE_CODES_AFTER": 1,
        "FEW_ROWS": 3,
        "COLD_ROWS_MIN": 6,
        "FETCH_BYTES": 16,
        "FETCHED_ROW_BYTES": 4,
        "FETCHED_BESIDE_BYTES": 2,
        "GATHERED_ROWS": 3,
        "GROWN_MAX": 4,
        "GROUP_ROWS_MAX": 8,
    },
    "engine.read.text.analysis": {"SLICE_BYTES": 40, "FEW_TEXTS": 2, "PARTS_MAX": 2},
    "engine.read.operators.count_paths": {"WALKS_AFTER": 1, "EDGES_PER_CALL": 4, "WALKS_MAX": 1, "ALL_FACTOR": 2},
    "engine.storage.batches": {"DEFAULT_ROWS": 7},
    "engine.storage.handle": {"FRAGMENT_BATCH_ROWS": 5, "COUNTED_MAX": 3, "SOUGHT_ROWS": 2},
    "engine.storage.folding": {"FOLD_ROWS": 12, "FOLD_FRAGMENTS": 5, "FOLD_RUN": 3},
    "engine.storage.maintenance": {"COMPACTED_ROWS": 16, "SEGMENTS_MAX": 2},
    "engine.storage.lance_internals.row_versions": {"RUNS_MAX": 3},
    "engine.storage.sorted_values": {"FEW_VALUES": 2, "LEADS_ROWS_MIN": 2},
    "engine.storage.staged": {"ROWS_PER_FILE": 12},
    "engine.storage.cache": {"GENERATIONS": 2},
    "engine.storage.kept": {"HANDLES_MAX": 8},
    "engine.storage.tables": {"PROBED_VERSIONS": 2},
    "engine.storage.written": {"ROWS_MAX": 3},
    "engine.manifest.history": {"FOUND_COMMITS": 4, "_SEARCHED": 2},
    "engine.manifest.walk": {"PAGE": 2, "PAGE_MAX": 8},
    "engine.schema.history": {"COMPILED_MAX": 2},
    "engine.manifest.publish": {
        "COMMIT_WINDOW": 8,
        "COMMITS_KEPT": 4,
        "ARCHIVE_EVERY": 2,
        "BRANCH_STATES": 2,
        "PAST_STATES": 3,
    },
    "engine.storage.columns": {
        "INDEX_FROM_SEARCH": 2,
        "SMALL_ROWS": 2,
        "SEARCHED_SHARE": 2,
        "JOINED_ROWS": 2,
        "JOINED_MAX": 2,
    },
    "engine.write.committed": {
        "INDEX_VALUES_MAX": 4,
        "INDEX_ROWS_MIN": 4,
        "INDEX_ASKS_MAX": 2,
        "_TAKE_ROWS_MAX": 2,
    },
    "engine.write.compaction": {"TABLES_MAX": 1},
    "engine.ingest.inputs": {"PIECE_ROWS": 3, "BYTES_AT_ONCE": 64},
    "engine.ingest.spool": {"HELD_BYTES": 100},
    "engine.write.lookahead": {"STATEMENTS_MAX": 5, "BLOCK_ROWS": 3, "FEW_ROWS": 2},
    "engine.write.overlay": {"TAIL_ROWS": 4, "TAIL_PIECES": 2, "LIST_IDS": 1},
    "engine.write.group": {"LAYER_ROWS_MAX": 3},
    "engine.write.layer": {"CHUNKS_MAX": 1},
    "engine.write.staging": {"AHEAD_ROWS": 3, "PARALLEL_ROWS": 4},
    "engine.write.transaction": {"KEEP_FRAGMENTS_ROWS": 4},
}
"""By module, what each of its thresholds is lowered to."""

_NUMBER = "part of what is computed, not of when"
_RATIO = "a share: both sides of it are met with ten rows"
_FORMAT = "part of a format, or of a call of the system"
_ROUNDS = "tries and pauses of writers, which no size reaches"
_REPORT = "how much an error tells"
_ROOM = "bounds the memory of an object made when its module is imported; tests give it less room themselves"

EXEMPT: dict[str, str] = {
    "engine.storage.adopting.COPIES_AT_ONCE": "how many threads copy files, which wait for the store",
    "engine.read.graph.adjacency.EXACT_MAX": _NUMBER,
    "engine.read.graph.intersect.TABLES_FACTOR": _RATIO,
    "engine.read.graph.intersect.SIGNATURE_WORDS_MAX": _RATIO,
    "engine.read.graph.intersect.SIGNATURE_SPREAD": _RATIO,
    "engine.read.cache.derived.FORMAT": _FORMAT,
    "engine.read.frame.EXACT_MAX": _NUMBER,
    "engine.read.frame.COUNT_MAX": _NUMBER,
    "engine.read.frame._CERTAIN": _NUMBER,
    "engine.read.plan.plan_cache.COUNT_CHANGE_SHARE": _RATIO,
    "engine.read.operators.aggregate._SMALLEST": _NUMBER,
    "engine.read.operators.aggregate.ROUNDS_MAX": _NUMBER,
    "engine.read.operators.aggregate.PIECE_BITS_MIN": _NUMBER,
    "engine.read.text.search.K1": _NUMBER,
    "engine.read.text.search.B": _NUMBER,
    "engine.read.text.search.FUZZY_DISTANCE": _NUMBER,
    "engine.read.graph.segments.OVERLAY_SHARE": _RATIO,
    "engine.read.vector.quantised.EPS": _NUMBER,
    "engine.read.vector.quantised.ROUNDING": _NUMBER,
    "engine.read.vector.quantised.FINITE_MAX": _NUMBER,
    "engine.read.vector.quantised.LENGTH_MAX": _NUMBER,
    "engine.read.vector.quantised.TINY": _NUMBER,
    "engine.read.vector.quantised.LEVEL_MAX": _NUMBER,
    "engine.read.vector.quantised.DIMENSION_MAX": _NUMBER,
    "engine.read.vector.quantised.HEAD_SHARE": _RATIO,
    "engine.read.vector.quantised.HEAD_WIDTH_SHARE": _RATIO,
    "engine.read.vector.quantised.THREADS": "how many cores work at once",
    "engine.read.text.analysis.TOKEN_BYTES_MAX": _NUMBER,
    "engine.read.operators.rank._LAST": _NUMBER,
    "engine.read.columns.values.EPOCH_DAY": _NUMBER,
    "engine.read.operators.computed._DAY_MIN": _NUMBER,
    "engine.read.operators.computed._DAY_MAX": _NUMBER,
    "engine.read.operators.computed._DAY_MILLIS": _NUMBER,
    "engine.storage.batches.FEWER": _RATIO,
    "engine.storage.cache.DEFAULT_BYTES_MAX": _ROOM,
    "engine.storage.cache.ENTRY_BYTES": _ROOM,
    "engine.storage.kept.SESSION_INDEX_BYTES": _ROOM,
    "engine.storage.kept.SESSION_METADATA_BYTES": _ROOM,
    "engine.storage.written.COLUMN_BYTES": _ROOM,
    "engine.storage.lance_internals.columns._BYTES": _FORMAT,
    "engine.storage.lance_internals.columns._ID": _FORMAT,
    "engine.storage.lance_internals.columns._NAME": _FORMAT,
    "engine.storage.lance_internals.columns._NONE": _FORMAT,
    "engine.storage.lance_internals.columns._NULLABLE": _FORMAT,
    "engine.storage.lance_internals.columns._PARENT": _FORMAT,
    "engine.storage.lance_internals.columns._VARINT": _FORMAT,
    "engine.storage.durability._AT_FDCWD": _FORMAT,
    "engine.storage.durability._RENAME_EXCHANGE": _FORMAT,
    "engine.storage.fragments.BATCH_ROWS": "how much an executor of Spark reads at once",
    "engine.storage.fragments.WHOLE_ROWS": "how much an executor of Spark reads at once",
    "engine.storage.handle._NOTE_BYTES": _ROOM,
    "engine.storage.lance_internals.environment._FEWEST": "how many threads Lance needs for a commit",
    "engine.storage.layout._FNV_OFFSET": _FORMAT,
    "engine.storage.layout._FNV_PRIME": _FORMAT,
    "engine.storage.layout._U64": _FORMAT,
    "engine.storage.lance_internals.files._U64": _FORMAT,
    "engine.storage.literals._I64_MIN": _NUMBER,
    "engine.storage.outlet._LINKS_MAX": "a bound on links that lead in circles",
    "engine.storage.residual.REF_LOOKS": _ROUNDS,
    "engine.storage.written.TABLE_BYTES_MAX": _ROOM,
    "engine.storage.written.BYTES_MAX": _ROOM,
    "engine.manifest.history.ARCHIVE_ATTEMPTS": _ROUNDS,
    "engine.manifest.history.CANDIDATES": _REPORT,
    "engine.manifest.history.CLOCKS_APART_SECONDS": "how far clocks are trusted, which is no size",
    "engine.manifest.history.VERSION_DIGITS_MAX": _FORMAT,
    "engine.manifest.tags.PATH_LENGTH_MAX": _FORMAT,
    "engine.manifest.line.SPAN_FACTOR": _RATIO,
    "engine.manifest.references.SHORTENED_FROM": _FORMAT,
    "engine.manifest.references.ULID_LENGTH": _FORMAT,
    "engine.manifest.migrations.ATTEMPTS": _ROUNDS,
    "engine.manifest.publish.RETRY_BUDGET": _ROUNDS,
    "engine.manifest.publish.PROBE_SECONDS": "a time; the machine lets it pass by asking the manifest to forget",
    "engine.manifest.records.INTERNAL_SCHEMA_VERSION": _FORMAT,
    "engine.manifest.records.LINEAGE_FROM": _FORMAT,
    "engine.values.blobs._EXTERNAL": _FORMAT,
    "engine.values.blobs._LISTED_MAX": _REPORT,
    "engine.storage.columns.NOTE_BYTES": _ROOM,
    "engine.write.compaction.IN_CALL_FACTOR": _RATIO,
    "engine.commit.guard.IN_FLIGHT_WAIT_SECONDS": _ROUNDS,
    "engine.storage.memory.WORTHWHILE_BYTES": "how much memory is worth a search for what nobody uses",
    "engine.commit.ahead.THREADS_MAX": "how many files are written ahead at once; who comes next writes its own",
    "engine.commit.guard.IN_FLIGHT_POLL_SECONDS": _ROUNDS,
    "engine.commit.path.PUBLISH_WAIT_SECONDS": _ROUNDS,
    **dict.fromkeys(
        (
            "engine.ingest.choice.LOCAL_MEMORY_PER_MB",
            "engine.ingest.choice.LOCAL_SECONDS_PER_MB",
            "engine.ingest.choice.MEMORY_SHARE",
            "engine.ingest.choice.MERGED_BYTES_PER_ROW",
            "engine.ingest.choice.MERGED_ROWS_MAX",
            "engine.ingest.choice.SPARK_CORE_SECONDS_PER_MB",
            "engine.ingest.choice.SPARK_JOB_SECONDS",
            "engine.ingest.choice.SPARK_START_SECONDS",
            "engine.ingest.choice._GZIP_EXPANSION",
        ),
        "estimates that choose between engines, which tests/spark compares",
    ),
    **dict.fromkeys(
        (
            "engine.ingest.files.CHUNK",
            "engine.ingest.files.COLUMN_BYTES",
            "engine.ingest.files.PIECE_BYTES",
            "engine.ingest.quick.GROUP_ROWS",
            "engine.ingest.quick.IDS_MAX",
            "engine.ingest.quick.ROWS_MAX",
            "engine.ingest.shape.BATCH_BYTES",
            "engine.ingest.shape.BATCH_ROWS",
            "engine.ingest.shape.HEAD_BYTES",
            "engine.ingest.slices.SLICE_ROWS",
            "engine.ingest.slices._SAMPLES_PER_SLICE",
            "engine.ingest.stage.BUFFER_BYTES",
            "engine.ingest.stage.FRAGMENT_ROWS",
            "engine.ingest.staged.TASK_ROWS",
        ),
        "how much of a bulk load is held or done at once; its tests lower what they are about",
    ),
    "engine.ingest.csvs._NEWLINE": _NUMBER,
    "engine.ingest.csvs._QUOTE": _NUMBER,
    "engine.ingest.csvs._RETURN": _NUMBER,
    "engine.ingest.files.LINE_BYTES_MAX": _REPORT,
    "engine.ingest.stage.PROBLEMS_PER_TASK": _REPORT,
    "engine.ingest.staged.OFFSET_BITS": _NUMBER,
    "engine.rules.statement.NOWHERE": _NUMBER,
    "engine.storage.sorted_values._NO_LEAD": _NUMBER,
    "engine.rules.questions.SHOWN_MAX": _REPORT,
    "engine.ingest.slices._LAST": _NUMBER,
    "engine.ingest.inputs.PROBLEMS_MAX": _REPORT,
    "engine.ingest.records.CHUNK_BYTES": "how much of a file is parsed at once; the readers have a test of their own",
    "engine.ingest.members._BLOCK_BYTES": "how much of a file is parsed at once; the readers have a test of their own",
    "engine.ingest.strict.LINE_BYTES_MAX": _REPORT,
    "engine.ingest.strict._EPOCH_DAY": _NUMBER,
    "engine.values.temporal.DAY_MAX": _NUMBER,
    "engine.values.temporal.DAY_MIN": _NUMBER,
    "engine.values.temporal.MILLIS_MAX": _NUMBER,
    "engine.values.temporal.MILLIS_MIN": _NUMBER,
    "engine.values.temporal.MILLIS_PER_DAY": _NUMBER,
    "engine.values.texts.FAULTS_MAX": _REPORT,
    "engine.write.staging.STAGING_THREADS": "how many tables are staged at once",
    "engine.values.columns.PROBLEMS_MAX": _REPORT,
    "engine.write.group._HISTORY_MAX": _ROUNDS,
    "engine.write.layer.OWN": _NUMBER,
    "engine.write.layer._PLACE": _NUMBER,
    "engine.write.queue.TOGETHER_MAX": "how many writes share a commit, which any two do",
    "engine.write.queue._LOOK_SECONDS": _ROUNDS,
    "engine.write.writer.ATTEMPTS": _ROUNDS,
    "engine.write.writer.WRITE_SECONDS": _ROUNDS,
    "engine.write.writer._BACKOFF_SECONDS": _ROUNDS,
}
"""Numeric constants that are no thresholds of derived state, each with the reason."""


def lower_thresholds() -> dict[tuple[str, str], float]:
    """Lower every threshold of this process for good; returns what they were."""
    before: dict[tuple[str, str], float] = {}
    for name, values in LOWERED.items():
        module = import_module(f"omnigraph.{name}")
        for constant, value in values.items():
            before[name, constant] = getattr(module, constant)
            setattr(module, constant, value)
    return before


@contextmanager
def lowered_thresholds() -> Iterator[None]:
    """Lower every threshold of this process, and set them back."""
    before = lower_thresholds()
    try:
        yield
    finally:
        for (name, constant), value in before.items():
            setattr(import_module(f"omnigraph.{name}"), constant, value)
