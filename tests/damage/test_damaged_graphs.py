"""Whatever happens to a file of a graph, `verify` tells of it or it does no harm, and nobody meets an untyped error."""

from __future__ import annotations

import itertools
import multiprocessing
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.amounts import always_first
from tests.damage.graphs import DAMAGES, Case, Outcome, built, examine, freeze_heap

DAMAGES_EACH = 3
"""Kinds of damage that each kind of file meets; with `--thorough` every file meets every kind."""
PARTS = DAMAGES_EACH
"""The suite always has one of them for each kind of file."""
_GENERATED = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f-]{20,}|\b[0-9A-HJKMNP-TV-Z]{26}\b|[01]{20,}[0-9a-f]*|[0-9a-f]{16,}|[0-9]+"
)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return built(tmp_path_factory.mktemp("damage"))


def outcomes(cases: list[Case]) -> Iterator[Outcome]:
    """The cases one after the other, because branches name their place, in processes that forget all between two."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, freeze_heap, maxtasksperchild=25) as pool:
        yield from pool.imap(examine, cases, chunksize=1)


def _files(pristine: Path) -> list[Path]:
    return sorted(path.relative_to(pristine) for path in pristine.rglob("*") if path.is_file())


def _may_differ(case: Case) -> bool:
    """Whether a damage may change a value that nothing else tells: a property beside the key, in a data file."""
    return case.kind == "flip" and "/data/" in str(case.file)


def _judge(plain: Outcome, found: Outcome) -> str:
    """What became of a damage; anything in capitals must not happen."""
    if found.untyped:
        return "UNTYPED"
    if found.refused is not None:
        return "refused"
    # A lock that is held tells by its words alone whether its owner is gone, so whole findings are compared.
    if set(found.findings) != set(plain.findings):
        return "found"
    if found.reads == plain.reads:
        return "harmless"
    return "value changed" if _may_differ(found.case) else "MISSED"


def _run(graph: tuple[Path, Path], cases: list[Case]) -> Counter[str]:
    root, pristine = graph
    plain, *rest = outcomes([Case(root, pristine, Path(), "", 0), *cases])
    assert not plain.untyped
    assert plain.refused is None
    assert plain.reads is not None
    verdicts = Counter[str]()
    bad = []
    for outcome in rest:
        verdict = _judge(plain, outcome)
        verdicts[verdict] += 1
        if verdict.isupper():
            bad.append(f"{verdict}: {outcome.case}: {outcome.untyped}")
    print(verdicts)
    assert bad == []
    return verdicts


def _kinds_of_files(pristine: Path) -> dict[str, list[Path]]:
    """The files of a graph by what they are: names in which one generated part looks like another."""
    found: dict[str, list[Path]] = {}
    for file in _files(pristine):
        found.setdefault(_GENERATED.sub("…", str(file)), []).append(file)
    return found


@pytest.mark.long
@pytest.mark.parametrize("part", always_first(1, range(PARTS)))
def test_damage_is_reported_or_harmless(graph: tuple[Path, Path], part: int, thorough: bool) -> None:
    if thorough:
        chosen = [(file, kind) for file in _files(graph[1]) for kind in sorted(DAMAGES)]
    else:
        # Each kind of file meets most kinds of damage, as a rule each time another of its files.
        turns = [itertools.cycle(sorted(DAMAGES)), itertools.count()]
        chosen = [
            (files[next(turns[1]) % len(files)], next(turns[0]))
            for files in _kinds_of_files(graph[1]).values()
            for _ in range(DAMAGES_EACH)
        ]
    cases = [Case(*graph, file, kind, seed) for seed, (file, kind) in enumerate(chosen)]
    verdicts = _run(graph, cases[part::PARTS])
    assert verdicts["found"] + verdicts["refused"] > 50 // PARTS
    assert set(map(str, {file for file, _ in chosen})) >= {"_schema.pg", "__schema_state.json"}
