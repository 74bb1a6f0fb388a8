"""Every decision against a matcher that knows nothing of Cedar."""

from itertools import product
from typing import Any

import cedarpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import InputError
from omnigraph.policy import Decision, Policy, Rule, Rules, cedar

BRANCH = ("read", "export", "change")
TARGET = ("schema_apply", "branch_create", "branch_delete", "branch_merge")
PLAIN = ("invoke_query", "admin", "graph_list")
ACTIONS = (*BRANCH, *TARGET, *PLAIN)


def in_scope(scope: str | None, branch: str | None, protected: frozenset[str]) -> bool:
    if scope in (None, "any"):
        return True
    if branch is None:
        return False
    return (branch in protected) == (scope == "protected")


def allowing(
    rules: Rules, actor: str | None, action: str, branch: str | None, target: str | None, query: str | None
) -> list[str]:
    """The ids of the rules that allow a request, by reading the rules as the guide explains them."""
    return sorted(
        rule.id
        for rule in rules.rules
        if actor in rules.groups[rule.group]
        and action in rule.actions
        and in_scope(rule.branch_scope, branch, rules.protected_branches)
        and in_scope(rule.target_branch_scope, target, rules.protected_branches)
        and (rule.queries is None or query in rule.queries)
    )


def agree(rules: Rules, policy: Policy, *asked: Any) -> Decision:
    expected = allowing(rules, *asked)
    decision = policy.check(*asked)
    assert decision.allowed == bool(expected), asked
    assert decision.matched_rule_id == (expected[0] if expected else None), asked
    return decision


def scopes_of(action: str) -> list[dict[str, str]]:
    key = "branch_scope" if action in BRANCH else "target_branch_scope" if action in TARGET else None
    return [{}] if key is None else [{}, *({key: scope} for scope in ("any", "protected", "unprotected"))]


@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_is_decided_by_scope_and_branch_as_the_table_says(action: str) -> None:
    branches = (None, "main", "release", "draft", "")
    queries = (None, "known", "other") if action == "invoke_query" else (None,)
    seen: set[bool] = set()
    for scope, grants in product(scopes_of(action), ((None, ("known",)) if len(queries) > 1 else (None,))):
        rules = Rules(
            {"team": ("ana",), "others": ("bo",)},
            frozenset({"main", "release"}),
            (Rule("allows", "team", (action,), queries=grants, **scope),),
        )
        policy = Policy(rules)
        for asked in product(ACTIONS, branches, branches, queries, ("ana", "bo", "nobody", None)):
            request = (asked[4], *asked[:4])
            seen.add(agree(rules, policy, *request).allowed)
    assert seen == {True, False}


def test_a_request_without_a_branch_matches_any_and_no_scope_only() -> None:
    for scope, allowed in ((None, True), ("any", True), ("protected", False), ("unprotected", False)):
        rules = Rules({"t": ("a",)}, frozenset({"main"}), (Rule("r", "t", ("read",), branch_scope=scope),))
        assert Policy(rules).check("a", "read").allowed is allowed


def test_the_smallest_of_several_matching_rules_is_reported() -> None:
    made = tuple(Rule(name, "t", ("read", "change")) for name in ("zebra", "b:x", "b", "middle"))
    assert Policy(Rules({"t": ("a",)}, frozenset(), made)).check("a", "change", "x").matched_rule_id == "b"


def test_the_texts_of_a_denial_name_what_was_asked() -> None:
    policy = Policy(Rules({"t": ("act-bo",)}, frozenset(), ()))
    assert policy.check("act-bo", "change", "main").message == (
        "policy denied action 'change' on branch 'main' for actor 'act-bo'"
    )
    assert policy.check("x", "branch_merge", "a", "main").message == (
        "policy denied action 'branch_merge' on branch 'a' to target branch 'main' for actor 'x'"
    )
    assert policy.check(None, "read").message == "policy denied action 'read' without an actor"


def test_an_action_nobody_knows_is_refused() -> None:
    policy = Policy(Rules({"t": ("a",)}, frozenset(), ()))
    with pytest.raises(InputError, match="unknown action 'write'"):
        policy.check("a", "write")
    with pytest.raises(InputError, match="branch must be a text"):
        policy.check("a", "read", 7)  # type: ignore[arg-type]


words = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\:{}\n\0 ;*'), min_size=1, max_size=6
).filter(lambda word: word.strip())
names = st.sampled_from(["main", "draft", "a", 'q" || true', '"); permit(principal, action, resource); //']) | words


@st.composite
def rule_sets(draw: st.DrawFn) -> Rules:
    groups = draw(st.dictionaries(names, st.lists(names, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3))
    rules = []
    for number in range(draw(st.integers(0, 4))):
        family = draw(st.sampled_from((BRANCH, TARGET, ("invoke_query",), ("admin",), ("graph_list",))))
        actions = tuple(draw(st.lists(st.sampled_from(family), min_size=1, max_size=3, unique=True)))
        scope = draw(st.sampled_from((None, "any", "protected", "unprotected")))
        rules.append(
            Rule(
                draw(words) + str(number),
                draw(st.sampled_from(sorted(groups))),
                actions,
                branch_scope=scope if family is BRANCH else None,
                target_branch_scope=scope if family is TARGET else None,
                queries=draw(st.none() | st.lists(names, min_size=1, max_size=2).map(tuple))
                if family == ("invoke_query",)
                else None,
            )
        )
    return Rules(groups, frozenset(draw(st.lists(names, max_size=2))), tuple(rules))


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(rule_sets(), st.data())
def test_nothing_is_allowed_that_no_rule_allows(rules: Rules, data: st.DataObject) -> None:
    policy = Policy(rules)
    assert cedarpy.validate_policies(cedar.policies(rules), cedar.SCHEMA)
    some = names | st.sampled_from(sorted({*rules.actors, *rules.protected_branches} or {"a"}))
    for _ in range(8):
        asked = data.draw(st.tuples(some, st.sampled_from(ACTIONS), *(st.none() | some for _ in range(3))))
        agree(rules, policy, *asked)


def test_entities_and_permits_have_the_names_of_the_model() -> None:
    rules = Rules({"t": ("a",)}, frozenset(), (Rule("r", "t", ("read", "export")), Rule("l", "t", ("graph_list",))))
    text = cedar.policies(rules)
    assert '@id("r:read")' in text
    assert '@id("r:export")' in text
    assert 'resource == Omnigraph::Server::"root"' in text
    assert "forbid" not in text
    assert '{"type": "Omnigraph::Actor", "id": "a"}' in cedar.entities(rules)
