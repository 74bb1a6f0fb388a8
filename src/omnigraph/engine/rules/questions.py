"""How rules across rows are checked: which questions are asked, in which order.

Kinds of rules are tried one after the other, and the first that is broken is reported. The questions are about sets of
rows: which tuples are repeated, which ids are missing, how many edges there are. Whoever has the rows answers them:
Arrow in memory, slices of files, Spark joins. What an answer means is said by the rule that was asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct, field

from omnigraph.catalog.model import Catalog
from omnigraph.engine.rules.statement import Answer, Degree, End, Finding, Identity, Rule, Unique, rules_of
from omnigraph.ids import TableKey

SHOWN_MAX = 20
ACROSS_ROWS = (Rule.UNIQUE, Rule.REFERENCE, Rule.CARDINALITY)
"""The kinds of rules that no row breaks by itself, in the order in which they are tried."""


class Answers(Struct, frozen=True):
    """The first violations by position, and how many there are."""

    shown: Sequence[Answer]
    count: int

    def __add__(self, others: Answers) -> Answers:
        return Answers([*self.shown, *others.shown], self.count + others.count)


NONE = Answers((), 0)


class Questions(Protocol):
    """What is asked about the rows that come in, and about what is committed and stays."""

    @property
    def changed(self) -> Sequence[TableKey]:
        """The tables that change, in order."""

    def repeated(self, rule: Unique) -> Answers:
        """Incoming rows whose complete tuple an earlier one has, then those whose tuple an entity holds that stays.

        Of an `Identity` only the former. The values are the tuple.
        """

    def taken(self, rule: Identity) -> Answer | None:
        """The first incoming row whose id must be new and is not; its value is the id."""

    def missing(self, ends: Sequence[End]) -> Answers:
        """Incoming edges with an end that is no node afterwards; the values are the number of the end, and the node."""

    def orphaned(self, end: End) -> Answers:
        """Edges that stay while the node they name disappears; the values are the edge and the node."""

    def miscounted(self, rule: Degree) -> Answers:
        """Touched sources with too many or too few edges afterwards; the values are the source and its edges."""


class Findings(Struct):
    """Violations of one kind: some of them in full, and how many there are.

    `conflict` is an id that had to be new and is taken; it goes before all others.
    """

    shown: list[Finding] = field(default_factory=list)
    count: int = 0
    conflict: Finding | None = None

    def add(self, answers: Answers, finding: Callable[[Answer], Finding]) -> None:
        """Take over the violations of one rule."""
        self.shown += map(finding, answers.shown)
        self.count += answers.count


def broken(kind: Rule, catalog: Catalog, asked: Questions) -> Findings:
    """What breaks the rules of one kind."""
    findings = Findings()
    for key in asked.changed:
        rules = rules_of(catalog, key)
        if kind is Rule.UNIQUE:
            twice = asked.repeated(rules.identity)
            findings.add(twice, rules.identity.broken_by)
            if twice.count:
                continue  # An entity that is given twice has its unique values twice as well.
            taken = None if findings.count else asked.taken(rules.identity)
            if taken is not None:
                findings.conflict = Finding(kind, key, taken.values[0], ("id",), None, "", taken.position)
                break
            for rule in rules.uniques:
                findings.add(asked.repeated(rule), rule.broken_by)
        elif kind is Rule.REFERENCE:
            ends = rules.ends
            if ends:
                findings.add(asked.missing(ends), lambda answer, ends=ends: ends[answer.values[0]].missing(answer))  # type: ignore[misc]
            for end in rules.named_by:
                findings.add(asked.orphaned(end), end.orphan)
        elif rules.degree is not None:
            findings.add(asked.miscounted(rules.degree), rules.degree.broken_by)
    return findings
