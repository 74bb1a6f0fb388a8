"""Commands, errors, words and links of the documentation are complete and true."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import errors
from omnigraph.cli.exits import exit_code
from omnigraph.cli.main import VERBS, build_application
from omnigraph.wire import error_output

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def _error_classes() -> list[type[errors.GraphError]]:
    members = inspect.getmembers(errors, inspect.isclass)
    return [member for _, member in members if issubclass(member, errors.GraphError)]


def _command_paths() -> Iterator[str]:
    application = build_application(VERBS)
    yield from (str(command.name) for command in application.registered_commands if not command.hidden)
    for group in application.registered_groups:
        assert group.typer_instance is not None
        commands = group.typer_instance.registered_commands
        yield from (f"{group.name} {command.name}" for command in commands if not command.hidden)


def _rows_of_the_error_page() -> dict[str, list[str]]:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|(.*\|.*\|.*\|.*)\|$", text, re.MULTILINE)
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}


def test_every_error_is_documented_and_no_other() -> None:
    assert set(_rows_of_the_error_page()) == {error.__name__ for error in _error_classes()}


@pytest.mark.parametrize("error", _error_classes(), ids=lambda error: error.__name__)
def test_the_documented_exit_code_is_the_real_one(error: type[errors.GraphError]) -> None:
    instance = error.__new__(error)
    assert int(_rows_of_the_error_page()[error.__name__][-1]) == exit_code(instance)


@pytest.mark.parametrize("error", _error_classes(), ids=lambda error: error.__name__)
def test_the_documented_code_is_the_real_one(error: type[errors.GraphError]) -> None:
    cell = _rows_of_the_error_page()[error.__name__][0]
    if error is not errors.GraphError:
        assert f"`{error.default_code}`" in cell


@pytest.mark.parametrize("error", _error_classes(), ids=lambda error: error.__name__)
def test_the_documented_code_with_json_is_the_real_one(error: type[errors.GraphError]) -> None:
    instance = error.__new__(error)
    instance.message = ""
    instance.facts = dict  # type: ignore[method-assign]
    code = error_output(instance).get("code")
    assert _rows_of_the_error_page()[error.__name__][-2] == (f"`{code}`" if code else "–")


def test_every_code_that_the_source_names_is_documented() -> None:
    codes = " ".join(cells[0] for cells in _rows_of_the_error_page().values())
    named = {
        node.value.value
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.keyword) and str(node.arg).endswith("code") and isinstance(node.value, ast.Constant)
    }
    rules = {code for code in named if re.fullmatch(r"T([1-9]|1\d|2[0-4])", str(code))}
    assert rules
    assert [code for code in sorted(named - rules) if f"`{code}`" not in codes] == []


def test_every_command_has_its_section_in_the_guide() -> None:
    guide = (ROOT / "docs" / "guide" / "cli.md").read_text(encoding="utf-8")
    missing = [path for path in _command_paths() if not re.search(rf"^###.*`omnigraph {path}\b", guide, re.MULTILINE)]
    assert missing == []


def test_the_guide_shows_no_command_that_does_not_exist() -> None:
    known = set(_command_paths())
    shown = set()
    for page in PAGES:
        for line in re.findall(r"(?:^|`)omnigraph ([a-z]+(?: [a-z]+)?)", page.read_text("utf-8"), re.MULTILINE):
            first = line.split(" ")[0]
            shown.add(line if line in known else first)
    groups = {path.split(" ")[0] for path in known if " " in path}
    assert sorted(name for name in shown if name not in known and name not in groups) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_glossary_is_in_order() -> None:
    words = re.findall(r"^\| ([a-z, ]+) \|", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)[1:]
    assert words == sorted(words)
    assert {"snapshot", "commit", "intent", "sidecar", "pin", "head", "drift", "effect"} <= set(words)


def test_the_architecture_names_every_layer() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "omnigraph"
    layers = [path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))]
    layers += [
        f"engine/{path.name}" for path in (package / "engine").iterdir() if path.is_dir() and any(path.glob("*.py"))
    ]
    assert [layer for layer in layers if f"`{layer}/`" not in text and layer != "engine"] == []


def test_the_words_that_are_said_otherwise_are_not_said() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8").lower()
        assert not re.search(r"\b(todo|fixme|coming soon)\b", text), page
