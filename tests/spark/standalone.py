"""A standalone Spark cluster of real processes on loopback: a master and workers, each on a host name of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

START_SECONDS_MAX = 90.0


@dataclass(frozen=True)
class Cluster:
    """A running cluster: its address, and the workers' processes."""

    master: str
    workers: Sequence[subprocess.Popen[bytes]]

    def executors(self) -> list[psutil.Process]:
        """The executors that are alive."""
        return [
            process
            for worker in self.workers
            if worker.poll() is None
            for process in psutil.Process(worker.pid).children(recursive=True)
            if _runs(process, "CoarseGrainedExecutorBackend")
        ]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 2, memory: str = "1g") -> Iterator[Cluster]:
    """Start a master and workers of one core each; all of them are gone afterwards."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        words = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
        started.append(_start(folder, "master", "org.apache.spark.deploy.master.Master", words))
        _wait_until_open(port, started[0])
        for number in range(workers):
            # A speculative copy of a task only ever runs on another host, and all of 127/8 is this one.
            words = ["--host", f"127.0.0.{number + 1}", "--port", "0", "--webui-port", str(free_port())]
            words += ["--cores", "1", "--memory", memory, "--work-dir", str(folder / f"work-{number}"), master]
            started.append(_start(folder, f"worker-{number}", "org.apache.spark.deploy.worker.Worker", words))
        yield Cluster(master, started[1:])
    finally:
        for process in reversed(started):
            end_tree(process.pid)
            process.wait(30)


def end_tree(pid: int) -> None:
    """Kill a process that a test started, and everything below it."""
    try:
        root = psutil.Process(pid)
        family = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def spark_program(name: str) -> Path:
    """A program of the distribution from the package index."""
    import pyspark

    return Path(pyspark.__file__).parent / "bin" / name


def spark_environment() -> dict[str, str]:
    """What the distribution's programs need to find Java, this Python and this project."""
    from omnigraph.pipeline.java import find_java, prepare_environment

    folder = Path(__file__).parents[2]
    environment = {**os.environ, "SPARK_HOME": str(spark_program("").parent)}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder / "src"), str(folder)])
    environment["PYSPARK_PYTHON"] = sys.executable
    prepare_environment(find_java(), environment)
    environment.pop("SPARK_LOCAL_IP", None)
    environment.pop("SPARK_REMOTE", None)
    return environment


def _start(folder: Path, name: str, kind: str, words: Sequence[str]) -> subprocess.Popen[bytes]:
    program = [str(spark_program("spark-class")), kind, *words]
    with open(folder / f"{name}.log", "wb") as log:
        return subprocess.Popen(
            program, stdout=log, stderr=subprocess.STDOUT, env={**spark_environment(), "SPARK_DAEMON_MEMORY": "256m"}
        )


def _wait_until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _runs(process: psutil.Process, word: str) -> bool:
    try:
        return any(word in part for part in process.cmdline())
    except psutil.Error:
        return False
