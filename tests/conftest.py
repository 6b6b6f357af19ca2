"""What every test run shares: how properties are searched, and what a skip means."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import warnings
from collections.abc import Generator
from functools import wraps
from types import FrameType
from typing import Any

import hypothesis
import pytest

from tests.means import Skipped, closing_block
from tests.scratch import MEMORY

# A run tries the same examples each time, so that it passes each time or fails each time; `make torture-claims` tries
# `long`. To look for new ones: pytest --hypothesis-profile=explore
hypothesis.settings.register_profile(
    "steady", max_examples=40, derandomize=True, deadline=None, print_blob=True
)
hypothesis.settings.register_profile(
    "long", max_examples=200, derandomize=True, deadline=None, print_blob=True
)
hypothesis.settings.register_profile("explore", max_examples=2000, deadline=None, print_blob=True)
# For mutants: one failure is enough, and nobody reads it.
hypothesis.settings.register_profile(
    "hunt", max_examples=300, derandomize=True, deadline=None, phases=[hypothesis.Phase.generate]
)
hypothesis.settings.load_profile("steady")

# Where `tmp_path` lies. Few tests are about disks, and those have one of their own.
if MEMORY is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


class TimeIsOver(BaseException):
    """A test has taken longer than it may. Hypothesis lets it through: a test that failed it would try to shrink, for
    as long as that takes, and nothing would end it any more."""


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item) -> Generator[None, object, object]:
    done = yield
    fail = signal.getsignal(signal.SIGALRM)
    if callable(fail):

        def end(number: int, frame: FrameType | None) -> None:
            try:
                fail(number, frame)
            except pytest.fail.Exception as error:
                raise TimeIsOver(str(error)) from None

        signal.signal(signal.SIGALRM, end)
    return done


STARTED: list[str] = []
"""The programs that the test under way has started."""


_start = subprocess.Popen.__init__


@wraps(_start)
def _start_and_note(process: subprocess.Popen[Any], *arguments: Any, **options: Any) -> None:
    _start(process, *arguments, **options)
    STARTED.append(str(process.args))


subprocess.Popen.__init__ = _start_and_note  # type: ignore[assignment, method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """A test that leaves a program to the collector fails itself: else the test fails in whose time garbage is collected."""
    done = yield
    if STARTED:
        with warnings.catch_warnings(record=True) as left:
            warnings.simplefilter("always")
            gc.collect()
        started = ", ".join(STARTED)
        STARTED.clear()
        if left:
            told = "\n".join(str(each.message) for each in left)
            pytest.fail(f"left behind by a test that started {started}:\n{told}", pytrace=False)
    return done


LONG = ("tests/torture/", "tests/replicas/", "tests/test_deployment.py")
"""Tests that wait for half a minute each, with nothing to compute."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits longest begins first, beside all others: a run that came to it last would wait for nothing else."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


SKIP_IS_FAILURE = bool(os.environ.get("CI"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays until the end: no collection of garbage need look at it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With CI set, a run that left something out has not passed."""
    if SKIP_IS_FAILURE and _skipped(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = closing_block(_skipped(config))
    if not lines:
        return
    terminalreporter.section("left out" + (", and CI is set: failed" if SKIP_IS_FAILURE else ""))
    for line in lines:
        terminalreporter.write_line(line)


def _skipped(config: pytest.Config) -> list[Skipped]:
    """What was skipped, tests and whole modules. Worker processes of xdist know nothing of it."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return []
    return [
        Skipped(reason=str(report.longrepr[2]).removeprefix("Skipped: "), test=report.nodeid)
        for report in reporter.stats.get("skipped", [])
    ]
