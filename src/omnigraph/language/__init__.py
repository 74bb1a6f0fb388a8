"""Text to syntax tree, for the schema language (`.pg`) and the query language (`.gq`).

Start at `parse_schema` and `parse_query_file`. Nothing here knows what a name means; that is the work of `catalog` for
schemas and of `plan` for queries.
"""

from omnigraph.language.query_parser import parse_query_file
from omnigraph.language.schema_parser import parse_schema

__all__ = ["parse_query_file", "parse_schema"]
