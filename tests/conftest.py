"""What holds for every test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.crash.summary import counted, random_kills, table

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what we assume about Lance first: when that breaks, everything after it is noise.

    With several test processes, one has the Spark session and starts with it, and long tests come before short ones,
    so that all processes end at about the same time.
    """
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, bool, bool]:
    return (
        _SUBSTRATE not in item.path.parents,
        item.get_closest_marker("spark") is None,
        item.get_closest_marker("long") is None,
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many crash cases there were."""
    reports = [report for found in terminalreporter.stats.values() for report in found if is_report(report)]
    lines = [*table(counted(reports)), *random_kills(reports)]
    if lines:
        terminalreporter.section("crash cases")
        for line in lines:
            terminalreporter.line(line)


def is_report(found: object) -> bool:
    """True for what a test left, as opposed to a warning."""
    return hasattr(found, "user_properties") and hasattr(found, "when")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session of the test process; nobody else may stop it, because there can be only one."""
    from omnigraph.pipeline.session import obtain_session

    session = obtain_session(master="local[2]", conf=SPARK_SETTINGS)
    yield session
    session.stop()
