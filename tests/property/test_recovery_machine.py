"""Random writes, loads, failures, outages, deaths and reopens: the graph equals a plain model after each step."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.verify import verify
from omnigraph.engine.recovery import audit
from omnigraph.errors import GraphError, RecoveryRequiredError, StorageError
from omnigraph.graph import Graph, connect, create
from omnigraph.testing.children import run_child
from omnigraph.testing.faults import Fault, FaultyStore
from omnigraph.testing.model import SCHEMA, GraphModel, read_model

NAMES = [f"p{i}" for i in range(6)]
FIRMS = [f"c{i}" for i in range(3)]
people, firms = st.sampled_from(NAMES), st.sampled_from(FIRMS)
ages = st.none() | st.integers(0, 90)


@dataclass(frozen=True)
class Change:
    """One write as data, and what it makes of a model; `after` is None when it must be refused."""

    kind: str
    text: str
    mode: str = ""

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        if self.kind == "load":
            load(graph.context, self.text.encode(), mode=self.mode, actor="act-loader")
        else:
            graph.mutate(self.text, actor="act-writer")


def lines(records: Iterable[dict[str, object]]) -> str:
    return "\n".join(json.dumps(record) for record in records) + "\n"


def person_records(rows: dict[str, int | None]) -> list[dict[str, object]]:
    return [{"type": "Person", "data": {"name": name, "age": age}} for name, age in rows.items()]


def query(body: str) -> Change:
    return Change("mutation", f"query q() {{ {body} }}")


def die_at(change: Change, root: str, number: int, after: bool) -> None:
    with FaultyStore(Fault.EXIT_AFTER if after else Fault.EXIT_BEFORE, number):
        change.run(root)


class RecoveryMachine(RuleBasedStateMachine):
    """Every rule makes one change, perhaps with an accident; the model follows."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.WARNING)
        self.folder = tempfile.mkdtemp(prefix="omnigraph-machine-")
        self.root = f"{self.folder}/graph"
        self.graph = create(self.root, SCHEMA)
        self.model = GraphModel()
        self.accident: Callable[[Change], bool] = self._calm

    def teardown(self) -> None:
        report = verify(connect(self.root).context)
        logging.disable(logging.NOTSET)
        shutil.rmtree(self.folder)
        assert report.clean, report.problems

    # --- accidents -------------------------------------------------------------------------------------------------

    def _calm(self, change: Change) -> bool:
        change.again(self.graph)
        return True

    def _change(self, change: Change, after: GraphModel | None) -> None:
        """Write; afterwards the graph is as before or as after, and as after if the write was acknowledged."""
        accident, self.accident = self.accident, self._calm
        try:
            acknowledged = accident(change)
        except (StorageError, RecoveryRequiredError):
            acknowledged = False
        except GraphError:
            assert after is None, "a valid write was refused"
            return
        assert after is not None or not acknowledged, "an invalid write was accepted"
        self.graph = connect(self.root)
        found = read_model(self.graph)
        allowed = [after] if acknowledged else [self.model, after]
        assert found in allowed
        self.model = found

    @rule(number=st.integers(1, 30), fault=st.sampled_from([Fault.RAISE_BEFORE, Fault.RAISE_AFTER, Fault.OUTAGE]))
    def storage_will_fail(self, number: int, fault: Fault) -> None:
        def accident(change: Change) -> bool:
            with FaultyStore(fault, number):
                change.again(self.graph)
            return True

        self.accident = accident

    @rule(number=st.integers(6, 30), after=st.booleans())
    def the_process_will_die(self, number: int, after: bool) -> None:
        def accident(change: Change) -> bool:
            return run_child(die_at, change, self.root, number, after) == 0

        self.accident = accident

    @rule()
    def reopen(self) -> None:
        self.graph = connect(self.root)

    @rule()
    def optimize(self) -> None:
        self.graph.maintenance.optimize()

    @rule(keep=st.integers(1, 3))
    def clean_up(self, keep: int) -> None:
        self.graph.maintenance.cleanup(keep_versions=keep)

    # --- changes ---------------------------------------------------------------------------------------------------

    @initialize()
    def some_people(self) -> None:
        rows: dict[str, int | None] = {"p0": 10, "p1": 20}
        self._change(Change("load", lines(person_records(rows)), "append"), self.model.with_people(rows))

    @rule(name=people, age=ages)
    def insert_a_person(self, name: str, age: int | None) -> None:
        value = f", age: {age}" if age is not None else ""
        self._change(query(f'insert Person {{ name: "{name}"{value} }}'), self.model.with_people({name: age}))

    @rule(source=people, other=people)
    def insert_an_edge(self, source: str, other: str) -> None:
        valid = {source, other} <= set(self.model.people)
        after = self.model.with_knows(source, other) if valid else None
        self._change(query(f'insert Knows {{ from: "{source}", to: "{other}" }}'), after)

    @rule(name=people, firm=firms, age=ages)
    def hire_somebody(self, name: str, firm: str, age: int | None) -> None:
        value = f", age: {age}" if age is not None else ""
        body = (
            f'insert Company {{ name: "{firm}" }} insert Person {{ name: "{name}"{value} }}'
            f' insert WorksAt {{ from: "{name}", to: "{firm}" }}'
        )
        after = self.model.with_companies([firm]).with_people({name: age}).with_job(name, firm)
        self._change(query(body), after)

    @rule(above=st.integers(0, 90), age=st.integers(0, 90))
    def update_ages(self, above: int, age: int) -> None:
        self._change(query(f"update Person set {{ age: {age} }} where age > {above}"), self.model.aged(above, age))

    @rule(name=people)
    def delete_a_person(self, name: str) -> None:
        self._change(query(f'delete Person where name = "{name}"'), self.model.without(name))

    @rule(rows=st.dictionaries(people, ages, min_size=1, max_size=3))
    def load_append(self, rows: dict[str, int | None]) -> None:
        after = None if set(rows) & set(self.model.people) else self.model.with_people(rows)
        self._change(Change("load", lines(person_records(rows)), "append"), after)

    @rule(rows=st.dictionaries(people, ages, min_size=1, max_size=3))
    def load_merge(self, rows: dict[str, int | None]) -> None:
        self._change(Change("load", lines(person_records(rows)), "merge"), self.model.with_people(rows))

    @rule(names=st.sets(firms, min_size=1))
    def load_overwrite(self, names: set[str]) -> None:
        records: list[dict[str, object]] = [{"type": "Company", "data": {"name": name}} for name in sorted(names)]
        employed = {company for _, company in self.model.works_at}
        after = self.model.with_only_companies(names) if employed <= names else None
        self._change(Change("load", lines(records), "overwrite"), after)

    # --- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def the_graph_is_the_model(self) -> None:
        assert read_model(connect(self.root, read_only=True)) == self.model

    @invariant()
    def no_operation_is_recorded_twice(self) -> None:
        operations = [row.operation_id for row in audit.rows(self.graph.context.store)]
        assert len(operations) == len(set(operations))


RecoveryMachine.TestCase.settings = settings(
    max_examples=10,
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestRecoveryMachine = RecoveryMachine.TestCase
