"""The tests people write for their own policy: who asks what, and what the answer must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from omnigraph.errors import InputError
from omnigraph.policy.evaluate import Policy
from omnigraph.policy.rules import ACTIONS, VERSION, load_yaml

_FIELDS = ("id", "actor", "action", "branch", "target_branch", "query", "expect")
_REQUIRED = ("id", "actor", "action", "expect")
_EXPECTED = {"allow": True, "deny": False}


class Case(Struct, frozen=True):
    """One request and the answer that is expected."""

    id: str
    actor: str
    action: str
    expect: str
    branch: str | None = None
    target_branch: str | None = None
    query: str | None = None


def parse_cases(text: str, *, origin: str = "policy tests") -> tuple[Case, ...]:
    """Check the text of a tests file.

    Raises:
        InputError: it is not YAML, or a case is not valid.
    """
    document = load_yaml(text, origin)
    if not isinstance(document, dict) or type(document.get("version")) is not int or document["version"] != VERSION:
        raise InputError(f"{origin}: version must be {VERSION}", code="policy")
    unknown = next((key for key in document if key not in ("version", "cases")), None)
    if unknown is not None:
        raise InputError(f"{origin}: the document has the unknown field '{unknown}' (fields: version, cases)")
    listed = document.get("cases")
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{origin}: cases must be a list with at least one case", code="policy")
    cases = tuple(_case(item, number, origin) for number, item in enumerate(listed, start=1))
    names = [case.id for case in cases]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{origin}: two cases have the id '{twice}': give each its own", code="policy")
    return cases


def _case(value: Any, number: int, origin: str) -> Case:
    if not isinstance(value, dict):
        raise InputError(f"{origin}: case {number} must be key and value pairs", code="policy")
    for key, found in value.items():
        if key not in _FIELDS:
            raise InputError(f"{origin}: case {number} has the unknown field '{key}' (fields: {', '.join(_FIELDS)})")
        if found is not None and (not isinstance(found, str) or not found.strip()):
            raise InputError(f"{origin}: {key} of case {number} must be a text: put it in quotes", code="policy")
    for key in _REQUIRED:
        if value.get(key) is None:
            raise InputError(f"{origin}: case {number} has no {key}", code="policy")
    if value["expect"] not in _EXPECTED:
        raise InputError(f"{origin}: expect of case {number} must be allow or deny", code="policy")
    if value["action"] not in ACTIONS:
        raise InputError(f"{origin}: case {number} has the unknown action '{value['action']}'", code="policy")
    return Case(**value)


def failures(policy: Policy, cases: Sequence[Case]) -> list[str]:
    """A line for each case whose answer is not the expected one."""
    found = []
    for case in cases:
        decision = policy.check(case.actor, case.action, case.branch, case.target_branch, case.query)
        if decision.allowed != _EXPECTED[case.expect]:
            answer = "allow" if decision.allowed else "deny"
            found.append(f"{case.id}: expected {case.expect.capitalize()} but got {answer}")
    return found
