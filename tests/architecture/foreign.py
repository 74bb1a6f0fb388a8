"""Where a module reaches into what another package keeps to itself."""

from __future__ import annotations

import ast

from tests.architecture.modules import Module

INTERNALS = "engine.storage.lance_internals"
"""The home of what Lance does not promise, each use with a guard in tests/substrate."""
DOCUMENTED = {("os", "_exit")}


def private_uses(module: Module) -> list[tuple[str, int]]:
    """Attributes with an underscore of objects that are not the module's own."""
    own = {node.name for node in module.nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.id for node in module.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.attr for node in module.nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    found = []
    for node in module.nodes:
        if isinstance(node, ast.Attribute):
            name, owner = node.attr, node.value.id if isinstance(node.value, ast.Name) else ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            given = node.args[1]
            name, owner = str(given.value) if isinstance(given, ast.Constant) else "", ""
        else:
            continue
        is_private = name.startswith("_") and not name.endswith("__")
        if is_private and owner not in ("self", "cls") and name not in own and (owner, name) not in DOCUMENTED:
            found.append((name, node.lineno))
    return found
