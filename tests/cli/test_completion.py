"""The shell completes verbs and what stands below them."""

import pytest
from tests.cli.program import spawn


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("omnigraph bra", ["branch"]), ("omnigraph branch me", ["merge"]), ("omnigraph optimize --st", ["--store"])],
)
def test_the_shell_completes_what_was_begun(typed: str, offered: list[str]) -> None:
    settings = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    outcome = spawn(env={"_OMNIGRAPH_COMPLETE": "complete_bash", **settings})
    assert outcome.code == 0
    assert outcome.out.split() == offered
    assert outcome.err == ""


def test_the_script_for_a_shell_calls_the_program() -> None:
    outcome = spawn(env={"_OMNIGRAPH_COMPLETE": "source_bash"})
    assert outcome.code == 0
    assert "_OMNIGRAPH_COMPLETE=complete_bash" in outcome.out
