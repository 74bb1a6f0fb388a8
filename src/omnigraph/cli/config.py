"""One person's configuration: who I am, what I address by default, how results look.

The file is `config.yaml` in `~/.omnigraph`, or in the folder that `OMNIGRAPH_HOME` names. A missing file is an empty
configuration. A key that this release does not know is a warning and not an error, because a file written for a newer
release must work with an older one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from omnigraph.errors import InputError

FORMATS = ("table", "kv", "csv", "jsonl", "json")
LAYOUTS = ("truncate", "wrap")

_SECTIONS = ("operator", "servers", "clusters", "defaults", "profiles", "aliases")
_DEFAULTS = ("output", "table_max_column_width", "table_cell_layout", "server", "store", "default_graph")


class Defaults(Struct, frozen=True):
    """What a command assumes when its line does not say."""

    output: str = "table"
    table_max_column_width: int = 80
    table_cell_layout: str = "truncate"
    store: str | None = None
    server: str | None = None
    default_graph: str | None = None


class OperatorConfig(Struct, frozen=True):
    """The checked configuration; `warnings` lists the keys that were ignored.

    Profiles, servers and aliases stay as they were written and are checked when one is used, so that a broken one
    blocks nothing else.
    """

    actor: str | None = None
    defaults: Defaults = field(default_factory=Defaults)
    profiles: Mapping[str, Any] = field(default_factory=dict)
    servers: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def operator_home(environ: Mapping[str, str]) -> Path:
    """The folder of the operator's files, as `OMNIGRAPH_HOME` or the home folder has it."""
    named = environ.get("OMNIGRAPH_HOME", "").strip()
    return Path(named or "~/.omnigraph").expanduser()


def load_config(home: Path) -> OperatorConfig:
    """Read and check `config.yaml` below `home`.

    Raises:
        InputError: the file cannot be read, is not YAML, or a value has the wrong kind.
    """
    path = home / "config.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return OperatorConfig()
    except (OSError, UnicodeDecodeError) as exc:
        raise InputError(f"cannot read the configuration '{path}': {_reason(exc)}") from exc
    return parse_config(text, origin=str(path))


def parse_config(text: str, *, origin: str) -> OperatorConfig:
    """Check the text of a configuration; `origin` names it in messages."""
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise InputError(f"the configuration '{origin}' is not valid YAML: {' '.join(str(exc).split())}") from exc
    if document is None:
        return OperatorConfig()
    root = _mapping(document, origin, "the document")
    operator = _mapping(root.get("operator"), origin, "operator")
    defaults = _mapping(root.get("defaults"), origin, "defaults")
    unknown = [
        *(str(key) for key in root if key not in _SECTIONS),
        *(f"operator.{key}" for key in operator if key != "actor"),
        *(f"defaults.{key}" for key in defaults if key not in _DEFAULTS),
    ]
    return OperatorConfig(
        actor=_text(operator.get("actor"), origin, "operator.actor"),
        defaults=_defaults(defaults, origin),
        profiles=_mapping(root.get("profiles"), origin, "profiles"),
        servers=_mapping(root.get("servers"), origin, "servers"),
        aliases=_mapping(root.get("aliases"), origin, "aliases"),
        warnings=tuple(f"warning: '{origin}' has the unknown key '{key}', ignored" for key in unknown),
    )


def _defaults(values: Mapping[str, Any], origin: str) -> Defaults:
    store = _text(values.get("store"), origin, "defaults.store")
    server = _text(values.get("server"), origin, "defaults.server")
    if store and server:
        raise InputError(f"the configuration '{origin}' sets both defaults.store and defaults.server: keep one")
    graph = _text(values.get("default_graph"), origin, "defaults.default_graph")
    if store and graph:
        raise InputError(
            f"the configuration '{origin}' sets defaults.default_graph beside defaults.store, which is one graph"
            " already"
        )
    width = values.get("table_max_column_width", Defaults().table_max_column_width)
    if not isinstance(width, int) or isinstance(width, bool) or width < 1:
        raise InputError(f"the configuration '{origin}' needs a positive number as defaults.table_max_column_width")
    return Defaults(
        output=_choice(values.get("output", "table"), FORMATS, origin, "defaults.output"),
        table_max_column_width=width,
        table_cell_layout=_choice(
            values.get("table_cell_layout", "truncate"), LAYOUTS, origin, "defaults.table_cell_layout"
        ),
        store=store,
        server=server,
        default_graph=graph,
    )


def _mapping(value: Any, origin: str, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"the configuration '{origin}' needs key and value pairs in {name}")
    return value


def _text(value: Any, origin: str, name: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"the configuration '{origin}' needs a text as {name}")
    return value.strip()


def _choice(value: Any, allowed: tuple[str, ...], origin: str, name: str) -> str:
    if value not in allowed:
        raise InputError(f"the configuration '{origin}' has {name} '{value}': choose one of {', '.join(allowed)}")
    return str(value)


def _reason(exc: Exception) -> str:
    return (exc.strerror or str(exc)).lower() if isinstance(exc, OSError) else "it is not UTF-8 text"
