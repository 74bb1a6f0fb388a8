"""The verbs of a graph over HTTP: `omnigraph.connect("https://…")` gives a `RemoteGraph`.

Calls, results and exceptions are those of `omnigraph.Graph`. Start at `RemoteGraph`; `transport` sends requests and
knows which of them may be repeated, `decode` turns bodies into results, `sources` turns what is loaded into lines.
"""

from omnigraph.client.graph import RemoteGraph, connect_remote
from omnigraph.client.transport import list_graphs

__all__ = ["RemoteGraph", "connect_remote", "list_graphs"]
