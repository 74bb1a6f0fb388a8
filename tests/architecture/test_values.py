"""Values are `msgspec.Struct`s, which are quick to define and to make; dataclasses are what users are given.

Users may call `dataclasses.asdict`, `replace` and `fields` on what a verb returns or takes, and on its parts.
"""

import ast
import re
from importlib import import_module
from pathlib import Path

from msgspec import Struct
from tests.architecture.modules import Module, modules

GIVEN = {
    "catalog.steps": {"MigrationPlan"},
    "change_verbs": {"Baseline"},
    "client.decode": {"RemoteDiff", "RemotePlan", "RemoteSnapshot", "RemoteStep", "TypeCounts"},
    "drawing.picture": {"Drawing"},
    "engine.changes.diff": {"Diff"},
    "engine.changes.images": {"Change", "Image"},
    "engine.embedding": {"EmbeddingConfig"},
    "engine.ingest.progress": {"Progress"},
    "engine.manifest.records": {"CommitRecord", "CommitWrite"},
    "engine.manifest.snapshot": {"Snapshot"},
    "engine.manifest.tags": {"Tag"},
    "engine.operations.blobs": {"BlobInfo"},
    "engine.operations.branch": {"BranchInfo"},
    "engine.operations.cleanup": {"CleanupPlan", "CleanupReport", "PlannedCleanup", "TableCleanup"},
    "engine.operations.feed": {"Cause", "ChangeBlock", "ChangePage", "CommitChanges"},
    "engine.operations.merge.conflicts": {"MergeConflict"},
    "engine.operations.merge.outcome": {"MergePlan", "MergeResult", "TypeMerge"},
    "engine.operations.merge.progress": {"MergeProgress"},
    "engine.operations.migrate": {"SchemaApplyResult"},
    "engine.operations.optimize": {"OptimizeReport", "PendingIndex", "TableReport"},
    "engine.operations.outcomes": {"LoadResult", "MutationResult", "TouchedIds"},
    "engine.operations.repair": {"RepairReport", "TableRepair"},
    "engine.operations.verify_report": {"Finding", "VerifyReport"},
    "engine.read.context": {"ReadOptions"},
    "errors": {"SourceSpan"},
    "plan.explain": {"Explanation"},
    "plan.lint": {"Finding", "LintReport", "QueryResult"},
    "policy.evaluate": {"Decision"},
}
OF_SPARK = {"pipeline.sink": {"StagedPart"}}
"""Spark's own class, which these extend, is a dataclass."""
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def declared(module: Module) -> set[str]:
    """The dataclasses of a module."""
    return {
        node.name
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(decorator).startswith("dataclass") for decorator in node.decorator_list)
    }


def test_dataclasses_are_what_users_are_given() -> None:
    assert {module.name: declared(module) for module in modules() if declared(module)} == GIVEN | OF_SPARK


def test_nothing_of_the_reference_is_a_struct() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    named = set(re.findall(r"^::: (omnigraph[\w.]*)\.([A-Z]\w*)", text, re.MULTILINE))
    documented = [getattr(import_module(home), name) for home, name in named]
    classes = [found for found in documented if isinstance(found, type)]
    assert len(classes) > 20
    assert [found for found in classes if issubclass(found, Struct)] == []
