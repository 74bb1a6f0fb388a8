"""Which graph a command addresses.

First match wins: the address on the command line, then the profile, then the default of the configuration. The rules
are pure; `omnigraph.cli.session` reads the environment and the file for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.cli.config import OperatorConfig
from omnigraph.errors import InputError

NOTHING_ADDRESSED = (
    "no graph addressed - pass a positional URI, --store <uri>, --profile <name>, or set a default scope"
)


@dataclass(frozen=True)
class Target:
    """One store, as the user named it."""

    uri: str

    @property
    def is_local(self) -> bool:
        """True for a path or a `file://` URI: destructive commands run there without asking."""
        return "://" not in self.uri or self.uri.startswith("file://")

    def announce(self, command: str) -> str:
        """The line a write prints before it begins, so that nobody writes to the wrong graph unawares."""
        return f"omnigraph {command} → {self.uri} (direct, {'local' if self.is_local else 'remote'})"


def resolve_target(
    config: OperatorConfig, *, uri: str | None = None, store: str | None = None, profile: str | None = None
) -> Target:
    """Find the store of a command.

    Raises:
        InputError: nothing, or more than one thing, is addressed, or the address is not a store.
    """
    if uri is not None and store is not None:
        raise InputError("a positional URI and --store are mutually exclusive: pass one of them")
    address = uri if uri is not None else store
    if address is not None:
        return Target(checked_address(address))
    if profile:
        return Target(checked_address(_profile_store(config.profiles, profile)))
    if config.defaults.store:
        return Target(checked_address(config.defaults.store))
    if config.defaults.server:
        raise InputError(
            f"the default scope is the server '{config.defaults.server}', and this command works on a store:"
            " pass a positional URI or --store <uri>"
        )
    raise InputError(NOTHING_ADDRESSED)


def _profile_store(profiles: Mapping[str, Any], name: str) -> str:
    if name not in profiles:
        known = ", ".join(sorted(str(key) for key in profiles)) or "none is defined"
        raise InputError(f"unknown profile '{name}' (profiles: {known})")
    binding = profiles[name]
    bound = [key for key in ("server", "cluster", "store") if isinstance(binding, Mapping) and binding.get(key)]
    if len(bound) != 1:
        raise InputError(f"profile '{name}' must bind exactly one of server, cluster and store")
    if bound[0] != "store":
        raise InputError(f"profile '{name}' binds a {bound[0]}, and this command works on a store")
    if binding.get("default_graph"):
        raise InputError(f"profile '{name}' sets default_graph beside a store, which already is one graph")
    return str(binding["store"])


def checked_address(address: str) -> str:
    """The address trimmed, once it can be that of a store.

    Raises:
        InputError: it is blank, or the address of a server.
    """
    trimmed = address.strip()
    if not trimmed:
        raise InputError("the address of the graph is empty")
    if trimmed.startswith(("http://", "https://")):
        raise InputError(f"'{trimmed}' is a server's address; pass the path, file:// or s3:// URI of a store")
    return trimmed
