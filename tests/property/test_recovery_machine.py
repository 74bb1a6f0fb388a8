"""Random writes, loads, branches, schemas, failures, outages, deaths and reopens: the graph equals a plain model.

The model holds every branch as plain dictionaries, and which of two schemas is in force.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.property.graph_model import SCHEMA, GraphModel, read_model

from omnigraph.engine.operations.load import load
from omnigraph.engine.operations.verify import verify
from omnigraph.engine.recovery import audit
from omnigraph.errors import GraphError, RecoveryRequiredError, StorageError
from omnigraph.graph import Graph, connect, create
from omnigraph.testing.children import run_child
from omnigraph.testing.faults import Fault, FaultyStore

NAMES = [f"p{i}" for i in range(6)]
FIRMS = [f"c{i}" for i in range(3)]
BRANCHES = ["x", "y"]
WIDER = SCHEMA.replace("age: I32? }", "age: I32?\n              bio: String? }")
places = st.sampled_from(["main", "main", *BRANCHES])
people, firms = st.sampled_from(NAMES), st.sampled_from(FIRMS)
ages = st.none() | st.integers(0, 90)


@dataclass(frozen=True)
class Change:
    """One write as data, and what it makes of a model; `after` is None when it must be refused."""

    kind: str
    text: str
    mode: str = ""
    branch: str = "main"

    def run(self, root: str) -> None:
        self.again(connect(root))

    def again(self, graph: Graph) -> None:
        if self.kind == "load":
            load(graph.context, self.text.encode(), mode=self.mode, branch=self.branch, actor="act-loader")
        elif self.kind == "create":
            graph.branches.create(self.branch, self.text)
        elif self.kind == "delete":
            graph.branches.delete(self.branch)
        elif self.kind == "schema":
            graph.schema.apply(self.text, actor="act-owner", confirm_drops=True)
        else:
            graph.mutate(self.text, branch=self.branch, actor="act-writer")


@dataclass(frozen=True)
class State:
    """Every branch, where each but main came from, and whether the wider schema is in force."""

    branches: dict[str, GraphModel]
    sources: dict[str, str]
    wider: bool = False

    def on(self, branch: str, model: GraphModel | None) -> State | None:
        """The state with another content of one branch; None when there is no such branch or content."""
        if model is None or branch not in self.branches:
            return None
        return replace(self, branches={**self.branches, branch: model})

    def created(self, branch: str, source: str) -> State | None:
        if branch in self.branches or source not in self.branches:
            return None
        branches = {**self.branches, branch: self.branches[source]}
        return replace(self, branches=branches, sources={**self.sources, branch: source})

    def deleted(self, branch: str) -> State | None:
        if branch not in self.sources or branch in self.sources.values():
            return None
        left = {name: model for name, model in self.branches.items() if name != branch}
        sources = {name: source for name, source in self.sources.items() if name in left}
        return replace(self, branches=left, sources=sources)


def read_state(graph: Graph, sources: dict[str, str]) -> State:
    """What a graph really holds; where branches came from is taken from those who should know."""
    branches = {branch: read_model(graph, branch) for branch in graph.branches.list()}
    known = {branch: sources[branch] for branch in branches if branch != "main"}
    return State(branches, known, graph.schema.source == WIDER)


def lines(records: Iterable[dict[str, object]]) -> str:
    return "\n".join(json.dumps(record) for record in records) + "\n"


def person_records(rows: dict[str, int | None]) -> list[dict[str, object]]:
    return [{"type": "Person", "data": {"name": name, "age": age}} for name, age in rows.items()]


def query(body: str, branch: str = "main") -> Change:
    return Change("mutation", f"query q() {{ {body} }}", branch=branch)


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
        self.state = State({"main": GraphModel()}, {})
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

    def _model(self, branch: str) -> GraphModel:
        return self.state.branches.get(branch, GraphModel())

    def _change(self, change: Change, model: GraphModel | None) -> None:
        self._become(change, self.state.on(change.branch, model))

    def _become(self, change: Change, after: State | None) -> None:
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
        found = read_state(self.graph, {**self.state.sources, **(after.sources if after is not None else {})})
        allowed = [after] if acknowledged else [self.state, after]
        assert found in allowed
        self.state = found

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
        self.graph.maintenance.cleanup(keep=keep)

    # --- changes ---------------------------------------------------------------------------------------------------

    @initialize()
    def some_people(self) -> None:
        rows: dict[str, int | None] = {"p0": 10, "p1": 20}
        self._change(Change("load", lines(person_records(rows)), "append"), GraphModel().with_people(rows))

    @rule(name=people, age=ages, branch=places)
    def insert_a_person(self, name: str, age: int | None, branch: str) -> None:
        value = f", age: {age}" if age is not None else ""
        self._change(
            query(f'insert Person {{ name: "{name}"{value} }}', branch), self._model(branch).with_people({name: age})
        )

    @rule(source=people, other=people, branch=places)
    def insert_an_edge(self, source: str, other: str, branch: str) -> None:
        valid = {source, other} <= set(self._model(branch).people)
        after = self._model(branch).with_knows(source, other) if valid else None
        self._change(query(f'insert Knows {{ from: "{source}", to: "{other}" }}', branch), after)

    @rule(name=people, firm=firms, age=ages, branch=places)
    def hire_somebody(self, name: str, firm: str, age: int | None, branch: str) -> None:
        value = f", age: {age}" if age is not None else ""
        body = (
            f'insert Company {{ name: "{firm}" }} insert Person {{ name: "{name}"{value} }}'
            f' insert WorksAt {{ from: "{name}", to: "{firm}" }}'
        )
        after = self._model(branch).with_companies([firm]).with_people({name: age}).with_job(name, firm)
        self._change(query(body, branch), after)

    @rule(above=st.integers(0, 90), age=st.integers(0, 90), branch=places)
    def update_ages(self, above: int, age: int, branch: str) -> None:
        self._change(
            query(f"update Person set {{ age: {age} }} where age > {above}", branch),
            self._model(branch).aged(above, age),
        )

    @rule(name=people, branch=places)
    def delete_a_person(self, name: str, branch: str) -> None:
        self._change(query(f'delete Person where name = "{name}"', branch), self._model(branch).without(name))

    @rule(rows=st.dictionaries(people, ages, min_size=1, max_size=3), branch=places)
    def load_append(self, rows: dict[str, int | None], branch: str) -> None:
        after = None if set(rows) & set(self._model(branch).people) else self._model(branch).with_people(rows)
        self._change(Change("load", lines(person_records(rows)), "append", branch), after)

    @rule(rows=st.dictionaries(people, ages, min_size=1, max_size=3), branch=places)
    def load_merge(self, rows: dict[str, int | None], branch: str) -> None:
        self._change(
            Change("load", lines(person_records(rows)), "merge", branch), self._model(branch).with_people(rows)
        )

    @rule(names=st.sets(firms, min_size=1), branch=places)
    def load_overwrite(self, names: set[str], branch: str) -> None:
        records: list[dict[str, object]] = [{"type": "Company", "data": {"name": name}} for name in sorted(names)]
        employed = {company for _, company in self._model(branch).works_at}
        after = self._model(branch).with_only_companies(names) if employed <= names else None
        self._change(Change("load", lines(records), "overwrite", branch), after)

    @rule(branch=st.sampled_from(BRANCHES), source=places)
    def create_a_branch(self, branch: str, source: str) -> None:
        self._become(Change("create", source, branch=branch), self.state.created(branch, source))

    @rule(branch=st.sampled_from(BRANCHES))
    def delete_a_branch(self, branch: str) -> None:
        self._become(Change("delete", "", branch=branch), self.state.deleted(branch))

    @rule()
    def change_the_schema(self) -> None:
        # A schema changes only where there is nothing but main.
        wider = not self.state.wider
        after = replace(self.state, wider=wider) if list(self.state.branches) == ["main"] else None
        self._become(Change("schema", WIDER if wider else SCHEMA), after)

    # --- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def the_graph_is_the_model(self) -> None:
        assert read_state(connect(self.root, read_only=True), self.state.sources) == self.state

    @invariant()
    def no_operation_is_recorded_twice(self) -> None:
        operations = [row.operation_id for row in audit.rows(self.graph.context.store)]
        assert len(operations) == len(set(operations))


RecoveryMachine.TestCase.settings = settings(
    max_examples=14,
    stateful_step_count=16,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestRecoveryMachine = RecoveryMachine.TestCase
