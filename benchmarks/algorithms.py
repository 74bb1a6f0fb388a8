"""`graph.algorithms` beside scipy, igraph and NetworkX on the same edges: time and memory.

    python -m benchmarks.algorithms                  # 1,000,000 edges between 100,000 nodes, some much better known
    python -m benchmarks.algorithms --edges 100000   # fewer

Every system is a process of its own, which has the edges in memory in the form it likes best before anything is timed:
omnigraph has the graph open and was asked once, scipy has two arrays of numbers, igraph and NetworkX their graphs. A
figure is the best of three runs: seconds on the clock, seconds of the processor (what counts on a machine that is busy
with other things), and by how much the process grew at most meanwhile. omnigraph answers with Arrow tables of types and
ids, the others with what they have.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

SCHEMA = "node Person { number: I64 @key }\nedge Knows: Person -> Person\n"
RESULTS = Path(__file__).parent / "results" / "algorithms.json"
ROUNDS = 20
RUNS = 3
SYSTEMS = ("omnigraph", "scipy", "igraph", "networkx")
Questions = Mapping[str, Callable[[], Any]]


def ends(nodes: int, edges: int) -> tuple[Any, Any]:
    """Random edges; some nodes are met far more often than others, whatever their number."""
    rng = np.random.default_rng(7)
    known = rng.permutation(nodes)
    return rng.integers(0, nodes, edges), known[(nodes * rng.random(edges) ** 2).astype(np.int64)]


def omnigraph_asks(root: Path) -> Questions:
    import omnigraph

    here = omnigraph.connect(root).algorithms
    return {
        "degrees": here.degrees,
        "pagerank": lambda: here.pagerank(rounds=ROUNDS),
        "components": here.connected_components,
        "shortest paths": lambda: here.shortest_paths(["0"]),
        "triangles": here.triangle_counts,
    }


def scipy_asks(nodes: int, sources: Any, targets: Any) -> Questions:
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components, dijkstra

    def matrix(values: Any, rows: Any, columns: Any) -> Any:
        return csr_matrix((values, (rows, columns)), shape=(nodes, nodes))

    def pagerank() -> Any:
        out = np.bincount(sources, minlength=nodes)
        moves = matrix(1.0 / out[sources], targets, sources)
        ranks = np.full(nodes, 1.0 / nodes)
        for _ in range(ROUNDS):
            ranks = 0.15 / nodes + 0.85 * (moves @ ranks + ranks[out == 0].sum() / nodes)
        return ranks

    def triangles() -> Any:
        low, high = np.minimum(sources, targets), np.maximum(sources, targets)
        pairs = np.unique(np.stack([low, high], axis=1)[low != high], axis=0)
        ones = np.ones(len(pairs), dtype=np.int64)
        one_way = matrix(ones, pairs[:, 0], pairs[:, 1])
        across = (one_way @ one_way).multiply(one_way)
        beside = (one_way.T @ one_way).multiply(one_way)
        return across.sum(axis=1).ravel() + across.sum(axis=0).ravel() + beside.sum(axis=1).ravel()

    whole = np.ones(len(sources))
    return {
        "degrees": lambda: (np.bincount(sources, minlength=nodes), np.bincount(targets, minlength=nodes)),
        "pagerank": pagerank,
        "components": lambda: connected_components(matrix(whole, sources, targets), directed=False),
        "shortest paths": lambda: dijkstra(matrix(whole, sources, targets), unweighted=True, indices=0),
        "triangles": triangles,
    }


def igraph_asks(nodes: int, sources: Any, targets: Any) -> Questions:
    import igraph

    graph = igraph.Graph(n=nodes, edges=np.stack([sources, targets], axis=1).tolist(), directed=True)
    plain = graph.as_undirected()
    plain.simplify()
    return {
        "degrees": lambda: (graph.outdegree(), graph.indegree()),
        "pagerank": graph.pagerank,
        "components": lambda: graph.connected_components(mode="weak").membership,
        "shortest paths": lambda: graph.distances(source=0),
        "triangles": lambda: plain.list_triangles(),
    }


def networkx_asks(nodes: int, sources: Any, targets: Any) -> Questions:
    import networkx

    graph = networkx.DiGraph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(zip(sources.tolist(), targets.tolist(), strict=True))
    plain = networkx.Graph(graph)
    plain.remove_edges_from(list(networkx.selfloop_edges(plain)))
    return {
        "degrees": lambda: (dict(graph.out_degree()), dict(graph.in_degree())),
        "pagerank": lambda: networkx.pagerank(graph),
        "components": lambda: list(networkx.weakly_connected_components(graph)),
        "shortest paths": lambda: networkx.single_source_shortest_path_length(graph, 0),
        "triangles": lambda: networkx.triangles(plain),
    }


def memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def measure(asks: Questions, warm: int) -> dict[str, dict[str, float]]:
    found = {}
    for name, ask in asks.items():
        for _ in range(warm):
            ask()
        Path("/proc/self/clear_refs").write_text("5")
        before, runs = memory("VmRSS"), []
        for _ in range(RUNS):
            clock, processor = time.perf_counter(), time.process_time()
            ask()
            runs.append((time.perf_counter() - clock, time.process_time() - processor))
            if runs[0][0] > 20:
                break
        found[name] = {
            "seconds": min(run[0] for run in runs),
            "processor_seconds": min(run[1] for run in runs),
            "grown_mb": memory("VmHWM") - before,
        }
    return found


def ask_one(system: str, root: Path, nodes: int, edges: int) -> dict[str, Any]:
    """What a system says of itself, in this process."""
    if system == "omnigraph":
        asks = omnigraph_asks(root)
    else:
        begin = {"scipy": scipy_asks, "igraph": igraph_asks, "networkx": networkx_asks}[system]
        asks = begin(nodes, *ends(nodes, edges))
    held = memory("VmRSS")
    return {"figures": measure(asks, warm=int(system == "omnigraph")), "held_mb": held}


def make(root: Path, nodes: int, edges: int) -> None:
    import omnigraph

    sources, targets = ends(nodes, edges)
    with omnigraph.create(root, schema=SCHEMA) as graph:
        graph.load({"Person": pa.table({"number": np.arange(nodes)})})
        graph.load({"Knows": pa.table({"from": sources, "to": targets})})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--ask", help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ask:
        print(json.dumps(ask_one(given.ask, given.root, given.nodes, given.edges)))
        return
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "g.omni"
        make(root, given.nodes, given.edges)
        size = ["--nodes", str(given.nodes), "--edges", str(given.edges), "--root", str(root)]
        for system in given.systems.split(","):
            words = [sys.executable, "-m", "benchmarks.algorithms", "--ask", system, *size]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            found[system] = json.loads(done.stdout.splitlines()[-1])
            print(f"{system}: holds {found[system]['held_mb']:,.0f} MB before it is asked")
            for name, figures in found[system]["figures"].items():
                print(f"  {name:<16}" + "".join(f" {key} {value:>9,.3f}" for key, value in figures.items()), flush=True)
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text(json.dumps({"edges": given.edges, "nodes": given.nodes, **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
