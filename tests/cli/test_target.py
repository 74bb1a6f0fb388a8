"""Which graph a command addresses."""

import pytest

from omnigraph.cli.config import Defaults, OperatorConfig
from omnigraph.cli.target import NOTHING_ADDRESSED, Target, resolve_target
from omnigraph.errors import InputError

CONFIG = OperatorConfig(
    defaults=Defaults(store="default.omni"),
    profiles={
        "dev": {"store": "dev.omni"},
        "prod": {"server": "prod"},
        "both": {"server": "prod", "store": "x"},
        "empty": None,
        "graphy": {"store": "x", "default_graph": "g"},
        "admin": {"cluster": "brain"},
        "staged": {"server": "prod", "default_graph": "knowledge"},
    },
    servers={"prod": {"url": "https://graph.example.com/"}, "bare": {}, "leaky": {"url": "http://h", "token": "x"}},
)


def test_an_explicit_address_wins_over_the_profile_and_the_profile_over_the_default() -> None:
    assert resolve_target(CONFIG, uri="a.omni", profile="dev").uri == "a.omni"
    assert resolve_target(CONFIG, store="b.omni", profile="dev").uri == "b.omni"
    assert resolve_target(CONFIG, profile="dev").uri == "dev.omni"
    assert resolve_target(CONFIG).uri == "default.omni"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"uri": "a", "store": "b"}, "mutually exclusive"),
        ({"profile": "nope"}, "unknown profile 'nope'.*dev"),
        (
            {"profile": "prod", "capability": "direct"},
            "profile 'prod' addresses the server 'prod', and this command works on",
        ),
        ({"server": "prod", "capability": "direct"}, "the command line addresses the server"),
        ({"profile": "admin"}, "profile 'admin' binds a cluster"),
        ({"server": "nope"}, "unknown server 'nope' .servers: bare, leaky, prod."),
        ({"server": ""}, "the server is empty"),
        ({"server": "bare"}, "has no url"),
        ({"server": "leaky"}, "remove it, and run omnigraph login"),
        ({"server": "s3://bucket"}, "begins with http:// or https://"),
        ({"server": "prod", "store": "b"}, "--store and --server are mutually exclusive"),
        ({"server": "prod", "uri": "a", "store": "b"}, "a positional URI and --store and --server are mutually"),
        ({"uri": "a", "graph": "g"}, "--graph picks a graph of a server"),
        ({"graph": "g"}, "--graph picks a graph of a server"),
        ({"uri": "a", "capability": "served"}, "this asks a server"),
        ({"profile": "both"}, "exactly one"),
        ({"profile": "empty"}, "exactly one"),
        ({"profile": "graphy"}, "already is one graph"),
        ({"uri": "https://graph.example.com"}, "server's address"),
        ({"uri": "  "}, "empty"),
    ],
)
def test_a_wrong_address_is_refused_with_its_remedy(arguments: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        resolve_target(CONFIG, **arguments)


def test_nothing_addressed_says_what_to_pass() -> None:
    with pytest.raises(InputError) as caught:
        resolve_target(OperatorConfig())
    assert str(caught.value) == NOTHING_ADDRESSED


def test_a_server_is_named_by_its_key_or_its_url() -> None:
    assert resolve_target(CONFIG, server="prod") == Target("https://graph.example.com", True)
    assert resolve_target(CONFIG, server="http://h:1/base/", graph="g") == Target("http://h:1/base", True, "g")
    assert resolve_target(CONFIG, profile="staged").graph == "knowledge"
    assert resolve_target(CONFIG, profile="staged", graph="other").graph == "other"
    by_default = OperatorConfig(defaults=Defaults(server="prod", default_graph="d"), servers=CONFIG.servers)
    assert resolve_target(by_default) == Target("https://graph.example.com", True, "d")
    with pytest.raises(InputError, match="the default scope addresses the server 'prod'"):
        resolve_target(by_default, capability="direct")
    assert resolve_target(by_default, store="x", capability="direct").uri == "x"
    target = resolve_target(CONFIG, server="prod")
    assert not target.is_local
    assert target.announce("load") == "omnigraph load → https://graph.example.com (served)"


@pytest.mark.parametrize(
    ("uri", "local"), [("g.omni", True), ("/a/b", True), ("file:///a/b", True), ("s3://bucket/g.omni", False)]
)
def test_only_paths_and_file_uris_are_local(uri: str, local: bool) -> None:
    target = Target(uri)
    assert target.is_local is local
    assert target.announce("load") == f"omnigraph load → {uri} (direct, {'local' if local else 'remote'})"
