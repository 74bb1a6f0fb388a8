"""What a walk over a graph found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be: `code` names the rule, `subject` what breaks it."""

    code: str
    subject: str
    message: str


@dataclass
class VerifyReport:
    """What a walk found. `problems` need somebody; `notes` pass by themselves."""

    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    branches: int = 0
    tables: int = 0
    rows: int = 0
    commits: int = 0

    @property
    def clean(self) -> bool:
        """True when nothing is wrong."""
        return not self.problems

    def add(self, part: VerifyReport) -> None:
        """Take in what a part of the walk found."""
        self.problems += part.problems
        self.notes += part.notes
        self.branches += part.branches
        self.tables += part.tables
        self.rows += part.rows
        self.commits += part.commits

    def problem(self, code: str, subject: str, message: str) -> None:
        """Add something that is wrong."""
        self.problems.append(Finding(code, subject, message))

    def note(self, code: str, subject: str, message: str) -> None:
        """Add something that is unusual but settles by itself."""
        self.notes.append(Finding(code, subject, message))
