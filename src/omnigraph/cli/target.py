"""Which graph a command addresses.

First match wins: the address on the command line, then the profile, then the default of the configuration. Whether a
graph is reached through a server or directly follows from that and from nothing else. The rules are pure;
`omnigraph.cli.session` reads the environment and the file for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from omnigraph.cli.config import OperatorConfig
from omnigraph.errors import InputError

NOTHING_ADDRESSED = (
    "no graph addressed - pass a positional URI, --store <uri>, --server <name>, --profile <name>, or set a default"
    " scope"
)
SERVER_ADDRESS = ("http://", "https://")
BINDINGS = ("server", "cluster", "store")


class Scope(Struct, frozen=True):
    """What is addressed, before it is looked up: a `server` by name or URL, a `store` or a `cluster`."""

    kind: str
    target: str
    graph: str | None = None
    origin: str = "the command line"


class Target(Struct, frozen=True):
    """One store as the user named it, or the address of a server and the graph there."""

    uri: str
    is_served: bool = False
    graph: str | None = None

    @property
    def is_local(self) -> bool:
        """True for a path or a `file://` URI: destructive commands run there without asking."""
        return not self.is_served and ("://" not in self.uri or self.uri.startswith("file://"))

    def announce(self, command: str) -> str:
        """The line a write prints before it begins, so that nobody writes to the wrong graph unawares."""
        way = "served" if self.is_served else f"direct, {'local' if self.is_local else 'remote'}"
        return f"omnigraph {command} → {self.uri} ({way})"


def resolve_target(
    config: OperatorConfig,
    *,
    uri: str | None = None,
    store: str | None = None,
    server: str | None = None,
    graph: str | None = None,
    profile: str | None = None,
    capability: str = "any",
    hint: str = "",
) -> Target:
    """Find what a command works on; its capability is `any`, `direct` (a store only) or `served` (a server only).

    A `hint` ends the message that nothing is addressed.

    Raises:
        InputError: nothing, or more than one thing, is addressed, or it is not something the command works on.
    """
    scope = _explicit(uri, store, server)
    if scope is None and profile:
        scope = profile_scope(config, profile)
    if scope is None:
        scope = default_scope(config)
    if scope is None:
        raise InputError(NOTHING_ADDRESSED + hint)
    if scope.kind == "cluster":
        raise InputError(f"{scope.origin} binds a cluster; data is read and written through a server or a store")
    if scope.kind == "store":
        if graph is not None:
            raise InputError("--graph picks a graph of a server, and a store already is one graph: leave it out")
        if capability == "served":
            raise InputError("this asks a server, and a store is addressed: pass --server <name or url>")
        return Target(checked_address(scope.target))
    if capability == "direct":
        raise InputError(
            f"{scope.origin} addresses the server '{scope.target}', and this command works on a store: pass a"
            " positional URI or --store <uri>"
        )
    return Target(server_address(config, scope.target), True, graph if graph is not None else scope.graph)


def _explicit(uri: str | None, store: str | None, server: str | None) -> Scope | None:
    named = {"a positional URI": uri, "--store": store, "--server": server}
    given = [name for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are mutually exclusive: pass one of them")
    if server is not None:
        return Scope("server", server.strip())
    address = uri if uri is not None else store
    return None if address is None else Scope("store", address)


def profile_scope(config: OperatorConfig, name: str) -> Scope:
    """What a profile binds.

    Raises:
        InputError: there is none of this name, or it does not bind exactly one thing.
    """
    profiles = config.profiles
    if name not in profiles:
        known = ", ".join(sorted(str(key) for key in profiles)) or "none is defined"
        raise InputError(f"unknown profile '{name}' (profiles: {known})")
    binding = profiles[name]
    bound = [key for key in BINDINGS if isinstance(binding, Mapping) and binding.get(key)]
    if len(bound) != 1:
        raise InputError(f"profile '{name}' must bind exactly one of server, cluster and store")
    graph = binding.get("default_graph")
    if graph is not None and not isinstance(graph, str):
        raise InputError(f"default_graph of profile '{name}' must be a text")
    if bound[0] == "store" and graph:
        raise InputError(f"profile '{name}' sets default_graph beside a store, which already is one graph")
    return Scope(bound[0], str(binding[bound[0]]), graph, f"profile '{name}'")


def default_scope(config: OperatorConfig) -> Scope | None:
    """What the configuration addresses where nothing else does."""
    defaults = config.defaults
    if defaults.store:
        return Scope("store", defaults.store, origin="the default scope")
    if defaults.server:
        return Scope("server", defaults.server, defaults.default_graph, "the default scope")
    return None


def server_address(config: OperatorConfig, named: str) -> str:
    """The URL of a server, which is named by its key in the configuration or is a URL itself.

    Raises:
        InputError: there is no such server, or it has no URL.
    """
    if not named:
        raise InputError("the server is empty: pass --server <name or url>")
    if "://" in named:
        return _checked_url(named, f"'{named}'")
    if named not in config.servers:
        known = ", ".join(sorted(str(key) for key in config.servers)) or "none is defined"
        raise InputError(f"unknown server '{named}' (servers: {known}); a URL begins with http:// or https://")
    found = config.servers[named]
    url = found.get("url") if isinstance(found, Mapping) else None
    if not isinstance(url, str):
        raise InputError(f"the server '{named}' of the configuration has no url")
    if "token" in found:
        raise InputError(f"the server '{named}' has a token in the configuration: remove it, and run omnigraph login")
    return _checked_url(url, f"the url of the server '{named}'")


def _checked_url(url: str, what: str) -> str:
    if not url.startswith(SERVER_ADDRESS):
        raise InputError(f"{what} is not the address of a server: it begins with http:// or https://")
    return url.rstrip("/")


def server_addresses(config: OperatorConfig) -> dict[str, str]:
    """The URLs of all servers that have one, by name."""
    return {
        str(name): found["url"]
        for name, found in config.servers.items()
        if isinstance(found, Mapping) and isinstance(found.get("url"), str)
    }


def checked_address(address: str) -> str:
    """The address trimmed, once it can be that of a store.

    Raises:
        InputError: it is blank, or the address of a server.
    """
    trimmed = address.strip()
    if not trimmed:
        raise InputError("the address of the graph is empty")
    if trimmed.startswith(SERVER_ADDRESS):
        raise InputError(
            f"'{trimmed}' is a server's address, and a store is a path, file:// or s3:// URI: address a server with"
            " --server <name or url>"
        )
    return trimmed
