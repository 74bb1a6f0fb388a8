"""Spark Connect: the pipeline works through a server elsewhere, as `SPARK_REMOTE` names it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.amounts import EXHAUSTIVE_FIRST
from tests.conftest import SPARK_SETTINGS
from tests.spark.standalone import end_tree, free_port, spark_environment, spark_program

from omnigraph.errors import ExecutionError
from omnigraph.pipeline import session

START_SECONDS_MAX = 120.0
RUN_SECONDS_MAX = 400.0
CLIENT = Path(__file__).with_name("connect_driver.py")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The server that comes with the distribution, with two cores of this machine."""
    port = free_port()
    words = [str(spark_program("spark-submit")), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    settings = {
        **SPARK_SETTINGS,
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    environment = spark_environment()
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    with open(tmp_path / "server.log", "wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=tmp_path)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (tmp_path / "server.log").read_text()[-2_000:]
                assert time.monotonic() < deadline, "the server did not start in time"
                time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        end_tree(process.pid)
        process.wait(30)


@EXHAUSTIVE_FIRST
def test_everything_works_through_spark_connect(server: str, tmp_path: Path) -> None:
    environment = {**os.environ, "SPARK_REMOTE": server, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, str(CLIENT), str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout)
    assert found["said"] == f"connecting to Spark at {server}"
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["parallelism"] == 2
    assert found["append"] == {"edge:Knows": 1, "node:Person": 2}
    assert found["tasks"] >= 1
    assert found["merge"] == {"node:Person": 2}
    assert found["refused"] == "a.jsonl: record 1 (line 1): edge Knows: dst 'nobody' not found in Person"
    assert found["read"] == ["a", "d"]
    assert found["components"] == 5
    assert found["names"] == ["a", "b", "c", "d", "e", "f", "streamed"]
    assert (found["exported"], found["parquet"], found["same"]) == (8, 8, True)


def test_a_missing_client_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "active_session", lambda: None)
    monkeypatch.setattr(session, "_installed", lambda name: name != "grpc")
    with pytest.raises(ExecutionError, match=r"not installed \(grpc\): pip install 'omnigraph\[spark-connect\]'"):
        session.obtain_session(remote="sc://127.0.0.1:1")
