"""The site has a page for everything: every file of the documentation, and every public name."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import omnigraph
from omnigraph import errors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
DESCRIBED = sorted(
    name
    for page in (DOCS / "reference").glob("*.md")
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
)


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for target in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(target, list):
                yield from _pages(target)
            else:
                yield target


def _found(path: str) -> Any:
    """What a dotted path names, imported as far as it is a module."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            found = getattr(found, name)
        return found
    raise LookupError(path)


def test_every_page_is_in_the_navigation() -> None:
    listed = set(_pages(SITE["nav"]))
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.parent.name != "decisions"}
    assert pages | {"index.md", "CONTRIBUTING.md", "CHANGELOG.md", "decisions"} == listed


@pytest.mark.parametrize("name", DESCRIBED)
def test_the_reference_describes_what_is_there(name: str) -> None:
    assert _found(name) is not None


def test_every_public_name_is_in_the_reference() -> None:
    described = [_found(name) for name in DESCRIBED]
    assert errors in described
    public = {name: getattr(omnigraph, name) for name in omnigraph.__all__ if name != "__version__"}
    missing = [
        name
        for name, value in public.items()
        if not any(value is each for each in described) and getattr(errors, name, None) is not value
    ]
    assert missing == []


def test_the_site_fetches_nothing() -> None:
    assert SITE["theme"]["font"] is False
    assert "extra_javascript" not in SITE
    assert not [sheet for sheet in SITE["extra_css"] if "://" in sheet]


def test_a_warning_of_the_build_is_an_error() -> None:
    assert SITE["strict"] is True
    assert {kind for checks in SITE["validation"].values() for kind in checks.values()} == {"warn"}
