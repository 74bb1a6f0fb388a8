"""Failpoints do what their text says, and nothing when nobody configured them."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from omnigraph import failpoints
from omnigraph.errors import InputError
from omnigraph.testing.failpoints import CRASH_EXIT_CODE, FailpointPlan, InjectedFailure, configured

NAME = failpoints.SIDECAR_LIST


def test_nothing_happens_unless_configured() -> None:
    failpoints.maybe_fail(NAME)


def test_return_raises_an_error_that_names_the_place() -> None:
    with configured(f"{NAME}=return") as plan, pytest.raises(InjectedFailure, match=NAME):
        failpoints.maybe_fail(NAME)
    assert plan.hits(NAME) == 1
    failpoints.maybe_fail(NAME)


def test_a_count_runs_out_and_a_sequence_goes_on() -> None:
    with configured(f"{NAME}=1*off->2*return->off"):
        failpoints.maybe_fail(NAME)
        for _ in range(2):
            with pytest.raises(InjectedFailure):
                failpoints.maybe_fail(NAME)
        failpoints.maybe_fail(NAME)


def test_pause_blocks_until_released() -> None:
    with configured(f"{NAME}=pause") as plan:
        passed = threading.Event()

        def run() -> None:
            failpoints.maybe_fail(NAME)
            passed.set()

        thread = threading.Thread(target=run)
        thread.start()
        assert plan.wait_until_reached(NAME)
        assert not passed.is_set()
        plan.release(NAME)
        thread.join(5)
        assert passed.is_set()


def test_exit_ends_the_process() -> None:
    code = (
        "from omnigraph import failpoints\n"
        "from omnigraph.testing.failpoints import FailpointPlan\n"
        f"failpoints.install(FailpointPlan('{NAME}=exit'))\n"
        f"failpoints.maybe_fail('{NAME}')\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == CRASH_EXIT_CODE


@pytest.mark.parametrize("text", ["no.such.point=return", f"{NAME}=explode", f"{NAME}", f"{NAME}=x*return"])
def test_a_wrong_plan_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        FailpointPlan(text)
