"""The server beside the engine it serves, and beside itself with more clients; ratios of one run.

python benchmarks/server.py [--rows 100000] [--seconds 3] [--export-rows 1000000]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil

import omnigraph

SCHEMA = "node Person { name: String @key\n age: I32? }\n"
LOOKUP = "query one($name: String) { match { $p: Person { name: $name } } return { $p.name, $p.age } }"
ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"
NDJSON = {"Content-Type": "application/x-ndjson"}


def start(root: Path) -> tuple[subprocess.Popen[str], str]:
    program = Path(sys.executable).parent / "omnigraph-server"
    words = ["--store", str(root), "--unauthenticated", "--bind", "127.0.0.1:0", "--durability", "full"]
    env = {**os.environ, "OMNIGRAPH_LOAD_BYTES_MAX": str(1 << 30), "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "64"}
    process = subprocess.Popen(
        [str(program), *words, "--log-level", "warning"], stdout=subprocess.PIPE, encoding="utf-8", env=env
    )
    assert process.stdout is not None
    found = re.match(r"OMNIGRAPH_LISTEN_ADDR=(\S+)", process.stdout.readline())
    assert found is not None
    return process, f"http://{found[1]}"


def median_ms(work: Callable[[], object], seconds: float) -> float:
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 5:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def clients(count: int, seconds: float, work: Callable[[httpx.Client, int, int], None]) -> tuple[float, list[float]]:
    """Calls a second of several clients together, and how long each call took in milliseconds."""
    times: list[float] = []
    # Making a client takes some hundredths of a second of the interpreter they share; the clock starts after that.
    ready = threading.Barrier(count + 1)

    def client(number: int) -> None:
        with httpx.Client(timeout=60, verify=False) as http:
            step = 0
            ready.wait()
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                began = time.perf_counter()
                work(http, number, step)
                times.append((time.perf_counter() - began) * 1000)
                step += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    ready.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return len(times) / (time.perf_counter() - began), sorted(times)


def row(name: str, value: str, aim: str = "") -> None:
    print(f"{name:<58} {value:>22}  {aim}", flush=True)


def lookups(root: Path, url: str, seconds: float) -> None:
    with omnigraph.connect(root, read_only=True) as graph, httpx.Client() as http:
        embedded = median_ms(lambda: graph.query(LOOKUP, {"name": "p7"}).to_pylist(), seconds)
        empty = median_ms(lambda: http.get(f"{url}/healthz").read(), seconds)
        body = {"query": LOOKUP, "params": {"name": "p7"}}
        served = median_ms(lambda: http.post(f"{url}/graphs/default/query", json=body).read(), seconds)
    row("point lookup, embedded", f"{embedded:.2f} ms")
    row("empty route", f"{empty:.2f} ms")
    row("point lookup over HTTP", f"{served:.2f} ms")
    row("point lookup over HTTP / (embedded + empty route)", f"{served / (embedded + empty):.2f}")
    row("point lookup over HTTP / empty route", f"{served / empty:.2f}", "aim < 2")


def throughput(url: str, seconds: float) -> None:
    def ask(http: httpx.Client, number: int, step: int) -> None:
        body = {"query": LOOKUP, "params": {"name": f"p{step % 100}"}}
        assert http.post(f"{url}/graphs/default/query", json=body).status_code == 200

    rate, _ = clients(8, seconds, ask)
    row("reads a second, 8 clients", f"{rate:.0f}")
    alone = (0.0, 0.0)
    for count in (1, 8, 32):

        def add(http: httpx.Client, number: int, step: int, count: int = count) -> None:
            body = {"query": ADD, "params": {"name": f"w{count}-{number}-{step}"}}
            answer = http.post(f"{url}/graphs/default/mutate", json=body)
            assert answer.status_code in (200, 409), answer.text

        rate, times = clients(count, seconds, add)
        half, last = times[len(times) // 2], times[int(len(times) * 0.99)]
        alone = (rate, half) if count == 1 else alone
        told = f"{rate:.1f}/s p50 {half:.0f} p99 {last:.0f} ms"
        aim = "aim >= 5x one client, p99 < 10x its p50" if count == 32 else ""
        row(f"small durable writes, {count} clients ({rate / alone[0]:.1f}x one)", told, aim)


def loads(root: Path, other: Path, url: str, rows: int) -> None:
    lines = [json.dumps({"type": "Person", "data": {"name": f"l{at}", "age": at % 90}}) for at in range(rows)]
    data = ("\n".join(lines) + "\n").encode()
    with omnigraph.create(other, SCHEMA, durability="full") as graph:
        began = time.perf_counter()
        graph.load(data, mode="append", engine="local")
        embedded = time.perf_counter() - began
    # This process has loaded before, and what a first load imports is no part of what HTTP costs.
    first = json.dumps({"type": "Person", "data": {"name": "first"}}).encode()
    httpx.post(f"{url}/graphs/default/load/ndjson?mode=append", content=first, headers=NDJSON, timeout=600)
    began = time.perf_counter()
    answer = httpx.post(f"{url}/graphs/default/load/ndjson?mode=append", content=data, headers=NDJSON, timeout=600)
    served = time.perf_counter() - began
    assert answer.status_code == 200, answer.text
    row(f"load of {rows:,} rows, embedded", f"{embedded:.2f} s")
    row(f"load of {rows:,} rows over HTTP / embedded", f"{served / embedded:.2f}", "aim < 1.5")


def export(folder: Path, rows: int) -> None:
    root = folder / "large"
    with omnigraph.create(root, SCHEMA) as graph:
        for start_at in range(0, rows, 250_000):
            part = (
                {"type": "Person", "data": {"name": f"e{at}", "age": 1}}
                for at in range(start_at, min(rows, start_at + 250_000))
            )
            graph.load(part, mode="append", engine="local", durability="fast")
    process, url = start(root)
    try:
        httpx.get(f"{url}/graphs/default/snapshot")
        idle = psutil.Process(process.pid).memory_info().rss
        peak, size = idle, 0
        began = time.perf_counter()
        with httpx.stream("POST", f"{url}/graphs/default/export", json={}, timeout=600) as answer:
            for piece in answer.iter_raw():
                size += len(piece)
                peak = max(peak, psutil.Process(process.pid).memory_info().rss)
        seconds = time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()
    row(f"export of {rows:,} rows over HTTP", f"{seconds:.1f} s, {size / 2**20:.0f} MB")
    row("memory above idle during the export", f"{(peak - idle) / 2**20:.0f} MB", "aim < 200 MB")


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--rows", type=int, default=100_000)
    given.add_argument("--seconds", type=float, default=3.0)
    given.add_argument("--export-rows", type=int, default=1_000_000)
    options = given.parse_args()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name:
        folder = Path(name)
        root = folder / "graph"
        with omnigraph.create(root, SCHEMA) as graph:
            people = [{"type": "Person", "data": {"name": f"p{at}", "age": at % 90}} for at in range(10_000)]
            graph.load(people, engine="local", durability="fast")
        process, url = start(root)
        try:
            lookups(root, url, options.seconds)
            throughput(url, options.seconds)
            loads(root, folder / "embedded", url, options.rows)
        finally:
            process.terminate()
            process.wait()
        if options.export_rows:
            export(folder, options.export_rows)


if __name__ == "__main__":
    main()
