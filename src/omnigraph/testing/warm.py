"""What a forked process should not have to do again; imported last by the server that forks it.

Importing everything and compiling the grammars takes most of a second, and neither touches storage: a process that
is forked afterwards starts like a fresh one, only sooner. What is there by now is kept from the garbage collector,
which would otherwise copy all of it into each process by looking at it.
"""

import gc
import importlib
from pathlib import Path

import omnigraph.engine.ingest.local
import omnigraph.graph
from omnigraph.language.query_parser import parse_query_file
from omnigraph.language.schema_parser import parse_schema

_PACKAGE = Path(omnigraph.graph.__file__).parent
_USED_BY_WRITERS = ("language", "catalog", "plan", "engine")

for _layer in _USED_BY_WRITERS:
    for _path in sorted((_PACKAGE / _layer).rglob("*.py")):
        importlib.import_module(".".join(("omnigraph", *_path.relative_to(_PACKAGE).with_suffix("").parts)))
parse_schema("node Thing { name: String @key }\n")
parse_query_file("query q() { match { $t: Thing } return { $t.name } }")
gc.collect()
gc.freeze()
