"""The OpenAPI document is valid, committed, and what the server serves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from openapi_spec_validator import validate
from tests.server.serving import ACTORS, InProcess

from omnigraph.server.access import Access
from omnigraph.server.app import create_app
from omnigraph.server.tokens import Tokens

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"
NAMED = {
    *("BranchMergeOutcome", "ErrorCode", "GraphInfo", "IngestTableOutput", "InvokeStoredQueryResponse", "LoadMode"),
    *("ManifestConflictOutput", "MergeConflictKindOutput", "ParamDescriptor", "ParamKind", "QueryCatalogEntry"),
    *("ReadTargetOutput", "SnapshotTableOutput", "QueryRequest", "ReadRequest", "ChangeRequest", "IngestRequest"),
    *("InvokeStoredQueryRequest", "ExportRequest", "SchemaApplyRequest", "BranchCreateRequest", "BranchMergeRequest"),
    *("HealthOutput", "GraphListResponse", "SnapshotOutput", "ReadOutput", "ChangeOutput", "IngestOutput"),
    *("CommitOutput", "CommitListOutput", "SchemaOutput", "SchemaApplyOutput", "BranchListOutput"),
    *("BranchCreateOutput", "BranchDeleteOutput", "BranchMergeOutput", "QueriesCatalogOutput", "ErrorOutput"),
    *("MergeConflictOutput", "GraphBatchLoadOutput"),
}


def served() -> str:
    """The document of a server with tokens, as it is committed."""
    document = create_app({}, Access(Tokens.of(ACTORS))).openapi()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def test_the_committed_document_is_the_served_one() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == served(), "run: python -m tests.server.test_openapi"


def test_the_document_is_valid_and_names_what_clients_are_generated_from() -> None:
    document = json.loads(served())
    validate(document)
    assert document["openapi"] == "3.1.0"
    assert document["info"]["title"] == "Omnigraph API"
    assert set(document["components"]["schemas"]) >= NAMED
    operations = [one for path in document["paths"].values() for one in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    unprotected = {one["operationId"] for one in operations if "security" not in one}
    assert unprotected == {"health", "ready"}
    deprecated = {one["operationId"] for one in operations if one.get("deprecated")}
    assert deprecated == {"cluster_read", "cluster_change", "cluster_ingest"}
    for path, methods in document["paths"].items():
        if path.startswith("/graphs/{graph_id}"):
            assert all(one["parameters"][0]["name"] == "graph_id" for one in methods.values()), path


def test_an_open_server_asks_for_no_token(open_server: InProcess, token_server: InProcess) -> None:
    open_document = open_server.get("/openapi.json").json()
    assert "securitySchemes" not in open_document["components"]
    assert all("security" not in one for path in open_document["paths"].values() for one in path.values())
    assert json.loads(served()) == token_server.get("/openapi.json").json()


if __name__ == "__main__":
    COMMITTED.write_text(served(), encoding="utf-8")
    sys.stdout.write(f"wrote {COMMITTED}\n")
