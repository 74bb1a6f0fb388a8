"""What holds for every test."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.crash.summary import counted, interrupts, random_kills, table

_SUBSTRATE = Path(__file__).parent / "substrate"

# Tiny inputs: planning and compiling would cost more than running, and both ways give the same rows.
SPARK_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

SPARK_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4 << 30
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES:
    # Thousands of small graphs are made and thrown away, and a disk would take longer over it than the engine. What is
    # said of durability is said by counting the calls, and what is large asks for `disk_path`.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# A virtual machine of the tests lives for a minute: compiling well what runs a few times, and collecting garbage with a
# thread per core, is half of all it would do. Measured for loads, the same answers took 22 s of processor and not 43.
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, SPARK_JAVA_OPTIONS)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A job in the background of a shell ignores interrupts, and so would every process that a test starts to interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How quickly a busy machine draws its examples says nothing about the code under test.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long the longest test runs."""
    parser.addoption(
        "--programs", type=int, default=2, help="long programs that the differential machine runs (default: 2)"
    )
    parser.addoption("--thorough", action="store_true", help="every case of loops that otherwise take a choice of them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per long program."""
    if "program" in metafunc.fixturenames:
        metafunc.parametrize("program", range(metafunc.config.getoption("--programs")))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what we assume about Lance first: when that breaks, everything after it is noise.

    With several test processes one begins with what shares a Spark session, which takes long to start and to get
    going, and long tests come before short ones, so that all end at about the same time.
    """
    items.sort(key=_turn)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Leave what there is to nobody's search for garbage.

    Tests are made of some hundred thousand objects, and their reports of more. Whoever closes the last graph of a
    process, or plays one that knows nothing, searches for garbage, and would look through all of them each time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def swept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Search for garbage after a long test: graphs that nobody closed hold memory that Python does not count."""
    yield
    if _is_long(request.node):
        gc.collect()


def _is_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ("long", "exhaustive"))


def _is_first(item: pytest.Item) -> bool:
    return any("first" in marker.args for marker in item.iter_markers("exhaustive"))


def _turn(item: pytest.Item) -> tuple[bool, bool, bool, bool]:
    return (
        _SUBSTRATE not in item.path.parents,
        not _is_first(item),
        item.get_closest_marker("spark") is None,
        not _is_long(item),
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many crash cases there were."""
    reports = [report for found in terminalreporter.stats.values() for report in found if is_report(report)]
    lines = [*table(counted(reports)), *random_kills(reports), *interrupts(reports)]
    if lines:
        terminalreporter.section("crash cases")
        for line in lines:
            terminalreporter.line(line)


def is_report(found: object) -> bool:
    """True for what a test left, as opposed to a warning."""
    return hasattr(found, "user_properties") and hasattr(found, "when")


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """True when somebody has hours, and wants every case of the longest loops."""
    return bool(request.config.getoption("--thorough"))


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """An empty folder on a disk, for what would fill the memory."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-test-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session of the test process; nobody else may stop it, because there can be only one."""
    from omnigraph.pipeline.session import obtain_session

    with pytest.MonkeyPatch.context() as patch:
        places = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(places))
        warm = {"spark.python.daemon.module": "tests.spark.warm_daemon"}
        session = obtain_session(master="local[2]", conf={**SPARK_SETTINGS, **warm})
    yield session
    session.stop()
