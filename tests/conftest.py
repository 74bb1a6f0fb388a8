"""What holds for every test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
    """Run what we assume about Lance first: when that breaks, everything after it is noise."""
    items.sort(key=lambda item: _SUBSTRATE not in item.path.parents)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one Spark session of the test process; nobody else may stop it, because there can be only one."""
    from omnigraph.pipeline.session import obtain_session

    session = obtain_session(master="local[2]", conf=SPARK_SETTINGS)
    yield session
    session.stop()
