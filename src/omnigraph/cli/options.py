"""The flags that verbs share, each declared once with its help.

A verb lists the ones it takes in its signature, and so the parser refuses the others. Those that say which graph is
meant are in no signature: a verb of a graph is `addressed`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from typing import Annotated, Any

import typer
from msgspec import Struct

from omnigraph.choices import Durability

ADDRESS = "Address"


class Format(StrEnum):
    """The formats of a read."""

    TABLE = "table"
    KV = "kv"
    CSV = "csv"
    JSONL = "jsonl"
    JSON = "json"


Uri = Annotated[
    str | None,
    typer.Argument(metavar="URI", help="The graph: a path, file:// or s3:// URI.", show_default=False),
]
UriOption = Annotated[str | None, typer.Option("--uri", metavar="URI", help="The graph.", hidden=True)]
"""The address of verbs whose positional used to be a name alone."""

Store = Annotated[
    str | None,
    typer.Option("--store", metavar="URI", help="The graph's store.", show_default=False, rich_help_panel=ADDRESS),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="NAME|URL",
        help="A server: its URL, or its name in ~/.omnigraph/config.yaml.",
        show_default=False,
        rich_help_panel=ADDRESS,
    ),
]
GraphId = Annotated[
    str | None,
    typer.Option("--graph", metavar="ID", help="Which graph of a server.", show_default=False, rich_help_panel=ADDRESS),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="A profile of ~/.omnigraph/config.yaml.",
        envvar="OMNIGRAPH_PROFILE",
        show_default=False,
        rich_help_panel=ADDRESS,
    ),
]


class Address(Struct, frozen=True):
    """What flags say about the graph that a command is about."""

    store: str | None = None
    server: str | None = None
    graph: str | None = None
    profile: str | None = None


_ADDRESS_FLAGS = {"store": Store, "server": Server, "graph": GraphId, "profile": Profile}


def addressed(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb of a graph as the parser sees it: behind its own flags the ones that its `address` is made of."""
    signature = inspect.signature(verb, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "address"]
    flags = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=flag)
        for name, flag in _ADDRESS_FLAGS.items()
    ]

    @wraps(verb)
    def run(**given: Any) -> None:
        address = Address(**{name: given.pop(name) for name in _ADDRESS_FLAGS})
        verb(address, **given)

    run.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
    return run


Actor = Annotated[
    str | None,
    typer.Option("--as", metavar="ACTOR", help="Who the write is attributed to.", show_default=False),
]
Message = Annotated[
    str | None,
    typer.Option("--message", "-m", metavar="TEXT", help="What the commit says about itself.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", help="Consent to a destructive write on a target that is not local.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not print the line that names the target of a write.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch.")]
QueryName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Which query, when the source declares several.", show_default=False),
]
Query = Annotated[
    str | None,
    typer.Option("--query", metavar="FILE", help="A query file; - reads standard input.", show_default=False),
]
Inline = Annotated[str | None, typer.Option("-e", metavar="TEXT", help="The query itself, inline.", show_default=False)]
Params = Annotated[
    str | None, typer.Option("--params", metavar="JSON", help="Parameters as a JSON object.", show_default=False)
]
ParamsFile = Annotated[
    str | None,
    typer.Option("--params-file", metavar="FILE", help="Parameters in a file; - for stdin.", show_default=False),
]
Schema = Annotated[str, typer.Option("--schema", metavar="FILE", help="A schema file (.pg); - reads standard input.")]
CommitDurability = Annotated[
    Durability, typer.Option("--durability", help="What the commit survives: full a power cut, fast a killed process.")
]
BlobsFrom = Annotated[
    list[str] | None,
    typer.Option("--blobs-from", metavar="URI", help="A place blobs given as URIs may come from; repeatable."),
]
SPARK_PANEL = "Spark"
SparkMaster = Annotated[
    str | None, typer.Option("--spark-master", metavar="URL", help="Spark's master.", rich_help_panel=SPARK_PANEL)
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option("--spark-conf", metavar="KEY=VALUE", help="A Spark setting; repeatable.", rich_help_panel=SPARK_PANEL),
]
