"""Bytes outside a graph: whatever a URI looks like, nothing outside the trusted folder is ever read."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.storage.outside import find_below, parse_place, read_below
from omnigraph.engine.values.external import ExternalBlobs
from omnigraph.errors import GraphError, InputError

SECRET = b"not yours"
YOURS = b"yours"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trusted folder with links out of it and into it, and secrets around it."""
    home = tmp_path_factory.mktemp("world")
    allowed = home / "allowed"
    (allowed / "deep").mkdir(parents=True)
    for place in (allowed, allowed / "deep"):
        (place / "a.txt").write_bytes(YOURS)
    for name in ("secret.txt", "allowed.txt", "allowedness"):
        (home / name).write_bytes(SECRET)
    (home / "other").mkdir()
    (home / "other" / "a.txt").write_bytes(SECRET)
    (allowed / "..%2fsecret.txt").mkdir()
    (allowed / "%2e%2e").mkdir()
    (allowed / "%2e%2e" / "secret.txt").write_bytes(YOURS)
    (allowed / "out.txt").symlink_to(home / "secret.txt")
    (allowed / "relative.txt").symlink_to("../secret.txt")
    (allowed / "folder").symlink_to(home / "other")
    (allowed / "twice").symlink_to("folder")
    (allowed / "loop").symlink_to("loop")
    (allowed / "in.txt").symlink_to("deep/a.txt")
    (home / "way-in").symlink_to(allowed)
    os.mkfifo(allowed / "fifo")
    return home


def fetch(world: Path, uri: str) -> bytes | None:
    """What a write would take from this URI; None when it is refused or there is nothing."""
    found = find_below(uri, ExternalBlobs(((world / "allowed").as_uri(),)).places)
    if found is None:
        return None
    try:
        return read_below(*found)
    except GraphError:
        return None


@pytest.mark.parametrize(
    "tail",
    [
        "..%2fsecret.txt",
        "..%2Fsecret.txt",
        "%2e%2e/secret.txt",
        "%2e%2e%2fsecret.txt",
        ".%2e/secret.txt",
        "deep/../../secret.txt",
        "deep%2f..%2f..%2fsecret.txt",
        "..\\secret.txt",
        "..%5csecret.txt",
        "out.txt",
        "relative.txt",
        "folder/a.txt",
        "twice/a.txt",
        "loop",
        "fifo",
        "a.txt/",
        "a.txt%00.png",
        "a.txt?x",
        "a.txt#x",
        "a.txt%2f..%2f..%2fsecret.txt",
        "",
        "/",
        "%2f",
        "\tout.txt",
        "%ff.txt",
    ],
)
def test_no_spelling_leads_out_of_the_trusted_folder(world: Path, tail: str) -> None:
    assert fetch(world, f"{(world / 'allowed').as_uri()}/{tail}") is None


@pytest.mark.parametrize("tail", ["a.txt", "deep/a.txt", "deep%2fa.txt", "%61.txt", "in.txt", "deep//a.txt"])
def test_every_plain_spelling_of_what_lies_inside_is_read(world: Path, tail: str) -> None:
    assert fetch(world, f"{(world / 'allowed').as_uri()}/{tail}") == YOURS


@pytest.mark.parametrize("start", ["file://", "FILE://", "file://localhost", "file:", "file:////"])
def test_forms_of_the_scheme_name_the_same_file(world: Path, start: str) -> None:
    path = str(world / "allowed" / "a.txt")
    assert fetch(world, start + (path.lstrip("/") if start.endswith("//") and len(start) > 7 else path)) == YOURS


@pytest.mark.parametrize("start", ["file://host", "file://127.0.0.1", "file://user@localhost", "", "s3://", "http://x"])
def test_other_hosts_and_schemes_are_not_this_folder(world: Path, start: str) -> None:
    assert fetch(world, start + str(world / "allowed" / "a.txt")) is None


def test_a_file_is_read_once_its_links_led_inside(world: Path) -> None:
    assert fetch(world, (world / "way-in" / "a.txt").as_uri()) == YOURS


def test_what_was_encoded_twice_is_decoded_once(world: Path) -> None:
    base = (world / "allowed").as_uri()
    assert fetch(world, f"{base}/%252e%252e/secret.txt") == YOURS, "the folder is really called %2e%2e"
    assert fetch(world, f"{base}/..%252fsecret.txt") is None, "this is a folder"


@pytest.mark.parametrize(
    "key", ["in/../secret", "in/%2e%2e/secret", "in/..%2fsecret", "in//a", "in/./a", "in", "in/", "in/a?v=1", "in\\a"]
)
def test_keys_of_objects_follow_the_same_rules(key: str) -> None:
    assert not ExternalBlobs(("s3://depot/in",)).allows(f"s3://depot/{key}")


def test_a_base_that_says_nothing_is_refused() -> None:
    for base in ("/plain/path", "s3:depot", "file://host/x", "file:///a/../b", "file:///a\x00", "nonsense"):
        with pytest.raises(InputError):
            parse_place(base)


def test_a_link_that_appears_after_the_comparison_is_not_followed(world: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "folder").mkdir(parents=True)
    (base / "folder" / "a.txt").write_bytes(YOURS)
    places = ExternalBlobs((base.as_uri(),)).places
    for swapped, target in (("folder/a.txt", world / "secret.txt"), ("folder", world / "other")):
        found = find_below((base / "folder" / "a.txt").as_uri(), places)
        assert found is not None
        (base / swapped).rename(base / "kept")
        (base / swapped).symlink_to(target)
        with pytest.raises(GraphError):
            read_below(*found)
        (base / swapped).unlink()
        (base / "kept").rename(base / swapped)


def test_links_that_change_all_the_time_never_let_a_secret_through(world: Path, tmp_path: Path) -> None:
    base = tmp_path / "racing"
    base.mkdir()
    (base / "real").write_bytes(YOURS)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for target in ("real", str(world / "secret.txt")):
                (base / "next").symlink_to(target)
                (base / "next").rename(base / "a")

    os.symlink("real", base / "a")
    thread = threading.Thread(target=swap)
    thread.start()
    places = ExternalBlobs((base.as_uri(),)).places
    try:
        for _ in range(3_000):
            found = find_below((base / "a").as_uri(), places)
            if found is not None:
                assert read_below(*found) == YOURS
    finally:
        stop.set()
        thread.join()


def test_a_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert fetch(tmp_path, (tmp_path / "s").as_uri()) is None
        found = find_below((tmp_path / "s").as_uri(), ExternalBlobs((tmp_path.as_uri(),)).places)
        assert found is not None
        with pytest.raises(GraphError):
            read_below(*found)


INSIDE = ["a.txt", "deep", "in.txt", "out.txt", "folder", "twice", "fifo", "loop"]
AROUND = ["secret.txt", "other", "allowed", "way-in", "localhost"]
DOTS = ["..", ".", "%2e%2e", "..%2f", "%252e%252e", "%c0%ae", "\u2025", "\uff0e"]
MARKS = ["%2f", "%2F", "/", "%5c", "\\", "%252f", "%00", "%zz", "%", "~", ";", "?", "#", "@", ":", "*", "", " ", "\t"]
PIECES = st.sampled_from([*INSIDE, *AROUND, *DOTS, *MARKS])
STARTS = st.sampled_from(["file://", "FILE:", "file:", "file:/", "file:////", "File://localhost", "file://LOCALHOST/"])


@pytest.mark.long
@settings(max_examples=2_000, deadline=None)
@given(
    start=STARTS,
    inside=st.booleans(),
    pieces=st.lists(PIECES, max_size=7),
    glue=st.sampled_from(["/", "%2f", "", "//"]),
)
def test_whatever_is_put_together_no_secret_comes_out(
    world: Path, start: str, inside: bool, pieces: list[str], glue: str
) -> None:
    head = str(world / "allowed") if inside else str(world)
    assert fetch(world, f"{start}{head}/{glue.join(pieces)}") in (None, YOURS)


@settings(max_examples=500, deadline=None)
@given(
    name=st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="/\x00\\"), min_size=1, max_size=20)
)
def test_any_file_name_is_found_by_its_own_uri(world: Path, name: str) -> None:
    path = world / "allowed" / "deep" / name
    if name in (".", "..") or len(name.encode()) > 200:
        return
    uri = f"file://{quote(str(path))}"
    existed = path.exists()
    if not existed:
        path.write_bytes(YOURS)
    try:
        assert fetch(world, uri) == YOURS
    finally:
        if not existed:
            path.unlink()
