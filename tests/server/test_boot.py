"""A server that cannot be what was asked does not start, and says what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.cli.program import call

from omnigraph.errors import InputError
from omnigraph.server import tokens
from omnigraph.server.boot import _listen
from omnigraph.server.settings import Settings
from omnigraph.server.tokens import Tokens, read_tokens

POLICY = "version: 1\ngroups: {a: [x]}\nrules: [{id: r, allow: {actors: {group: a}, actions: [read]}}]\n"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OMNIGRAPH_")]:
        monkeypatch.delenv(name)


def refused(*words: str | Path) -> str:
    done = call("serve", "--check", *words)
    assert done.code == 1, done
    return done.err[done.err.rindex("error: ") :]


def test_boot_refusals_name_a_remedy(seed: Path, tmp_path: Path) -> None:
    queries = tmp_path / "queries"
    queries.mkdir()
    (queries / "bad.gq").write_text("query q() { match { $p: Nobody } return { $p.name } }")
    twice = tmp_path / "twice"
    twice.mkdir()
    for name in ("one", "two"):
        (twice / f"{name}.gq").write_text("query q() { match { $p: Person } return { $p.name } }")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    graph = ("--store", seed, "--unauthenticated")
    assert "--store" in refused()
    assert "mutually exclusive" in refused(tmp_path, *graph)
    assert "--unauthenticated" in refused("--store", seed)
    assert "TOKENS_FILE" in refused("--store", seed, "--policy", policy)
    assert "does not exist" in refused(*graph, "--queries", tmp_path / "none")
    assert "Nobody" in refused(*graph, "--queries", queries)
    assert "one.gq" in refused(*graph, "--queries", twice)
    assert "graph" in refused("--store", tmp_path / "none", "--unauthenticated")
    assert "host:port" in refused(*graph, "--bind", "nowhere")
    assert "s3://" in refused(*graph, "--blobs-from", "file:///depot")
    assert "graph id" in refused(*graph, "--graph-id", "a_b")
    assert "policy" in refused("--store", seed, "--policy", tmp_path / "none.yaml")
    assert call("serve", "--check", *graph).code == 0
    assert call("serve", "--check", seed, "--unauthenticated").code == 0


def test_an_address_that_is_taken_is_said(tmp_path: Path) -> None:
    with _listen("127.0.0.1", 0) as taken, pytest.raises(InputError, match="choose another --bind"):
        _listen("127.0.0.1", taken.getsockname()[1])


def test_the_switch_for_open_servers_is_a_variable_too(seed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, code in (("1", 0), ("true", 0), ("0", 1), ("false", 1), (" ", 1), ("maybe", 1)):
        monkeypatch.setenv("OMNIGRAPH_UNAUTHENTICATED", text)
        assert call("serve", "--check", "--store", str(seed)).code == code, text


def test_tokens_come_from_the_first_source_that_is_set(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    file.write_text(json.dumps({"act-ana": "a"}))
    both = {tokens.FILE: str(file), tokens.JSON: json.dumps({"act-bo": "b"}), tokens.SINGLE: "c"}
    found = read_tokens(both)
    assert [found.actor_of(token) for token in "abc"] == ["act-ana", None, "default"]
    assert read_tokens({tokens.JSON: json.dumps({"act-bo": "b"})}).actor_of("b") == "act-bo"
    assert not read_tokens({})
    assert b"a" not in [digest for digest, _ in found.digests]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ""}',
        '{"a": "t", "a": "u"}',
        '{"a": "t", "b": "t"}',
        '{"": "t"}',
        "[]",
        "{",
        '{"a": 1}',
        "7",
        '{"a": "tök"}',
    ],
)
def test_blank_and_duplicate_tokens_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_tokens({tokens.JSON: text})
    with pytest.raises(InputError):
        read_tokens({tokens.FILE: "/nowhere/tokens.json"})
    with pytest.raises(InputError):
        read_tokens({tokens.SINGLE: " "})


def test_every_digest_is_compared_whatever_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    plain = tokens.hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return plain(one, other)

    monkeypatch.setattr(tokens.hmac, "compare_digest", watched)
    table = Tokens.of({f"actor-{at}": f"token-{at}" for at in range(20)})
    for token in ("token-0", "token-19", "nothing"):
        compared.clear()
        table.actor_of(token)
        assert len(compared) == 20


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("OMNIGRAPH_READ_THREADS", "0"),
        ("OMNIGRAPH_PER_ACTOR_BYTES_MAX", "-1"),
        ("OMNIGRAPH_SHUTDOWN_GRACE_S", "soon"),
        ("OMNIGRAPH_METRICS", "perhaps"),
        ("OMNIGRAPH_CORS_ORIGINS", "http://a,*"),
    ],
)
def test_a_setting_that_cannot_be_is_named(name: str, text: str) -> None:
    with pytest.raises(InputError, match=name):
        Settings.from_environment({name: text})


def test_settings_are_read_from_their_variables() -> None:
    found = Settings.from_environment(
        {"OMNIGRAPH_WRITE_QUEUE_DEADLINE_MS": "1500", "OMNIGRAPH_CORS_ORIGINS": "http://a, http://b", "X": "y"}
    )
    assert (found.write_queue_seconds, found.cors_origins) == (1.5, ("http://a", "http://b"))
