"""Every test of the command line has an operator folder of its own, and addresses nothing by default."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def operator_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "operator"
    home.mkdir()
    monkeypatch.setenv("OMNIGRAPH_HOME", str(home))
    monkeypatch.delenv("OMNIGRAPH_PROFILE", raising=False)
    return home
