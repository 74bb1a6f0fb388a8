"""An intent that appears after maintenance has looked for some is neither overlooked nor built upon."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.crash.writes import MUTATIONS, Optimize

from omnigraph import failpoints
from omnigraph.engine.coordination import mutex
from omnigraph.engine.recovery import audit
from omnigraph.engine.recovery.decide import RecoveryKind
from omnigraph.errors import ConflictError, GraphError, RecoveryRequiredError
from omnigraph.graph import Graph, connect
from omnigraph.testing.crash import Write, baseline, check_recovered, copy_graph, crash_at_failpoint
from omnigraph.testing.failpoints import configured

MULTI = MUTATIONS["insert nodes and an edge"]


@dataclass(frozen=True)
class Impatient:
    """A write that soon goes on without its turn, which here is had by somebody who stands still."""

    write: Write

    def run(self, root: str) -> None:
        mutex.TURN_SECONDS = 0.05
        self.write.run(root)

    def again(self, graph: Graph) -> None:
        self.write.again(graph)


@pytest.mark.parametrize(
    ("dies_at", "counts"),
    [(failpoints.MUTATION_POST_TABLE_COMMIT, False), (failpoints.MUTATION_POST_FINALIZE, True)],
)
def test_optimize_meets_a_writer_that_died_after_it_had_looked(
    dies_at: str, counts: bool, seeded: Path, scratch: Path
) -> None:
    base = baseline(MULTI, seeded, scratch)
    root = copy_graph(seeded, scratch / "graph")
    graph = connect(root)
    failures: list[GraphError] = []

    def run() -> None:
        try:
            Optimize().again(graph)
        except (ConflictError, RecoveryRequiredError) as refused:
            failures.append(refused)

    with configured(f"{failpoints.SIDECAR_WRITE}=1*pause") as plan:
        thread = threading.Thread(target=run)
        thread.start()
        assert plan.wait_until_reached(failpoints.SIDECAR_WRITE)
        assert crash_at_failpoint(Impatient(MULTI), root, f"{dies_at}=exit")
        plan.release(failpoints.SIDECAR_WRITE)
        thread.join(60)
    assert not thread.is_alive()
    check_recovered(root, (base.once if counts else base.before,))
    killed = [row for row in audit.rows(graph.context.store) if row.writer_kind == "Mutation"]
    assert [row.kind for row in killed] == [RecoveryKind.ROLLED_FORWARD if counts else RecoveryKind.ROLLED_BACK]
    Optimize().again(connect(root))
    check_recovered(root, (base.once if counts else base.before,))
