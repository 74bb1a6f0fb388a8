"""The note a writer leaves before its first effect: what it is about to do to which tables.

`Intent` is today's record. `parse_intent` reads every format there ever was into it (1: before merges confirmed, 2:
with confirmation, 3: with owner, transaction identity and read set) and refuses newer ones, so that no other code
knows older formats existed, except through `schema_version`, which selects the rules a file was written under.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from omnigraph.engine.coordination.owner import Owner
from omnigraph.engine.manifest.records import WRITTEN_BY
from omnigraph.engine.storage.transactions import COMPENSATES, OPERATION_ID, RESTORES, STEP
from omnigraph.errors import FormatError, InternalError
from omnigraph.ids import CommitId, OperationId, TableKey, new_ulid, now_micros

SIDECAR_VERSION = 3
CONFIRMATION_FLOOR = 2
IDENTITY_FLOOR = 3


class WriterKind(StrEnum):
    """Which writer left the intent; `classify.MODES` says how each is judged."""

    MUTATION = "Mutation"
    LOAD = "Load"
    SCHEMA_APPLY = "SchemaApply"
    BRANCH_MERGE = "BranchMerge"
    ENSURE_INDICES = "EnsureIndices"
    OPTIMIZE = "Optimize"


class Effect(Struct, frozen=True):
    """One change to one table: `steps` commits on `table_branch`, the first of them on top of `expected_version`."""

    table_key: TableKey
    table_path: str
    expected_version: int
    post_commit_pin: int
    table_branch: str | None = None
    confirmed_version: int | None = None
    steps: int = 1
    fork: bool = False

    @classmethod
    def on(
        cls,
        table_key: TableKey,
        table_path: str,
        version: int,
        *,
        branch: str | None = None,
        steps: int = 1,
        fork: bool = False,
    ) -> Effect:
        """The usual effect: `steps` commits on top of the pinned version."""
        return cls(table_key, table_path, version, version + 1, branch, None, steps, fork)


class Registration(Struct, frozen=True):
    """A table the write creates; it becomes visible with the publish."""

    table_key: TableKey
    table_path: str
    table_branch: str | None = None
    incarnation: int = 1


class TableTombstone(Struct, frozen=True):
    """A table the write removes from view."""

    table_key: TableKey
    tombstone_version: int


class Adoption(Struct, frozen=True):
    """A table the write publishes without committing to it: a pointer to a version that exists."""

    table_key: TableKey
    table_path: str
    version: int
    table_branch: str | None
    expected_version: int


class Intent(Struct, frozen=True):
    """A write in flight, complete enough for another process to finish or undo it.

    `commit_id` is minted before anything happens, so "was it published" is a lookup. `read_set` holds the versions of
    tables the write only validated against. `aborted` says the writer decided to undo; then nobody finishes it.
    `commit_properties` are what the commit records, whoever publishes it.
    """

    operation_id: OperationId
    writer_kind: WriterKind
    branch: str | None
    effects: tuple[Effect, ...]
    actor_id: str | None = None
    commit_id: CommitId | None = None
    started_at: int = 0
    owner: Owner | None = None
    read_set: Mapping[TableKey, int] | None = None
    aborted: bool = False
    merge_source_commit_id: CommitId | None = None
    expected_head: CommitId | None = None
    registrations: tuple[Registration, ...] = ()
    tombstones: tuple[TableTombstone, ...] = ()
    adoptions: tuple[Adoption, ...] = ()
    target_schema_hash: str | None = None
    commit_properties: Mapping[str, str] = field(default_factory=dict)
    schema_version: int = SIDECAR_VERSION

    @property
    def by_identity(self) -> bool:
        """True when the writer's commits carry its operation id."""
        return self.schema_version >= IDENTITY_FLOOR

    def effect(self, table_key: TableKey) -> Effect | None:
        """The effect on a table, or None."""
        return next((effect for effect in self.effects if effect.table_key == table_key), None)

    def properties(self, step: int = 1) -> dict[str, str]:
        """The transaction properties the writer's `step`-th commit on a table carries."""
        return {OPERATION_ID: self.operation_id, STEP: str(step)}

    def table_facts(self, branch: str | None) -> dict[str, str]:
        """What a published version on a branch records of its writer, because its number may occur again.

        A branch that is deleted and created anew counts its tables from where they were inherited.
        """
        return {} if branch is None else {WRITTEN_BY: self.operation_id}

    def compensation(self, version: int) -> dict[str, str]:
        """The transaction properties of a commit that undoes this intent on a table, back to `version`."""
        return {
            OPERATION_ID: self.operation_id,
            COMPENSATES: self.operation_id,
            RESTORES: str(version),
        }

    def confirmed(self, achieved: Mapping[TableKey, int]) -> Intent:
        """The intent with the version each effect reached.

        Raises:
            InternalError: an effect has no achieved version; a pin is never left silently unconfirmed.
        """
        missing = [effect.table_key for effect in self.effects if effect.table_key not in achieved]
        if missing:
            raise InternalError(f"cannot confirm {self.operation_id}: no achieved version for {', '.join(missing)}")
        effects = tuple(replace(effect, confirmed_version=achieved[effect.table_key]) for effect in self.effects)
        return replace(self, effects=effects)


def new_intent(
    kind: WriterKind,
    branch: str | None,
    effects: tuple[Effect, ...],
    *,
    actor_id: str | None = None,
    commit_id: CommitId | None = None,
    read_set: Mapping[TableKey, int] | None = None,
    **facts: Any,
) -> Intent:
    """An intent with a fresh operation id and, unless given, a fresh commit id; effects in table order."""
    return Intent(
        operation_id=OperationId(new_ulid()),
        writer_kind=kind,
        branch=branch,
        effects=tuple(sorted(effects, key=lambda effect: effect.table_key)),
        actor_id=actor_id,
        commit_id=commit_id or CommitId(new_ulid()),
        started_at=now_micros(),
        read_set=dict(read_set or {}),
        **facts,
    )


# --- the file --------------------------------------------------------------------------------------------------------


def render_intent(intent: Intent) -> str:
    """The sidecar's text, in the current format."""
    body: dict[str, Any] = {
        "schema_version": SIDECAR_VERSION,
        "operation_id": intent.operation_id,
        "started_at": str(intent.started_at),
        "branch": intent.branch,
        "actor_id": intent.actor_id,
        "writer_kind": intent.writer_kind.value,
        "commit_id": intent.commit_id,
        "owner": intent.owner.to_json() if intent.owner else None,
        "aborted": intent.aborted,
        "tables": [asdict(effect) for effect in intent.effects],
        "read_set": dict(intent.read_set or {}),
        "merge_source_commit_id": intent.merge_source_commit_id,
        "expected_head": intent.expected_head,
        "additional_registrations": [asdict(item) for item in intent.registrations],
        "tombstones": [asdict(item) for item in intent.tombstones],
        "adoptions": [asdict(item) for item in intent.adoptions],
        "target_schema_hash": intent.target_schema_hash,
    }
    if intent.commit_properties:
        body["commit_properties"] = dict(intent.commit_properties)
    return json.dumps(body)


def parse_intent(text: str, name: str) -> Intent:
    """Read a sidecar of any known format; `name` is how messages call the file.

    Raises:
        FormatError: the file is corrupt, or newer than this release; it stays where it is.
    """
    try:
        body = json.loads(text)
        version = int(body["schema_version"])
    except (ValueError, KeyError, TypeError) as exc:
        raise FormatError(f"recovery sidecar '{name}' is corrupt ({exc}); it was kept for review") from exc
    if version > SIDECAR_VERSION:
        raise FormatError(
            f"recovery sidecar '{name}' has format {version}, this release reads up to {SIDECAR_VERSION}; it was kept:"
            " upgrade, or review it by hand"
        )
    try:
        return _intent_of(body, version)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise FormatError(f"recovery sidecar '{name}' is corrupt ({exc!r}); it was kept for review") from exc


def _intent_of(body: dict[str, Any], version: int) -> Intent:
    owner = body.get("owner")
    return Intent(
        operation_id=OperationId(str(body["operation_id"])),
        writer_kind=WriterKind(body["writer_kind"]),
        branch=body.get("branch"),
        effects=tuple(_effect_of(item, version) for item in body["tables"]),
        actor_id=body.get("actor_id"),
        commit_id=body.get("commit_id"),
        started_at=int(body.get("started_at") or 0),
        owner=Owner.from_json(owner) if owner else None,
        read_set={TableKey(key): int(value) for key, value in (body.get("read_set") or {}).items()},
        aborted=bool(body.get("aborted", False)),
        merge_source_commit_id=body.get("merge_source_commit_id"),
        expected_head=body.get("expected_head"),
        registrations=tuple(_registration_of(item) for item in body.get("additional_registrations") or ()),
        tombstones=tuple(
            TableTombstone(TableKey(item["table_key"]), int(item["tombstone_version"]))
            for item in body.get("tombstones") or ()
        ),
        adoptions=tuple(_adoption_of(item) for item in body.get("adoptions") or ()),
        target_schema_hash=body.get("target_schema_hash"),
        commit_properties={str(key): str(value) for key, value in (body.get("commit_properties") or {}).items()},
        schema_version=version,
    )


def _effect_of(item: dict[str, Any], version: int) -> Effect:
    confirmed = item.get("confirmed_version") if version >= CONFIRMATION_FLOOR else None
    return Effect(
        table_key=TableKey(str(item["table_key"])),
        table_path=_relative(str(item["table_path"])),
        expected_version=int(item["expected_version"]),
        post_commit_pin=int(item["post_commit_pin"]),
        table_branch=item.get("table_branch"),
        confirmed_version=None if confirmed is None else int(confirmed),
        steps=int(item.get("steps", 1)),
        fork=bool(item.get("fork", False)),
    )


def _registration_of(item: dict[str, Any]) -> Registration:
    path = _relative(str(item["table_path"]))
    return Registration(TableKey(item["table_key"]), path, item.get("table_branch"), int(item.get("incarnation", 1)))


def _adoption_of(item: dict[str, Any]) -> Adoption:
    return Adoption(
        table_key=TableKey(item["table_key"]),
        table_path=_relative(str(item["table_path"])),
        version=int(item["version"]),
        table_branch=item.get("table_branch"),
        expected_version=int(item["expected_version"]),
    )


def _relative(path: str) -> str:
    """Older files hold full locations, which break when a graph moves; a table's own place is the last two parts."""
    return "/".join(path.rstrip("/").split("/")[-2:]) if "://" in path or path.startswith("/") else path
