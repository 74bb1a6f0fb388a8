"""A graph with two node types and an edge, and a writer that stops wherever a test wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from msgspec.structs import replace

from omnigraph.engine.coordination.intent import Effect, Intent, WriterKind, new_intent
from omnigraph.engine.coordination.owner import this_process
from omnigraph.engine.manifest.delta import Lineage, UpdateTable
from omnigraph.engine.recovery import RecoveryContext
from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.staged import stage_changes
from omnigraph.graph import Graph, connect
from omnigraph.ids import MAIN, TableKey, now_micros

SCHEMA = """
node Company { name: String @key }
node Person { name: String @key }
edge WorksAt: Person -> Company
"""
COMPANY, PERSON, WORKS_AT = TableKey("node:Company"), TableKey("node:Person"), TableKey("edge:WorksAt")


def rows_of(key: TableKey, *names: str) -> pa.Table:
    return pa.table({"id": list(names), "name": list(names)}) if key != WORKS_AT else pa.table({"id": list(names)})


@dataclass
class HandWriter:
    """Walks the five steps of a write by hand; nothing happens that a test did not ask for."""

    ctx: RecoveryContext
    intent: Intent
    applied: dict[TableKey, TableHandle]

    @classmethod
    def arm(cls, ctx: RecoveryContext, *keys: TableKey, actor: str | None = "act-alice", **facts: object) -> HandWriter:
        snapshot = ctx.manifest.snapshot(MAIN)
        effects = tuple(Effect.on(key, snapshot.entry(key).path, snapshot.entry(key).version) for key in keys)
        intent = new_intent(WriterKind.MUTATION, None, effects, actor_id=actor, **facts)  # type: ignore[arg-type]
        return cls(ctx, ctx.intents.arm(intent), {})

    def apply(self, key: TableKey, *names: str) -> TableHandle:
        effect = self.intent.effect(key)
        assert effect is not None
        base = self.ctx.store.open(effect.table_path, version=effect.expected_version)
        schema = base.schema
        staged = stage_changes(base, new_rows=rows_of(key, *names).cast(schema))
        assert staged is not None
        self.applied[key] = self.ctx.store.commit(base, staged, self.intent.properties())
        return self.applied[key]

    def publish(self, expected: Mapping[TableKey, int] | None = None) -> None:
        pins = {effect.table_key: effect.expected_version for effect in self.intent.effects}
        assert self.intent.commit_id is not None
        self.ctx.manifest.publish(
            MAIN,
            [UpdateTable(key, handle.version, None, handle.count_rows()) for key, handle in self.applied.items()],
            expected=expected or {**pins, **(self.intent.read_set or {})},
            lineage=Lineage(self.intent.commit_id, self.intent.actor_id, now_micros()),
        )

    def disarm(self) -> None:
        self.ctx.intents.disarm(self.intent.operation_id)

    def die(self) -> None:
        """From here on this process counts the writer as one that died in it."""
        self.ctx.intents.abandon(self.intent.operation_id)

    def move_to(self, **owner: object) -> None:
        """Let the intent belong to another process."""
        self.die()
        assert self.intent.owner is not None
        self.intent = replace(self.intent, owner=replace(self.intent.owner, **owner))  # type: ignore[arg-type]
        self.ctx.intents._rewrite(self.intent)

    def fall_silent_elsewhere(self) -> None:
        self.move_to(host="elsewhere", lease_until=now_micros() - 1)

    def live_elsewhere(self, seconds: float = 60) -> None:
        self.move_to(host="elsewhere", lease_until=now_micros() + int(seconds * 1e6))

    def die_here_as_other_process(self) -> None:
        """The owner is a process of this machine that is no more: a number in use, with another start time."""
        self.move_to(
            host=this_process().host, pid=1, process_started="1", lease_until=this_process().leased(60).lease_until
        )


def names_in(ctx: RecoveryContext, key: TableKey) -> list[str]:
    return sorted(ctx.manifest.snapshot(MAIN).open(key).scan(["id"])["id"].to_pylist())


def reopen(graph: Graph) -> Graph:
    return connect(graph.uri)
