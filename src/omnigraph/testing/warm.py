"""What a forked process should not have to do again; imported once by the server that forks it.

Importing everything and compiling the grammars takes most of a second, and neither touches storage: a process that
is forked afterwards starts like a fresh one, only sooner.
"""

import omnigraph.graph  # noqa: F401
from omnigraph.language.query_parser import parse_query_file
from omnigraph.language.schema_parser import parse_schema

parse_schema("node Thing { name: String @key }\n")
parse_query_file("query q() { match { $t: Thing } return { $t.name } }")
