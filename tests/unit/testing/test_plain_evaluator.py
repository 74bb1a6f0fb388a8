"""The plain evaluator tries every assignment, or says that there are too many."""

import datetime as dt

import pytest
from tests.plain.evaluator import PlainGraph, TooManyTriesError, evaluate

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.plan import operators as op

NOW = dt.datetime(2026, 3, 4, tzinfo=dt.UTC)
PAIRS = op.ReadPlan(
    "q",
    (),
    op.Pattern((op.Scan("a", "A"), op.Scan("b", "A")), ()),
    (op.Projection("a", op.EntityId("a"), PropertyType(Scalar.STRING)),),
)


def test_as_many_assignments_are_tried_as_there_are_and_no_more_than_wanted() -> None:
    graph = PlainGraph(nodes={"A": [{"id": name} for name in "xyz"]})
    assert len(evaluate(PAIRS, graph, {}, NOW, tries_max=9)) == 9
    with pytest.raises(TooManyTriesError):
        evaluate(PAIRS, graph, {}, NOW, tries_max=8)
