"""The tests people write for their policies."""

import pytest

from omnigraph.errors import InputError
from omnigraph.policy import Policy, Rule, Rules
from omnigraph.policy.cases import failures, parse_cases

POLICY = Policy(Rules({"t": ("a",)}, frozenset({"main"}), (Rule("r", "t", ("read",), branch_scope="protected"),)))


def test_each_failed_case_says_what_was_expected() -> None:
    cases = parse_cases(
        """
        version: 1
        cases:
          - {id: reads-main, actor: a, action: read, branch: main, expect: allow}
          - {id: reads-draft, actor: a, action: read, branch: draft, expect: allow}
          - {id: lists, actor: a, action: graph_list, expect: deny}
          - {id: merges, actor: a, action: branch_merge, branch: x, target_branch: main, expect: deny}
          - {id: reads-too-much, actor: a, action: read, branch: main, expect: deny}
        """
    )
    assert failures(POLICY, cases) == [
        "reads-draft: expected Allow but got deny",
        "reads-too-much: expected Deny but got allow",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cases: []", "version must be 1"),
        ("version: 1\ncases: []", "at least one case"),
        ("version: 1\ncase: []", "unknown field 'case'"),
        ("version: 1\ncases: [x]", "case 1 must be key and value pairs"),
        ("version: 1\ncases: [{id: x, actor: a, action: read, expect: maybe}]", "must be allow or deny"),
        ("version: 1\ncases: [{id: x, actor: a, action: reed, expect: allow}]", "unknown action 'reed'"),
        ("version: 1\ncases: [{id: x, actor: a, expect: allow}]", "case 1 has no action"),
        ("version: 1\ncases: [{id: x, actor: 7, action: read, expect: allow}]", "actor of case 1 must be a text"),
        ("version: 1\ncases: [{id: x, who: a, action: read, expect: allow}]", "unknown field 'who'"),
        (
            "version: 1\ncases: [{id: x, actor: a, action: read, expect: allow},"
            " {id: x, actor: a, action: read, expect: deny}]",
            "two cases have the id 'x'",
        ),
    ],
)
def test_a_broken_tests_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_cases(text)
