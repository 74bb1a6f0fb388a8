"""What differs between writers, as data: one row for each kind of commit.

A new writer adds a row here, and one to `recovery.classify.MODES` for how its effects are judged after a crash. The
path itself, and what becomes of an intent, is the same for all of them.
"""

from __future__ import annotations

from msgspec import Struct

from omnigraph import failpoints
from omnigraph.engine.coordination.intent import WriterKind


class Stops(Struct, frozen=True):
    """The failpoints of a kind, where stories of tests stop between two steps; None where there is none."""

    before_arm: str | None = None
    between_commits: str | None = None
    after_table: str | None = None
    before_ready: str | None = None
    before_publish: str | None = None
    after_publish: str | None = None


class Kind(Struct, frozen=True):
    """How one kind of writer walks the path.

    `writer` is what its intent says; None for those that only publish. `name` is what messages call it. A `guarded`
    write is compared with what is published before it is armed, and waits for writers that are at its tables; others
    rely on the strict commits and the publish alone. A `confirmed` one records the versions it has reached before it
    publishes, and is finished by others only then. With `skips`, a step may turn out to be nothing. `lists_files` says
    that what it has staged can be looked for by name, should its process have stood still.
    """

    writer: WriterKind | None
    name: str = "write"
    guarded: bool = False
    confirmed: bool = False
    skips: bool = False
    lists_files: bool = True
    refused: str | None = None
    """How a caller is told that the publish was refused; None for what the publish itself says."""
    stops: Stops = Stops()


_OF_A_TRANSACTION = Stops(
    before_arm=failpoints.MUTATION_PRE_ARM,
    after_table=failpoints.MUTATION_POST_TABLE_COMMIT,
    before_publish=failpoints.MUTATION_POST_FINALIZE,
    after_publish=failpoints.PUBLISH_AFTER_COMMIT,
)

MUTATION = Kind(WriterKind.MUTATION, guarded=True, stops=_OF_A_TRANSACTION)
LOAD = Kind(WriterKind.LOAD, guarded=True, stops=_OF_A_TRANSACTION)
MERGE = Kind(
    WriterKind.BRANCH_MERGE,
    guarded=True,
    confirmed=True,
    skips=True,
    stops=Stops(
        before_arm=failpoints.MUTATION_PRE_ARM,
        between_commits=failpoints.MERGE_BETWEEN_COMMITS,
        after_table=failpoints.MUTATION_POST_TABLE_COMMIT,
        before_ready=failpoints.MERGE_PRE_CONFIRM,
        before_publish=failpoints.MUTATION_POST_FINALIZE,
        after_publish=failpoints.PUBLISH_AFTER_COMMIT,
    ),
)
SCHEMA_APPLY = Kind(
    WriterKind.SCHEMA_APPLY,
    name="schema change",
    refused="schema apply lost its write lease; nothing changed — retry ({refused})",
    stops=Stops(
        after_table=failpoints.SCHEMA_POST_TABLE_COMMIT,
        before_ready=failpoints.SCHEMA_BEFORE_STAGING,
        before_publish=failpoints.SCHEMA_AFTER_STAGING,
        after_publish=failpoints.SCHEMA_AFTER_MANIFEST_COMMIT,
    ),
)
OPTIMIZE = Kind(
    WriterKind.OPTIMIZE,
    name="optimization",
    skips=True,
    lists_files=False,
    stops=Stops(before_publish=failpoints.OPTIMIZE_POST_EFFECTS),
)
ENSURE_INDICES = Kind(WriterKind.ENSURE_INDICES, name="index build", skips=True, lists_files=False)
SETTINGS = Kind(WriterKind.OPTIMIZE, name="removal of settings")
REPAIR = Kind(None, name="repair")

KINDS: dict[WriterKind, Kind] = {
    WriterKind.MUTATION: MUTATION,
    WriterKind.LOAD: LOAD,
    WriterKind.BRANCH_MERGE: MERGE,
    WriterKind.SCHEMA_APPLY: SCHEMA_APPLY,
    WriterKind.OPTIMIZE: OPTIMIZE,
    WriterKind.ENSURE_INDICES: ENSURE_INDICES,
}
"""The row of every writer that an intent can name."""
