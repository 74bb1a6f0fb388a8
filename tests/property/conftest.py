"""What the machines of this folder have done, told at the end of a run."""

from __future__ import annotations

from collections import Counter

import pytest

PROPERTY = "differential machine"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add up the steps and the comparisons of all tests, also of those other processes have run."""
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, counts in getattr(report, "user_properties", ()):
                if name == PROPERTY and report.when == "teardown":
                    total.update(dict(counts))
    if total:
        told = ", ".join(f"{count:,} {what}" for what, count in sorted(total.items()))
        terminalreporter.write_line(f"{PROPERTY}: {told}")
