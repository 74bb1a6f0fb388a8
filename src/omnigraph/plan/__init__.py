"""A checked query as typed operators, and everything that needs no data to answer. Start at `compile_query`."""

from omnigraph.plan.check import compile_file, compile_query, known_plan

__all__ = ["compile_file", "compile_query", "known_plan"]
