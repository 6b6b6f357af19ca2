"""What a test has started and left fails that test, and no other: whichever is under way when garbage is collected."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import pytest_runtest_teardown

WAITS = [sys.executable, "-c", "input()"]


class Cycle:
    """Garbage that only a collector finds."""

    def __init__(self, held: object) -> None:
        self.held, self.itself = held, self


def test_a_program_that_is_left_to_the_collector_fails_the_test_that_started_it() -> None:
    ending = pytest_runtest_teardown()
    next(ending)
    process = subprocess.Popen(WAITS, stdin=subprocess.PIPE)
    pid, left = process.pid, Cycle(process)
    del process, left
    with pytest.raises(pytest.fail.Exception, match=f"subprocess {pid} is still running"):
        ending.send(None)


def test_a_program_that_was_waited_for_fails_nothing() -> None:
    ending = pytest_runtest_teardown()
    next(ending)
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE):
        pass
    with pytest.raises(StopIteration):
        ending.send(None)
