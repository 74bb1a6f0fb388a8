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
    },
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
        ({"profile": "prod"}, "binds a server"),
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
    with pytest.raises(InputError, match="server 'prod'"):
        resolve_target(OperatorConfig(defaults=Defaults(server="prod")))


@pytest.mark.parametrize(
    ("uri", "local"), [("g.omni", True), ("/a/b", True), ("file:///a/b", True), ("s3://bucket/g.omni", False)]
)
def test_only_paths_and_file_uris_are_local(uri: str, local: bool) -> None:
    target = Target(uri)
    assert target.is_local is local
    assert target.announce("load") == f"omnigraph load → {uri} (direct, {'local' if local else 'remote'})"
