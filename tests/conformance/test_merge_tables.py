"""What a merge makes of every pair of changes: the tables of rows and of rules, executed through the public API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import InputError, MergeConflictError
from omnigraph.graph import Graph, create

HERE = Path(__file__).parent
VALUES = {"b": 1, "x": 2, "y": 3}
ROWS_SCHEMA = "node N { k: String @key  v: I32? }\nedge E: N -> N { k: String  v: I32? }"
RULES_SCHEMA = """
node P {
    k: String @key  n: I32?  s: String? @unique  bio: String?
    v: Vector(2)? @embed("bio", model="m")
    @range(n, 0..100)
}
edge E: P -> P @card(0..2) { w: F64? }
edge U: P -> P { w: F64?  @unique(src, dst) }
edge M: P -> P @card(1..) { w: F64? }
"""


# --- rows ------------------------------------------------------------------------------------------------------------


def cells() -> list[tuple[str, ...]]:
    lines = [line for line in (HERE / "merge_rows.txt").read_text().splitlines() if line and not line.startswith("#")]
    return [tuple(cell.strip() for cell in line.split("|")) for line in lines]


class Sheet:
    """All rows of the table as entities of one graph, one node and one edge each."""

    def __init__(self, root: Path) -> None:
        self.rows = {f"r{number:02}": row for number, row in enumerate(cells())}
        self.graph: Graph = create(root, ROWS_SCHEMA)
        self.graph.load([{"type": "N", "data": {"k": "end"}}], "append")

    def put(self, states: dict[str, str], branch: str = "main") -> None:
        """Let entities have these values on a branch, or go."""
        records: list[dict[str, Any]] = []
        for name, letter in states.items():
            value = VALUES.get(letter, 9)
            if letter == ".":
                self.graph.mutate("query d($k: String) { delete N where k = $k }", {"k": name}, branch=branch)
                self.graph.mutate("query d($k: String) { delete E where k = $k }", {"k": name}, branch=branch)
            else:
                records.append({"type": "N", "data": {"k": name, "v": value}})
                edge = {"edge": "E", "from": "end", "to": "end", "data": {"id": f"e-{name}", "k": name, "v": value}}
                records.append(edge)
        if records:
            self.graph.load(records, "merge", branch=branch)

    def content(self, branch: str = "main") -> dict[str, int | None]:
        found = {}
        for line in self.graph.export(branch=branch):
            record = json.loads(line)
            found[record["data"]["id"]] = record["data"]["v"]
        return found


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sheet, dict[str, Any]]:
    """The whole table merged at once, with ours for what is in conflict; and the conflicts there were."""
    sheet = Sheet(tmp_path_factory.mktemp("rows") / "graph")
    graph = sheet.graph
    unknown = [name for name, row in sheet.rows.items() if row[0] == "?"]
    sheet.put({name: "b" for name, row in sheet.rows.items() if row[0] in "b?"})
    graph.branches.create("theirs")
    # Both sides change these differently and settle it each in its own way, so that they parted twice.
    sheet.put(dict.fromkeys(unknown, "y"), "main")
    sheet.put(dict.fromkeys(unknown, "x"), "theirs")
    graph.branches.create("before")
    graph.branches.merge("theirs", "main", strategy="ours")
    graph.branches.merge("before", "theirs", strategy="ours")
    now: dict[str, dict[str, str]] = {"main": {}, "theirs": {}}
    for name, (base, theirs, ours, _) in sheet.rows.items():
        for side, letter, had in (("theirs", theirs, "x"), ("main", ours, "y")):
            if letter != (had if base == "?" else base):
                now[side][name] = letter
    for side, states in now.items():
        sheet.put(states, side)
    plan = graph.branches.plan_merge("theirs", "main")
    assert len(plan.base_commits) == 2
    graph.branches.merge("theirs", "main", strategy="ours")
    return sheet, {str(conflict.row_id): conflict for conflict in plan.conflicts}


@pytest.mark.parametrize("number", range(len(cells())), ids=[" ".join(row) for row in cells()])
@pytest.mark.parametrize("kind", ["node", "edge"])
def test_a_cell(number: int, kind: str, merged: tuple[Sheet, dict[str, Any]]) -> None:
    sheet, conflicts = merged
    base, theirs, ours, result = cells()[number]
    name = f"r{number:02}" if kind == "node" else f"e-r{number:02}"
    conflict = conflicts.get(name)
    if result in (".", *VALUES):
        assert conflict is None
        assert sheet.content().get(name) == VALUES.get(result)
        return
    assert conflict is not None
    assert str(conflict.kind) == result
    images = (conflict.base, conflict.theirs, conflict.ours)
    told = [None if image is None else image.properties["v"] for image in images]
    assert told == [VALUES.get(letter) for letter in (base, theirs, ours)]
    assert conflict.columns == (("v",) if theirs != "." and ours != "." else ())
    assert conflict.fields_disjoint is (False if base == "b" and "." not in (theirs, ours) else None)


# --- rules -----------------------------------------------------------------------------------------------------------


@dataclass
class Rule:
    """One row of the table of rules."""

    title: str
    steps: dict[str, list[str]] = field(default_factory=dict)

    def get(self, verb: str) -> str | None:
        return self.steps[verb][0] if verb in self.steps else None


def rules() -> Iterator[Rule]:
    found: Rule | None = None
    for line in (HERE / "merge_rules.txt").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            if found is not None:
                yield found
            found = Rule(line)
        elif found is not None:
            verb, _, text = line.strip().partition(" ")
            found.steps.setdefault(verb, []).append(text.strip())
    if found is not None:
        yield found


def put(graph: Graph, branch: str, text: str | None) -> None:
    records: list[dict[str, Any]] = []
    for entity in (text or "").split(" | ") if text else ():
        words = entity.split()
        if words[0].startswith("-"):
            condition = f'k = "{words[1]}"'
            if words[0] != "-P":
                edges = [json.loads(line) for line in graph.export(branch=branch)]
                condition = next(f'to = "{edge["to"]}"' for edge in edges if edge["data"]["id"] == words[1])
            graph.mutate(f"query d() {{ delete {words[0][1:]} where {condition} }}", branch=branch)
            continue
        data: dict[str, Any] = {}
        for word in words:
            name, is_property, value = word.partition("=")
            if is_property:
                read = float(value) if name in "wv" else int(value) if name == "n" else value
                data[name] = [read, read] if name == "v" else read
        if words[0] == "P":
            records.append({"type": "P", "data": {"k": words[1], **data}})
        else:
            source, _, target = words[2].partition(">")
            records.append({"edge": words[0], "from": source, "to": target, "data": {"id": words[1], **data}})
    if records:
        graph.load(records, "merge", branch=branch)


def content(graph: Graph) -> str:
    found = []
    for line in graph.export():
        record = json.loads(line)
        data = {name: value for name, value in record["data"].items() if value is not None and name not in ("id", "k")}
        place = f" {record['from']}>{record['to']}" if "edge" in record else ""
        told = "".join(f" {name}={value}" for name, value in sorted(data.items()))
        found.append(f"{record.get('type') or record['edge']} {record['data']['id']}{place}{told}")
    return " | ".join(sorted(found, key=lambda entity: (entity[0] != "P", entity)))


@pytest.mark.parametrize("rule", list(rules()), ids=lambda rule: rule.title)
def test_a_rule(rule: Rule, tmp_path: Path) -> None:
    graph = create(tmp_path / "graph", RULES_SCHEMA)
    put(graph, "main", "P a | P b")
    put(graph, "main", rule.get("base"))
    graph.branches.create("review")
    put(graph, "review", rule.get("theirs"))
    put(graph, "main", rule.get("ours"))
    head = graph.snapshot().head
    arguments: dict[str, Any] = {"strategy": rule.get("strategy")}
    if (take := rule.get("take")) is not None:
        kind, table, how = take.split(" ", 2)
        arguments["resolve"] = [{"kind": kind, "table_key": table, "take": json.loads(how)}]
    if (refused := rule.get("refused")) is not None:
        with pytest.raises(InputError, match=refused):
            graph.branches.merge("review", **arguments)
        assert graph.snapshot().head == head
        return
    plan = graph.branches.plan_merge("review", **arguments)
    if (gives := rule.get("gives")) is None:
        assert [told(conflict) for conflict in plan.conflicts] == rule.steps["conflict"]
        with pytest.raises(MergeConflictError) as raised:
            graph.branches.merge("review", **arguments)
        assert raised.value.total == len(plan.conflicts)
        assert list(raised.value.conflicts) == [conflict.to_json() for conflict in plan.conflicts]
        assert graph.snapshot().head == head
        return
    assert plan.conflicts == ()
    if (parallel := rule.get("parallel")) is not None:
        assert plan.parallel_edges == 1
        assert [" ".join(pair) for pair in plan.parallel] == [parallel]
    graph.branches.merge("review", **arguments)
    assert content(graph) == gives
    assert graph.maintenance.verify().clean


def told(conflict: Any) -> str:
    columns = ",".join(conflict.columns) or "-"
    disjoint = " disjoint" if conflict.fields_disjoint else ""
    return (
        f"{conflict.kind} {conflict.table_key} {conflict.row_id or '-'} {conflict.related or '-'} {columns}{disjoint}"
    )
