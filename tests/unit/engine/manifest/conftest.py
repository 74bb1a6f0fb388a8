from pathlib import Path

import pytest
from tests.unit.engine.manifest.publishers import SCHEMA, manifest_at

from omnigraph.engine.manifest.publish import Manifest
from omnigraph.graph import create


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "graph"
    create(path, SCHEMA).close()
    return path


@pytest.fixture
def manifest(root: Path) -> Manifest:
    return manifest_at(root)
