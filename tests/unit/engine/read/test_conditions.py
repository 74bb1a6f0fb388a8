"""Conditions asked often are worked out for every node, and nothing else changes."""

from __future__ import annotations

import pytest

from omnigraph.engine.read.operators import conditions

ASKED = 'match { $a: Person { key: "p1" } $a knows $b $b.age > 20 } return { $b.key } order { $b.key }'


def reasons(graph, body):
    return [step.reason for step in graph.run(body).steps if step.operator == "filter"]


def test_a_condition_is_worked_out_for_all_nodes_once_it_was_tested_often(graph, monkeypatch):
    monkeypatch.setattr(conditions, "TESTED_SHARE", 1)
    rows = graph.ask(ASKED)
    for _ in range(40):
        assert graph.ask(ASKED) == rows
    assert reasons(graph, ASKED) == ["known for every node, as it was asked often"]
    other = ASKED.replace("20", "21")
    assert reasons(graph, other) == [""]


def test_what_was_worked_out_is_bounded_by_bytes(graph, monkeypatch):
    monkeypatch.setattr(conditions, "TESTED_SHARE", 10**9)
    monkeypatch.setattr(conditions, "MARKS_BYTES_MAX", 50)
    for age in range(30):
        asked = ASKED.replace("20", str(age))
        assert graph.ask(asked) == graph.ask(asked)
        assert 0 < sum(marks.nbytes for marks in graph.state.tables.conditions.marks.values()) <= 50


@pytest.mark.parametrize("condition", ["$b.age > 20", "20 < $b.age", "$b.age != $a.age", "$b.key != $b.bio"])
def test_conditions_give_the_same_rows_known_or_tested(graph, monkeypatch, condition):
    asked = ASKED.replace("$b.age > 20", condition)
    tested = graph.ask(asked)
    monkeypatch.setattr(conditions, "TESTED_SHARE", 10**9)
    assert graph.ask(asked) == graph.ask(asked) == tested
