"""Only storage touches Lance, and what writes and moves a head at once is called where everybody can see it."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.architecture.modules import Module, modules

from omnigraph.engine.storage.residual import InlineCommitResidual
from omnigraph.engine.storage.tables import TableStore

HOME = "engine.storage"
INLINE_CALLS = frozenset(
    {
        "add_columns",
        "alter_columns",
        "checkout_version",
        "cleanup_old_versions",
        "compact_files",
        "create_index",
        "create_index_uncommitted",
        "create_scalar_index",
        "execute_uncommitted",
        "merge_insert",
        "optimize_indices",
        "replace_field_metadata",
        "update_config",
        "update_field_metadata",
        "write_dataset",
        "write_fragments",
    }
)
"""Calls that only make sense on a Lance dataset."""

RESIDUAL_SITES = {
    "cleanup_versions": {"engine.operations.cleanup", "engine.operations.forget", "engine.operations.migrate"},
    "create_branch": {"engine.operations.branch", "engine.coordination.schema_lock", "engine.commit.forks"},
    "delete_branch": {
        "engine.manifest.migrations",
        "engine.operations.branch",
        "engine.operations.cleanup",
        "engine.recovery.forks",
        "engine.coordination.schema_lock",
    },
}
"""Who may use what Lance can only do inline; a new site is added here knowingly."""

ALLOW = "forbidden-api-allow:"


def _outside() -> list[Module]:
    return [module for module in modules() if not module.within(HOME) and not module.within("testing")]


def _exempt(module: Module, line: int) -> bool:
    lines = module.path.read_text(encoding="utf-8").splitlines()
    return any(ALLOW in text for text in lines[max(0, line - 2) : line])


def _calls(module: Module) -> Iterator[tuple[str, int]]:
    """Every method call of a module, by name and line."""
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, node.lineno


def _attributes(module: Module, name: str) -> Iterator[int]:
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr == name:
            yield node.lineno


OUTSIDE = _outside()


def _found(look: Callable[[Module], Iterator[tuple[str, int]]]) -> dict[str, list[tuple[str, int]]]:
    """What a look finds in the modules outside storage, without the lines that say why they may."""
    found = {module.name: [hit for hit in look(module) if not _exempt(module, hit[1])] for module in OUTSIDE}
    return {name: hits for name, hits in found.items() if hits}


def test_no_module_outside_storage_names_lance() -> None:
    def names(module: Module) -> Iterator[tuple[str, int]]:
        for node in module.nodes:
            if isinstance(node, ast.Name) and node.id == "lance":
                yield node.id, node.lineno

    assert _found(names) == {}
    assert [module.name for module in OUTSIDE if "lance" in set(module.imports())] == []


def test_no_module_outside_storage_calls_a_dataset() -> None:
    assert _found(lambda module: (hit for hit in _calls(module) if hit[0] in INLINE_CALLS)) == {}


def test_no_module_outside_storage_reaches_the_dataset_of_a_handle() -> None:
    assert _found(lambda module: (("dataset", line) for line in _attributes(module, "dataset"))) == {}


def test_inline_operations_are_used_only_where_they_are_registered() -> None:
    def uses(module: Module) -> Iterator[tuple[str, int]]:
        for node in module.nodes:
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Attribute)
                and node.value.attr == "residual"
                and module.name not in RESIDUAL_SITES.get(node.attr, set())
            ):
                yield node.attr, node.lineno

    assert _found(uses) == {}


def test_the_guards_see_what_they_forbid(tmp_path: Path) -> None:
    source = tmp_path / "bad.py"
    source.write_text(
        "import lance\nlance.write_dataset(t, u)\nh.dataset.delete('x')\ns.residual.delete_branch(p, b)\n"
    )
    bad = Module(source)
    assert "lance" in set(bad.imports())
    assert ("write_dataset", 2) in list(_calls(bad))
    assert list(_attributes(bad, "dataset")) == [3]
    assert list(_attributes(bad, "residual")) == [4]


def test_registered_sites_exist() -> None:
    names = {module.name for module in modules()}
    assert {site for sites in RESIDUAL_SITES.values() for site in sites} <= names


def test_the_store_offers_nothing_that_writes_and_moves_a_head_at_once() -> None:
    residual = {name for name in vars(InlineCommitResidual) if not name.startswith("_")}
    assert residual == {"cleanup_versions", "create_branch", "delete_branch"}
    offered = {name for name in vars(TableStore) if not name.startswith("_")}
    assert offered.isdisjoint(residual)
    assert offered.isdisjoint({"append", "write", "insert", "update", "delete", "merge", "merge_insert", "overwrite"})


def test_only_recovery_and_verify_open_the_folder_of_intents() -> None:
    """`verify` looks at every file of a graph, and only looks."""
    homes = ("engine.recovery", "engine.coordination", "engine.operations.verify")
    users = {
        module.name
        for module in _outside()
        for node in module.nodes
        if isinstance(node, ast.Attribute | ast.Name)
        and (node.attr if isinstance(node, ast.Attribute) else node.id) == "RECOVERY_DIR"
    }
    literal = {
        module.name
        for module in _outside()
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("__recovery")
    }
    assert {name for name in users | literal if not name.startswith(homes)} == set()
