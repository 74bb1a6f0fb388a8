"""The program answers at once, and explains every verb."""

import resource
import subprocess
import sys
from collections.abc import Iterable

import pytest
import typer
from tests.cli.program import PROGRAM, call, spawn

from omnigraph.cli import main
from omnigraph.cli.main import VERBS, build_application
from omnigraph.version import STORAGE_FORMAT, __version__

HEAVY = ("lance", "pyspark", "pyarrow", "numpy", "pandas", "lark", "obstore")


def command_paths() -> list[list[str]]:
    application = build_application(VERBS)
    paths = [[str(command.name)] for command in application.registered_commands]
    for group in application.registered_groups:
        assert group.typer_instance is not None
        paths.append([str(group.name)])
        paths += [[str(group.name), str(command.name)] for command in group.typer_instance.registered_commands]
    return paths


def loaded_by(words: list[str], unwanted: tuple[str, ...]) -> str:
    """Which of some modules a command has loaded, in a process of its own."""
    code = (
        "import sys\nfrom omnigraph.cli.main import run\n"
        f"assert run({words!r}) == 0\n"
        f"print([name for name in {unwanted!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()[-1]


def test_the_package_runs_as_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "omnigraph", "branch", "--nope"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "--nope" in done.stderr
    assert spawn("branch", "--nope").err == done.stderr


@pytest.mark.parametrize("words", [["--help"], ["version"], ["--version"], ["load", "--help"]], ids=" ".join)
def test_help_and_version_load_nothing_heavy(words: list[str]) -> None:
    assert loaded_by(words, HEAVY) == "[]"


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, omnigraph; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["query", "--format", "pdf", "-e", "x"], "'pdf'"),
        (["commit", "list", "--limit", "few"], "valid integer"),
        (["query", "--format"], "--format"),
    ],
    ids=" ".join,
)
def test_what_is_no_text_is_still_validated(words: list[str], says: str) -> None:
    outcome = call(*words)
    assert outcome.code == 2
    assert says in outcome.err


def _seconds_of_work(command: list[str]) -> float:
    """The least processor time of a few runs."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, timeout=60, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


@pytest.mark.long
@pytest.mark.parametrize(
    ("word", "library"), [("version", "typer._adapters"), ("--help", "typer._adapters, typer.rich_utils")]
)
def test_the_program_starts_in_a_moment(word: str, library: str) -> None:
    # Beside what loading its parser costs on the same machine at the same time; values are checked by `_adapters`.
    assert _seconds_of_work([str(PROGRAM), word]) < 3 * _seconds_of_work([sys.executable, "-c", f"import {library}"])


@pytest.mark.parametrize("words", command_paths(), ids=" ".join)
def test_every_command_explains_itself(words: list[str]) -> None:
    outcome = call(*words, "--help")
    assert outcome.code == 0
    assert f"Usage: omnigraph {' '.join(words)}" in outcome.out
    assert outcome.err == ""
    short = call(*words, "-h")
    assert short.out == outcome.out


def test_every_command_and_option_has_a_help_text() -> None:
    for words in command_paths():
        for line in call(*words, "--help").out.splitlines():
            cells = line.strip("│* ").split()
            # A line further to the right goes on with the help of the option above it.
            is_first = len(line) - len(line.lstrip("│* ")) < 10
            if is_first and cells and cells[0].startswith("--"):
                assert len([cell for cell in cells if not cell.startswith(("-", "<", "["))]) >= 2, (words, line)


def test_no_words_at_all_show_the_help() -> None:
    assert call().out == call("--help").out
    assert call().code == 0


def test_version_names_the_release_and_the_format() -> None:
    line = f"omnigraph {__version__} (storage format {STORAGE_FORMAT})\n"
    assert call("version").out == line
    assert call("--version").out == line
    assert spawn("-v").out == line
    assert f'"version": "{__version__}"' in call("version", "--json").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["version", "--shiny"], "No such option: --shiny"),
        (["init", "g.omni"], "Missing option '--schema'"),
        (["commit"], "Missing command"),
        (["commit", "list", "a", "b"], "unexpected extra argument"),
        (["--store", "g.omni", "version"], "No such option: --store"),
        (["snapshot", "--as", "ana"], "No such option: --as"),
    ],
)
def test_a_line_that_cannot_be_understood_exits_with_2(words: list[str], says: str) -> None:
    outcome = call(*words)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert says in outcome.err


def test_an_older_spelling_warns_on_standard_error() -> None:
    outcome = call("check", "--help")
    assert outcome.code == 0
    assert outcome.err == "warning: 'check' is deprecated; use 'lint'\n"


def test_the_format_number_is_the_one_the_engine_writes() -> None:
    from omnigraph.engine.manifest.records import INTERNAL_SCHEMA_VERSION

    assert STORAGE_FORMAT == INTERNAL_SCHEMA_VERSION


def test_a_process_makes_the_parser_of_a_verb_once_and_each_line_is_read_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []

    def counted(verbs: Iterable[str]) -> typer.Typer:
        made.append(list(verbs))
        return build_application(verbs)

    monkeypatch.setattr(main, "build_application", counted)
    main.parser_of.cache_clear()
    lines = [["version"], ["version", "--json"], ["version", "--nonsense"], ["version"]]
    first, as_json, refused, again = (call(*words) for words in lines)
    assert (first.code, as_json.code, refused.code) == (0, 0, 2)
    assert as_json.out != first.out
    assert again == first
    assert made == [["version"]]
