"""An error that travels over HTTP is raised again as what it was."""

import copy
import inspect
import json
import pickle
from typing import Any

import pytest

from omnigraph import errors
from omnigraph.errors import GraphError, SourceSpan
from omnigraph.wire import error_output
from omnigraph.wire_errors import CLASSES, error_from, served_error

SPAN = SourceSpan(3, 8, 1, 4)
SPECIAL: dict[str, dict[str, Any]] = {
    "ExpectedVersionMismatchError": {"table_key": "node:Person", "expected": 9, "actual": 11},
    "ReadSetChangedError": {"member": "head", "expected": "a", "actual": "b"},
    "PreconditionFailedError": {"expected": "a", "actual": None},
    "KeyConflictError": {"table_key": "edge:Knows", "entity_id": "x", "detail": "record 4"},
    "MergeConflictError": {"message": "m", "conflicts": [{"table_key": "node:P", "row_id": "1", "kind": "k"}]},
    "LimitError": {"message": "m", "resource": "rows", "limit": 5, "actual": 9},
    "RecoveryRequiredError": {"message": "m", "operation_id": "01X"},
    "VersionReclaimedError": {"message": "m", "table_key": "node:P", "version": 4},
    "ChangeCursorError": {"reason": "it is of another branch"},
    "ChangeFeedGapError": {"message": "m", "first_unreadable_commit_id": "01X", "cursor": "c"},
    "MergeBaseError": {"message": "m", "commit_id": "01X", "table_key": "node:P", "version": 4},
    "ChangesUnavailableError": {"message": "m", "reason": "schema_boundary", "graph_commit_id": "01X"},
    "ExternalBlobError": {"message": "m", "uri": "s3://depot/a", "reason": "not_found"},
    "ConstraintError": {"message": "m", "violations": ["one", "two"]},
    "ParseError": {"message": "m", "span": SPAN},
    "TypeCheckError": {"message": "m", "span": SPAN, "code": "T7"},
}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_class_code_message_and_facts_survive_the_way(name: str) -> None:
    kind = CLASSES[name]
    wanted = SPECIAL.get(name) or {"message": "what happened ü"}
    error = kind(**wanted)
    found = error_from(400, json.loads(json.dumps(served_error(error))))
    assert type(found) is kind
    assert (found.message, found.code, found.facts()) == (error.message, error.code, error.facts())
    assert str(found) == str(error)
    named = inspect.signature(kind.__init__).parameters.keys() - {"self", "message", "code", "detail", "kwargs", "args"}
    for attribute in named - {"kind", "key"}:
        assert getattr(found, attribute) == getattr(error, attribute), attribute


@pytest.mark.parametrize("name", sorted(CLASSES))
@pytest.mark.parametrize(
    "carried", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"]
)
def test_an_error_that_another_process_raised_is_what_it_was(name: str, carried: Any) -> None:
    error = CLASSES[name](**SPECIAL.get(name) or {"message": "what happened"})
    found = carried(error)
    assert type(found) is type(error)
    assert (str(found), vars(found), found.facts()) == (str(error), vars(error), error.facts())


@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_facts_alone_tell_the_class_to_a_client_of_another_server(name: str) -> None:
    error = CLASSES[name](**SPECIAL[name])
    facts = error.facts()
    if not facts:
        return
    found = error_from(409, error_output(error))
    assert type(found) is type(error)
    assert found.facts() == facts


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, errors.InputError, "bad_request"),
        (401, errors.PolicyError, "unauthorized"),
        (403, errors.PolicyError, "forbidden"),
        (404, errors.NotFoundError, "not_found"),
        (409, errors.ConflictError, "conflict"),
        (415, errors.InputError, "bad_request"),
        (429, errors.UnavailableError, "unavailable"),
        (503, errors.UnavailableError, "unavailable"),
        (500, errors.InternalError, "internal"),
    ],
)
def test_a_bare_status_is_enough(status: int, kind: type[GraphError], code: str) -> None:
    found = error_from(status, {})
    assert type(found) is kind
    assert found.code == code
    assert str(status) in found.message


@pytest.mark.parametrize("body", [{"error_type": "Exception"}, {"error_type": ["x"], "error": 5}, {"diagnostic": 3}])
def test_an_odd_body_is_an_error_all_the_same(body: dict[str, Any]) -> None:
    assert isinstance(error_from(500, body), errors.InternalError)
