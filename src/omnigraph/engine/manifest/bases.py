"""Every commit that a merge between any two of many commits is compared with, found in one walk.

Asked pair by pair, a hundred branches are five thousand questions. Instead each commit is told which of the heads come
from it, as the bits of one integer, from children to parents. Two heads have a commit as a base when both come from it
and no child of it has both; so a commit that has a child with all of its heads is the base of none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field

from omnigraph.ids import CommitId

Parents = Callable[[CommitId], tuple[CommitId, ...]]


class Bases(Struct, frozen=True):
    """The bases of all pairs, and the pairs that have several, whose bases have bases in turn."""

    commits: set[CommitId] = field(default_factory=set)
    crossed: set[tuple[CommitId, CommitId]] = field(default_factory=set)


def bases_of_all(parents: Parents, heads: Iterable[CommitId]) -> Bases:
    """What merges between any two of some commits are compared with.

    >>> line = {"a": (), "b": ("a",), "c": ("b",), "x": ("a",), "y": ("b",)}
    >>> sorted(bases_of_all(line.__getitem__, ["c", "x", "y"]).commits)
    ['a', 'b']
    """
    ordered = sorted(set(heads))
    own = {head: 1 << place for place, head in enumerate(ordered)}
    below: dict[CommitId, set[int]] = {}
    once = [0] * len(ordered)
    found = Bases()
    for commit in _children_first(parents, ordered):
        parts = below.pop(commit, set())
        if commit in own:
            parts.add(own[commit])
        together = _union(parts)
        if together not in parts:
            for members, apart in _parted(together, parts):
                found.commits.add(commit)
                for place in _places(members):
                    found.crossed.update((ordered[place], ordered[other]) for other in _places(once[place] & apart))
                    once[place] |= apart
        for parent in parents(commit):
            below.setdefault(parent, set()).add(together)
    return found


def _children_first(parents: Parents, heads: Iterable[CommitId]) -> Iterator[CommitId]:
    """The commits and everything they come from, each after all of these that come from it."""
    children: dict[CommitId, int] = dict.fromkeys(heads, 0)
    todo = list(children)
    while todo:
        for parent in parents(todo.pop()):
            if parent not in children:
                children[parent] = 0
                todo.append(parent)
            children[parent] += 1
    ready = [commit for commit, count in children.items() if not count]
    while ready:
        commit = ready.pop()
        yield commit
        for parent in parents(commit):
            children[parent] -= 1
            if not children[parent]:
                ready.append(parent)


def _parted(together: int, parts: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The heads that come from a commit, in groups, and for each the heads that this commit alone joins it with."""
    groups = [(together, 0)]
    for part in parts:
        groups = [
            (members, joined)
            for whole, known in groups
            for members, joined in ((whole & part, known | part), (whole & ~part, known))
            if members
        ]
    for members, joined in groups:
        if together & ~joined:
            yield members, together & ~joined


def _union(parts: Iterable[int]) -> int:
    together = 0
    for part in parts:
        together |= part
    return together


def _places(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
