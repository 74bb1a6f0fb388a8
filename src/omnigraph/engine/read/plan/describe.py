"""Expands in words, for the notes an execution keeps."""

from __future__ import annotations

from omnigraph.plan.operators import Expand


def describe_expand(expand: Expand, from_source: bool = True) -> str:
    """An expand as a person would draw it, starting at the end it is followed from."""
    edge = f"{expand.edge_variable + ':' if expand.edge_variable else ''}{expand.edge_type}"
    if (expand.min_hops, expand.max_hops) != (1, 1):
        edge += f"{{{expand.min_hops},{expand.max_hops}}}"
    if from_source:
        return f"${expand.source} -[{edge}]{'-' if expand.undirected else '->'} ${expand.target}"
    return f"${expand.target} {'-' if expand.undirected else '<-'}[{edge}]- ${expand.source}"
