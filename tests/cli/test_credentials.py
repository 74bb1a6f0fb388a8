"""Tokens: where they are kept, and which goes with which request."""

import os
from pathlib import Path

import pytest
from tests.cli.program import call

from omnigraph.cli.credentials import credentials_path, is_below, read_token, remove_token, store_token, token_for
from omnigraph.errors import InputError

OTHERS = b"# mine\r\n[other]\r\ntoken=abc\r\n\r\n[odd]\nuser = x\n token :  spaced \n"


def test_other_sections_stay_byte_for_byte(tmp_path: Path) -> None:
    tmp_path = tmp_path / "home"
    tmp_path.mkdir()
    path = credentials_path(tmp_path)
    path.write_bytes(OTHERS)
    path.chmod(0o600)
    store_token(tmp_path, "prod", "first")
    store_token(tmp_path, "prod", "second")
    assert path.read_bytes() == OTHERS + b"[prod]\ntoken = second\n"
    assert read_token(tmp_path, "prod") == "second"
    assert read_token(tmp_path, "other") == "abc"
    assert read_token(tmp_path, "odd") == "spaced"
    assert remove_token(tmp_path, "prod")
    assert not remove_token(tmp_path, "prod")
    assert path.read_bytes() == OTHERS
    assert sorted(os.listdir(tmp_path)) == ["credentials"]


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    store_token(tmp_path / "new", "prod", "t")
    path = credentials_path(tmp_path / "new")
    assert path.stat().st_mode & 0o777 == 0o600
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        for attempt in (lambda: read_token(path.parent, "prod"), lambda: store_token(path.parent, "prod", "u")):
            with pytest.raises(InputError, match="chmod 600"):
                attempt()


@pytest.mark.parametrize("name", ["", " ", "a]", "a\nb", " a"])
def test_names_that_the_file_cannot_hold_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot name a server"):
        store_token(tmp_path, name, "t")


@pytest.mark.parametrize("token", ["", "  ", "ü", "a\nb"])
def test_tokens_that_no_header_can_carry_are_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(InputError, match="a token is"):
        store_token(tmp_path, "prod", token)


def test_the_longest_address_decides_and_a_keyed_token_goes_nowhere_else(tmp_path: Path) -> None:
    servers = {"all": "http://h:80", "team": "http://h:80/team", "eu-1": "https://eu"}
    store_token(tmp_path, "all", "t-all")
    store_token(tmp_path, "team", "t-team")

    def token(url: str, **environ: str) -> str | None:
        return token_for(url, servers, environ, tmp_path)

    assert token("http://h:80/graphs/x") == "t-all"
    assert token("http://h:80/team/graphs/x") == "t-team"
    assert token("http://h:80/teams") == "t-all"
    assert token("http://h:80-evil/graphs/x") is None
    assert token("https://h:80/") is None
    assert token("http://h:80", OMNIGRAPH_TOKEN_ALL="env") == "env"
    assert token("http://h:80", OMNIGRAPH_TOKEN_ALL=" ") == "t-all"
    assert token("https://eu/x", OMNIGRAPH_TOKEN_EU_1="e", OMNIGRAPH_BEARER_TOKEN="b") == "e"
    assert token("https://eu/x", OMNIGRAPH_BEARER_TOKEN="b") == "b"
    assert token("https://elsewhere", OMNIGRAPH_TOKEN_ALL="x", OMNIGRAPH_BEARER_TOKEN=" b ") == "b"
    assert not is_below("http://h:80/a", "http://h:80/ab")


def test_login_and_logout(operator_home: Path) -> None:
    stored = call("login", "prod", stdin="secret\nmore\n")
    assert (stored.code, stored.out) == (0, "stored the token of prod\n")
    assert "no server 'prod' under servers" in stored.err
    assert read_token(operator_home, "prod") == "secret"
    (operator_home / "config.yaml").write_text("servers: {prod: {url: http://h}}")
    assert call("login", "prod", "--token", "x").err == ""
    assert call("logout", "prod").out == "removed the token of prod\n"
    assert call("logout", "prod").out == "there is no token of prod\n"
    assert call("login", "prod", stdin="").code == 1


def test_profiles_are_listed_with_what_is_wrong_with_them(operator_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (operator_home / "config.yaml").write_text(
        "servers: {prod: {url: http://h}}\ndefaults: {store: d.omni, output: csv}\n"
        "profiles: {a: {store: x.omni}, b: {server: prod, default_graph: g}, c: {server: nope}, d: {}}\n"
    )
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "b")
    assert call("profile", "list").out.splitlines() == [
        "  a: store x.omni",
        "* b: server prod graph=g",
        "  c: broken: unknown server 'nope' (servers: prod); a URL begins with http:// or https://",
        "  d: broken: profile 'd' must bind exactly one of server, cluster and store",
    ]
    assert "endpoint: http://h\ndefault_graph: g\noutput_format: csv\n" in call("profile", "show").out
    assert "name: a\nscope_kind: store\n" in call("profile", "show", "a").out
    monkeypatch.delenv("OMNIGRAPH_PROFILE")
    assert "name: (defaults)\nscope_kind: store\ntarget: d.omni\n" in call("profile", "show").out
    assert call("profile", "show", "zz").code == 1
