"""A generated community: people, projects and topics, as files in the load format.

The same seed gives the same bytes. Whole columns are made at once, so the full size, 100,000 nodes and 500,000 edges,
takes a moment; popularity is skewed, as it is among people, so that the queries have something to find.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from omnigraph.engine.embedding import make_embedder


def _words(text: str) -> list[str]:
    return text.split()


FIRST_NAMES = _words(
    "Ada Alan Amara Anders Aoi Barbara Bea Carlos Chidi Clara Dana Dennis Edsger Elif Emeka Fatima Frances Grace Hana"
    " Hedy Ines Ivan Jean Joan Kaito Katherine Ken Lena Leslie Linus Lin Malik Margaret Maria Mateo Mina Nadia Niklaus"
    " Noor Olga Omar Priya Radia Ravi Rosa Sofia Tariq Tim Tove Yuki"
)
LAST_NAMES = _words(
    "Abara Alvarez Andersen Bauer Becker Boyd Castro Chen Costa Dahl Diaz Eriksen Farah Fischer Garcia Haddad Hansen"
    " Hopper Ibrahim Ito Jansen Johnson Kaya Keller Khan Kim Kimani Lamport Larsen Lee Lovelace Mbeki Mori Moreau Novak"
    " Okafor Okoye Perez Popov Rossi Santos Sato Silva Singh Suzuki Tanaka Torres Weber Yamada Zhang"
)
ADJECTIVES = _words(
    "amber brave bright calm clever cosmic crisp deft eager early fleet gentle golden grand humble keen lively lucid"
    " lunar mellow mighty nimble noble open patient plain polar proud quick quiet rapid serene sharp silent simple"
    " solar solid steady swift tidy"
)
NOUNS = _words(
    "anchor anvil atlas beacon bridge broker canvas compass conduit crane engine falcon forge garden harbor kettle"
    " kiln ladder lantern ledger lens loom magnet mill mirror mosaic needle orchard parser pilot pulley quarry router"
    " sail scale signal sparrow spindle thread weaver"
)
TOPIC_SUBJECTS = _words("audio chess compilers databases games graphs maps music networks parsing robotics search")
TOPIC_ASPECTS = _words("analysis bindings formats learning protocols simulation testing tools visuals")
CITIES = _words("amsterdam berlin lagos lisbon nairobi osaka quito seattle")
LANGUAGES = _words("c go java python rust typescript")
ROLES = _words("author owner reviewer")
MEANING_DIMENSION = 256


class Size(Struct, frozen=True):
    """How many of each; the defaults make 100,000 nodes and 500,000 edges."""

    people: int = 70_000
    projects: int = 29_900
    topics: int = 100
    follows: int = 250_000
    maintains: int = 90_000
    depends_on: int = 100_000
    about: int = 60_000

    @property
    def nodes(self) -> int:
        """Nodes in all."""
        return self.people + self.projects + self.topics

    @property
    def edges(self) -> int:
        """Edges in all."""
        return self.follows + self.maintains + self.depends_on + self.about


SMALL = Size(people=700, projects=299, topics=10, follows=2_500, maintains=900, depends_on=1_000, about=600)
"""A hundredth of the full size, for a first try."""


def schema() -> str:
    """The schema of the community, in the schema language."""
    return _shipped("community.pg")


def queries() -> str:
    """The queries of the story, in the query language."""
    return _shipped("community.gq")


def write_files(folder: Path, *, size: Size = Size(), seed: int = 7) -> list[Path]:  # noqa: B008
    """Write one JSONL file per type below `folder` and return them, node files first."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    handles, people = _people(rng, size.people)
    slugs, projects = _projects(rng, size.projects)
    topics = _topics(size.topics)
    files = {
        "person": people,
        "project": projects,
        "topic": _lines('{"type":"Topic","data":{"name":"', topics, '","meaning":', _meanings(topics), "}}"),
        "follows": _follows(rng, handles, size.follows),
        "maintains": _maintains(rng, handles, slugs, size.maintains),
        "depends_on": _depends_on(rng, slugs, size.depends_on),
        "about": _about(rng, slugs, topics, size.about),
    }
    written = []
    for name, lines in files.items():
        path = folder / f"{name}.jsonl"
        path.write_bytes(b"\n".join(lines.cast(pa.binary()).to_pylist()) + b"\n")
        written.append(path)
    return written


def _people(rng: np.random.Generator, count: int) -> tuple[pa.Array, pa.Array]:
    first, last = _pick(rng, FIRST_NAMES, count), _pick(rng, LAST_NAMES, count)
    number = _numbers(np.arange(count))
    handles = _joined(pc.utf8_lower(first), "-", pc.utf8_lower(last), "-", number)
    reputation = _numbers((100_000 * rng.random(count) ** 6).astype(np.int64))
    lines = _lines(
        *('{"type":"Person","data":{"handle":"', handles, '","name":"', first, " ", last, '","city":"'),
        *(_pick(rng, CITIES, count), '","joined":"', _dates(rng, count, "2008-01-01", 6_000)),
        *('","reputation":', reputation, "}}"),
    )
    return handles, lines


def _projects(rng: np.random.Generator, count: int) -> tuple[pa.Array, pa.Array]:
    adjective, noun = _pick(rng, ADJECTIVES, count), _pick(rng, NOUNS, count)
    number = _numbers(np.arange(count))
    slugs = _joined(adjective, "-", noun, "-", number)
    stars = _numbers((200_000 * rng.random(count) ** 30).astype(np.int64))
    archived = pc.if_else(pa.array(rng.random(count) < 0.1), "true", "false")
    language = _pick(rng, LANGUAGES, count)
    subject, aspect = _pick(rng, TOPIC_SUBJECTS, count), _pick(rng, TOPIC_ASPECTS, count)
    summary = _joined("A ", adjective, " ", noun, " for ", subject, " ", aspect, ", written in ", language)
    lines = _lines(
        *('{"type":"Project","data":{"slug":"', slugs, '","title":"', pc.utf8_capitalize(adjective), " ", noun),
        *(" ", number, '","summary":"', summary, '","language":"', language, '","stars":', stars, ',"created":"'),
        *(_dates(rng, count, "2010-01-01", 5_500), '","archived":', archived, "}}"),
    )
    return slugs, lines


def _topics(count: int) -> pa.Array:
    names = [f"{subject}-{aspect}" for subject in TOPIC_SUBJECTS for aspect in TOPIC_ASPECTS]
    if count > len(names):
        raise ValueError(f"there are {len(names)} topics to choose from, not {count}")
    return pa.array(names[:count])


def _meanings(topics: pa.Array) -> pa.Array:
    """What each topic is about, as a vector of the model that reads texts given to `nearest`."""
    texts = pc.replace_substring(topics, "-", " ").to_pylist()
    vectors = make_embedder().embed_documents(texts, MEANING_DIMENSION)
    return pa.array([json.dumps([round(float(value), 5) for value in vector]) for vector in vectors])


def _follows(rng: np.random.Generator, handles: pa.Array, count: int) -> pa.Array:
    people = len(handles)
    source, target = _distinct_pairs(rng, people, people, count)
    return _edges(
        *("Follows", handles, source, handles, target),
        *(',"data":{"since":"', _dates(rng, count, "2015-01-01", 3_900), '"}}'),
    )


def _maintains(rng: np.random.Generator, handles: pa.Array, slugs: pa.Array, count: int) -> pa.Array:
    source, target = _distinct_pairs(rng, len(handles), len(slugs), count)
    return _edges("Maintains", handles, source, slugs, target, ',"data":{"role":"', _pick(rng, ROLES, count), '"}}')


def _depends_on(rng: np.random.Generator, slugs: pa.Array, count: int) -> pa.Array:
    source, target = _distinct_pairs(rng, len(slugs), len(slugs), count)
    optional = pc.if_else(pa.array(rng.random(count) < 0.2), "true", "false")
    return _edges("DependsOn", slugs, source, slugs, target, ',"data":{"optional":', optional, "}}")


def _about(rng: np.random.Generator, slugs: pa.Array, topics: pa.Array, count: int) -> pa.Array:
    source, target = _distinct_pairs(rng, len(slugs), len(topics), count)
    return _edges("About", slugs, source, topics, target, "}")


def _distinct_pairs(
    rng: np.random.Generator, sources: int, targets: int, count: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Exactly `count` different pairs without loops; low numbers are popular targets."""
    found = np.empty(0, dtype=np.int64)
    while len(found) < count:
        source = rng.integers(0, sources, size=count)
        target = (targets * rng.random(count) ** 2.5).astype(np.int64)
        fresh = (source * targets + target)[source != target]
        found = np.unique(np.concatenate([found, fresh]))
    chosen = rng.permutation(found)[:count]
    return chosen // targets, chosen % targets


def _edges(
    edge: str,
    source_ids: pa.Array,
    source: np.ndarray[Any, Any],
    target_ids: pa.Array,
    target: np.ndarray[Any, Any],
    *rest: pa.Array | str,
) -> pa.Array:
    start = (f'{{"edge":"{edge}","from":"', source_ids.take(pa.array(source)), '","to":"')
    return _lines(*start, target_ids.take(pa.array(target)), '"', *rest)


def _pick(rng: np.random.Generator, choices: list[str], count: int) -> pa.Array:
    return pa.array(choices).take(pa.array(rng.integers(0, len(choices), size=count)))


def _numbers(values: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _dates(rng: np.random.Generator, count: int, start: str, days: int) -> pa.Array:
    values = np.datetime64(start, "D") + rng.integers(0, days, size=count).astype("timedelta64[D]")
    return pa.array(values).cast(pa.string())


def _joined(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


_lines = _joined


def _shipped(name: str) -> str:
    return resources.files("omnigraph.examples").joinpath(name).read_text(encoding="utf-8")
