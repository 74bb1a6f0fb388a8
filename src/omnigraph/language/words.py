"""The words of both languages, for whoever shows or completes them.

No word is reserved, so no parser needs such a list: it is for editors, prompts and documents.
"""

from __future__ import annotations

QUERY_CLAUSES = (
    "query",
    "match",
    "return",
    "having",
    "order",
    "limit",
    "offset",
    "optional",
    "exists",
    "either",
    "path",
    "shortest",
    "insert",
    "update",
    "set",
    "delete",
    "where",
)
"""Words that begin a part of a query or a mutation."""
QUERY_OPERATORS = (
    "and",
    "or",
    "not",
    "in",
    "is",
    "null",
    "distinct",
    "as",
    "asc",
    "desc",
    "contains",
    "starts_with",
    "ends_with",
    "matches",
)
"""Words that join or qualify expressions."""
SCHEMA_DECLARATIONS = ("interface", "node", "edge", "implements")
"""Words that declare a type."""
SCALARS = ("String", "Blob", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "DateTime", "Date")
"""The plain types of properties and parameters; `Vector(n)` and `enum(…)` are written like calls."""
TYPE_CALLS = ("Vector", "enum")
CONSTANTS = ("true", "false")
LITERAL_CALLS = ("date", "datetime")
"""How dates and times are written in queries."""
