"""A server that is down is one line in the log, not one for each request; and one when it is back."""

from __future__ import annotations

import logging

import pytest

from holdfast.observe.trouble import STEADY_S, Trouble, Troubles


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records]


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_each_cause_is_told_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    trouble = Trouble("model a/b", logging.getLogger("test"), now_s=clock)
    trouble.worked()
    for n, cause in enumerate(("503", "timeout", "503", "timeout")):
        trouble.failed(cause, f"after {n} s" if cause == "timeout" else "")
    clock.now_s += STEADY_S
    trouble.worked()
    trouble.worked()
    trouble.failed("503")
    assert lines(caplog) == [
        "model a/b: it fails: 503",
        "model a/b: it fails: timeout (after 1 s)",
        "model a/b: it works again, after 4 failures",
        "model a/b: it fails: 503",
    ]


def test_a_thing_that_fails_now_and_then_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    trouble = Trouble("model a/b", logging.getLogger("test"), now_s=clock)
    for _ in range(100):
        trouble.failed("429")
        clock.now_s += STEADY_S / 2
        trouble.worked()
    assert lines(caplog) == ["model a/b: it fails: 429"]
    clock.now_s += STEADY_S / 2
    trouble.worked()
    assert lines(caplog)[1:] == ["model a/b: it works again, after 100 failures"]


def test_things_that_are_asked_once_are_over_at_once(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble("tools of a.py", logging.getLogger("test"), steady_s=0)
    trouble.failed("SyntaxError")
    trouble.worked()
    assert lines(caplog)[1:] == ["tools of a.py: it works again, after 1 failure"]


def test_several_things_have_troubles_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles(logging.getLogger("test"))
    troubles.worked("look")
    for name in ("look", "book", "look"):
        troubles.failed(name, f"clerk: tool {name}", "OSError")
    assert lines(caplog) == [
        "clerk: tool look: it fails: OSError",
        "clerk: tool book: it fails: OSError",
    ]


def test_causes_are_bounded_and_forge_no_line(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble("model a/b", logging.getLogger("test"))
    for n in range(100):
        trouble.failed(f"{n}\nroot logged in {'x' * 1000}")
    assert len(lines(caplog)) == 20
    assert all("\n" not in each and len(each) < 400 for each in lines(caplog))
