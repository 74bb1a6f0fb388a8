"""What a load has staged and what is committed already, as the checks across rows read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from omnigraph.catalog.model import EdgeType, NodeType
from omnigraph.engine.ingest.stage import StagedFragment, Target
from omnigraph.engine.ingest.tables_at import TableAt
from omnigraph.engine.rules.questions import NONE, Answers, Questions
from omnigraph.engine.rules.statement import Answer, Degree, End, Identity, Unique
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.packing import packs
from omnigraph.ids import TableKey

ROW_ID, ROW_ADDRESS, POSITION = "_rowid", "_rowaddr", "@position"
"""Columns beside those of the schema: two names that it reserves, and one that no property can have."""
OFFSET_BITS = 32
TASK_ROWS = 2_000_000


class Staged(Struct, frozen=True):
    """One table's part of the load, before it is published."""

    entity: NodeType | EdgeType
    target: Target
    fragments: tuple[StagedFragment, ...]
    committed: TableAt
    committed_rows: int

    @property
    def rows(self) -> int:
        """Staged rows."""
        return sum(fragment.rows for fragment in self.fragments)

    @property
    def keyed(self) -> bool:
        """True when a key decides the ids."""
        return Identity(self.entity).is_keyed

    @property
    def ids_given(self) -> bool:
        """True when the input decides some ids, so that two of them can meet."""
        return self.keyed or any(fragment.supplied_ids for fragment in self.fragments)


class StagedLoad(Struct):
    """What one load has staged by table, what is committed of every table, and what becomes of that."""

    staged: Mapping[TableKey, Staged]
    committed: Mapping[TableKey, tuple[TableAt, int]]
    mode: str

    def stays(self, key: TableKey) -> int:
        """How many committed rows of a table are there beside those that are staged."""
        return 0 if self.mode == "overwrite" and key in self.staged else self.committed[key][1]

    @property
    def replaces(self) -> bool:
        """True when what is staged takes the place of what has the same id."""
        return self.mode in ("merge", "update")

    def staged_rows(self, key: TableKey) -> int:
        """How many rows of a table are staged."""
        return self.staged[key].rows if key in self.staged else 0


class StagedQuestions:
    """Asks what a load can break at all; whoever answers need not know when a question makes sense."""

    def __init__(self, load: StagedLoad, answering: Questions) -> None:
        self.load, self._answering = load, answering

    @property
    def changed(self) -> Sequence[TableKey]:
        """The tables of the load."""
        return sorted(self.load.staged)

    def repeated(self, rule: Unique) -> Answers:
        """Ids meet where the input decides them, and in a merge the last one counts where no key does."""
        staged, asks = self._of(rule.entity), True
        if isinstance(rule, Identity):
            asks = staged.ids_given and (rule.is_keyed or self.load.mode != "merge")
        return self._answering.repeated(rule) if staged.rows and asks else NONE

    def taken(self, rule: Identity) -> Answer | None:
        """Only what is appended has to be new."""
        staged = self._of(rule.entity)
        asks = self.load.mode == "append" and staged.rows and staged.ids_given and staged.committed_rows
        return self._answering.taken(rule) if asks else None

    def missing(self, ends: Sequence[End]) -> Answers:
        """Edges have to come in."""
        return self._answering.missing(ends) if self._of(ends[0].edge).rows else NONE

    def orphaned(self, end: End) -> Answers:
        """Nodes disappear with the old content of a table, and edges stay unless theirs is replaced as well."""
        key = end.edge.table_key
        asks = self.load.mode == "overwrite" and key not in self.load.staged and self.load.stays(key)
        return self._answering.orphaned(end) if asks else NONE

    def miscounted(self, rule: Degree) -> Answers:
        """Edges have to come in."""
        return self._answering.miscounted(rule) if self._of(rule.edge).rows else NONE

    def _of(self, entity: NodeType | EdgeType) -> Staged:
        return self.load.staged[entity.table_key]


def fragment_groups(handle: TableHandle, rows: int = TASK_ROWS) -> list[list[int]]:
    """Fragments gathered into tasks: large ones alone, small ones together."""
    groups = packs(handle.fragments(), lambda fragment: fragment.live_rows, rows)
    return [[fragment.id for fragment in group] for group in groups]


def split_position(position: int) -> tuple[int, int]:
    """The fragment's number and the row's offset of a `POSITION`."""
    return position >> OFFSET_BITS, position & ((1 << OFFSET_BITS) - 1)
