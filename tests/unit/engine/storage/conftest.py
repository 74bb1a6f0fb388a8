from pathlib import Path

import pytest
from tests.unit.engine.storage.people import PEOPLE, SCHEMA

from omnigraph.engine.storage.handle import TableHandle
from omnigraph.engine.storage.tables import TableStore


@pytest.fixture
def store(tmp_path: Path) -> TableStore:
    return TableStore(str(tmp_path))


@pytest.fixture
def table(store: TableStore) -> TableHandle:
    return store.create(PEOPLE, SCHEMA)
