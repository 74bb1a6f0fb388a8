"""What holds for every test."""

from pathlib import Path

import pytest

_SUBSTRATE = Path(__file__).parent / "substrate"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what we assume about Lance first: when that breaks, everything after it is noise."""
    items.sort(key=lambda item: _SUBSTRATE not in item.path.parents)
