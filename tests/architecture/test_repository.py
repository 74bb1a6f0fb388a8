"""The repository holds what a stranger needs, and pins what was tested."""

import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


APART = ("bench", "docs")
"""Extras that the tests do without, each installed by the target of its name."""


def declared(*, apart: bool) -> list[str]:
    """The names of what is needed to run and develop, or of what only benchmarks and documentation need."""
    extras = PROJECT["project"]["optional-dependencies"]
    lists = [texts for name, texts in extras.items() if (name in APART) == apart]
    lists += [] if apart else [PROJECT["project"]["dependencies"]]
    return sorted({normal(re.match(r"[\w.-]+", text).group()) for texts in lists for text in texts})  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "Makefile", ".ci/run"])
def test_the_files_a_stranger_looks_for_are_there(name: str) -> None:
    assert (ROOT / name).stat().st_size > 0


@pytest.mark.parametrize("target", ["help", "quickstart", "test", "check", "docs", "bench", "clean"])
def test_make_has_the_target_and_explains_it(target: str) -> None:
    listing = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert re.search(rf"^  make {target} +\S", listing.stdout, re.MULTILINE)


def test_ci_checks_builds_the_documentation_and_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert re.findall(r"^make (\w+)$", script, re.MULTILINE) == ["check", "docs", "test"]


def test_constraints_are_exact_versions_and_nothing_else() -> None:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line), line
        assert "://" not in line


@pytest.mark.parametrize("name", declared(apart=False))
def test_every_dependency_is_pinned_to_the_version_the_tests_run_with(name: str) -> None:
    pins = {normal(pinned): version for pinned, version in PINS.items()}
    assert pins[name] == metadata.version(name)


def test_what_benchmarks_and_documentation_need_is_pinned_too() -> None:
    assert set(declared(apart=True)) <= {normal(pinned) for pinned in PINS}


def test_the_package_is_typed_and_licensed() -> None:
    project = PROJECT["project"]
    assert project["name"] == "omnigraph"
    assert project["license"] == "MIT"
    assert project["requires-python"] == ">=3.11"
    assert (ROOT / "src" / "omnigraph" / "py.typed").exists()


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/omnigraph/version.py"


def test_the_changelog_opens_with_what_is_not_released() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
