"""Where a graph comes from: a store, or a server. The one place that knows both, and that Spark is the bulk engine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from omnigraph import graph as stored
from omnigraph.boundary import instance, optional, verb
from omnigraph.choices import Durability
from omnigraph.engine.embedding import EmbeddingConfig
from omnigraph.engine.write.gate import WriteGate
from omnigraph.errors import InputError
from omnigraph.graph import Graph, Location
from omnigraph.pipeline import SparkEngine


@verb(embedding=optional(instance(EmbeddingConfig)))
def create(
    uri: Location,
    schema: str | os.PathLike[str],
    *,
    force: bool = False,
    durability: Durability = "fast",
    embedding: EmbeddingConfig | None = None,
    external_blobs: Sequence[str] = (),
) -> Graph:
    """Create an empty graph and open it. `schema` is the text of a schema, or the path of a `.pg` file.

    The other arguments are those of `connect`.

    Raises:
        AlreadyExistsError: the location holds a graph, or is a folder with other things in it.
        ParseError, SchemaError: the schema is not valid; nothing was created.
    """
    return stored.create(
        uri,
        schema,
        force=force,
        durability=durability,
        embedding=embedding,
        external_blobs=external_blobs,
        bulk=SparkEngine(),
    )


@verb(embedding=optional(instance(EmbeddingConfig)))
def connect(
    uri: Location,
    *,
    read_only: bool = False,
    durability: Durability = "fast",
    embedding: EmbeddingConfig | None = None,
    external_blobs: Sequence[str] = (),
    policy: WriteGate | None = None,
    group_writes: bool = False,
    token: str | None = None,
    graph: str | None = None,
) -> Graph:
    """Open the graph at a path, a `file://` URI or an `s3://` URI, or the graph of a server at `http(s)://…`.

    A server's graph is an `omnigraph.RemoteGraph`, with the same verbs, results and exceptions; `token` says who asks,
    `graph` which of its graphs is meant, and of the other arguments only `read_only` applies.

    `durability` says what an acknowledged write survives: `fast` a killed process, `full` a power cut as well.
    `embedding` names the provider for texts given to `nearest`; by default a small model inside the process.
    `external_blobs` are the bases that URIs given as blobs must lie under; without it blobs are given by their bytes.
    `policy` is an `omnigraph.policy.Policy`: every write must then name an actor whom it allows what is written.
    With `group_writes`, mutations and small loads that threads ask for at the same moment are published together, as
    one commit that lists them; each is checked, refused and answered by itself.

    Raises:
        GraphNotFoundError: there is none.
        FormatError: it was written by a newer release.
    """
    if isinstance(uri, str) and uri.startswith(("http://", "https://")):
        if embedding is not None or external_blobs or policy is not None or durability != "fast" or group_writes:
            raise InputError(
                "a server decides about durability, embedding, external_blobs, policy and group_writes: leave them out"
            )
        from omnigraph.client import connect_remote

        return connect_remote(uri, token=token, graph=graph, read_only=read_only)  # type: ignore[return-value]
    if token is not None or graph is not None:
        raise InputError(
            "token and graph belong to a server, whose address begins with http:// or https://, and this is the address"
            " of a store: leave them out"
        )
    return stored.connect(
        uri,
        read_only=read_only,
        durability=durability,
        embedding=embedding,
        external_blobs=external_blobs,
        policy=policy,
        group_writes=group_writes,
        bulk=SparkEngine(),
    )
