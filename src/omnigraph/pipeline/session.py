"""Where a Spark session comes from.

A session the user made always wins; a Spark Connect address (`SPARK_REMOTE`) and a master or settings given by name
come next; otherwise a local session is started with settings that suit one machine. Starting a session takes seconds,
so whoever asked is told before and after through `notify`.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from omnigraph.engine.ingest.memory import machine_memory_mb
from omnigraph.errors import ExecutionError
from omnigraph.pipeline.java import find_java, prepare_environment
from omnigraph.pipeline.watching import is_remote
from omnigraph.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Notify = Callable[[str], None]

DRIVER_SHARE = 0.35
DRIVER_LEAST_MB, DRIVER_MOST_MB = 1024, 32 * 1024
RECORDS_PER_BATCH = 65_536

# Failed tasks come back as exceptions with their reason, so the log repeats nothing but what ends the JVM.
_LOGGING = """rootLogger.level = fatal
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def obtain_session(
    session: SparkSession | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    remote: str | None = None,
    notify: Notify | None = None,
) -> SparkSession:
    """The session to work with: the one given, the active one, or a new one by address, master or local defaults.

    Raises:
        ExecutionError: Spark is not installed, there is no Java for it, or it did not start.
    """
    if session is not None:
        return session
    if importlib.util.find_spec("pyspark") is None:
        raise ExecutionError(
            "this needs Spark, which is not installed: pip install 'omnigraph[spark]', or use engine=\"local\"",
            code="spark_missing",
        )
    active = active_session()
    if active is not None and master is None and not conf:
        return active
    remote = remote or (None if master else os.environ.get("SPARK_REMOTE"))
    return _start(remote, master, dict(conf or {}), notify or _silent)


def active_session() -> SparkSession | None:
    """The session that is running in this process."""
    from pyspark.sql import SparkSession as Session

    found: SparkSession | None = Session.getActiveSession()
    return found


def _start(remote: str | None, master: str | None, conf: dict[str, str], notify: Notify) -> SparkSession:
    """Start a session and say so; a failure becomes one sentence."""
    from pyspark.sql import SparkSession as Session

    began = time.perf_counter()
    builder: Any = Session.builder
    if remote:
        _require_connect()
        notify(f"connecting to Spark at {remote}")
        builder = builder.remote(remote)
        settings = {"spark.sql.session.timeZone": "UTC", **conf}
    else:
        runtime = find_java()
        prepare_environment(runtime)
        where = master or conf.get("spark.master") or "local[*]"
        notify(f"starting Spark on {where} with {runtime}")
        settings = {**_common_settings(), **(_local_settings() if where.startswith("local") else {}), **conf}
        settings["spark.master"] = where
        builder = builder.appName("omnigraph")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with warnings.catch_warnings():
            # The JVM is started by fork and exec, which Lance warns about although nothing of it survives the exec.
            warnings.filterwarnings("ignore", message="lance is not fork-safe")
            session: SparkSession = builder.getOrCreate()
    except Exception as exc:  # Py4J, gRPC and the launcher each raise classes of their own.
        raise ExecutionError(f"Spark did not start: {_first_line(exc)}", code="spark_start") from exc
    notify(f"Spark {session.version} is ready after {time.perf_counter() - began:.1f} s")
    return session


def _require_connect() -> None:
    missing = [name for name in ("grpc", "grpc_status", "google.rpc", "zstandard") if not _installed(name)]
    if missing:
        raise ExecutionError(
            f"Spark Connect needs packages that are not installed ({', '.join(missing)}): pip install"
            " 'omnigraph[spark-connect]', or unset SPARK_REMOTE",
            code="spark_missing",
        )


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _common_settings() -> dict[str, str]:
    """What every session of ours needs to give right answers and move Arrow batches well."""
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(RECORDS_PER_BATCH),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
    }


def _local_settings() -> dict[str, str]:
    """What suits one machine: its cores and memory, no web page, no traffic off the loopback, nothing left behind."""
    cores = os.cpu_count() or 2
    scratch = Scratch("spark")
    atexit.register(scratch.remove)  # A JVM lives as long as its process.
    folder = str(scratch.path)
    return {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": f"{driver_memory_mb(machine_memory_mb())}m",
        "spark.sql.shuffle.partitions": str(max(4, 2 * cores)),
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": os.path.join(folder, "warehouse"),
        # Quoted, since temporary folders may have spaces; the JVM's own files go where ours are removed.
        "spark.driver.extraJavaOptions": (
            f'"-Dlog4j2.configurationFile={_quiet_logging(folder)}" "-Djava.io.tmpdir={folder}"'
        ),
    }


def _quiet_logging(folder: str) -> str:
    """A logging set-up that lets errors through and keeps start-up chatter off the user's terminal."""
    path = os.path.join(folder, "log4j2.properties")
    with open(path, "w", encoding="ascii") as file:
        file.write(_LOGGING)
    return path


def driver_memory_mb(machine_mb: int) -> int:
    """The heap for a local driver: a share of the machine, since Python workers and Lance live outside it.

    >>> driver_memory_mb(24_000), driver_memory_mb(1_000)
    (8400, 1024)
    """
    return max(DRIVER_LEAST_MB, min(DRIVER_MOST_MB, int(machine_mb * DRIVER_SHARE)))


def parallelism(session: SparkSession) -> int:
    """How many tasks run at once, as far as the session tells."""
    if not is_remote(session):
        return max(1, int(session.sparkContext.defaultParallelism))
    from pyspark.sql import functions as F

    # A server shows what it can do only by doing it: a range is cut into as many parts as fit at once.
    parts = session.range(0, 1_000).select(F.spark_partition_id().alias("part")).agg(F.max("part")).collect()
    return int(parts[0][0]) + 1


def _silent(_: str) -> None:
    """Notify nobody."""


def _first_line(exc: BaseException) -> str:
    lines = str(exc).strip().splitlines()
    return lines[0] if lines else type(exc).__name__
