"""A server that is down is one line in the log, not one for each request; and one when it is back."""

from __future__ import annotations

import logging

import pytest

from holdfast.observe.trouble import Trouble


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records]


def test_each_cause_is_told_once_until_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble("model a/b", logging.getLogger("test"))
    trouble.worked()
    for n, cause in enumerate(("503", "timeout", "503", "timeout")):
        trouble.failed(cause, f"after {n} s" if cause == "timeout" else "")
    trouble.worked()
    trouble.worked()
    trouble.failed("503")
    assert lines(caplog) == [
        "model a/b: it fails: 503",
        "model a/b: it fails: timeout (after 1 s)",
        "model a/b: it works again, after 4 failures",
        "model a/b: it fails: 503",
    ]


def test_causes_are_bounded_and_forge_no_line(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble("model a/b", logging.getLogger("test"))
    for n in range(100):
        trouble.failed(f"{n}\nroot logged in {'x' * 1000}")
    assert len(lines(caplog)) == 20
    assert all("\n" not in each and len(each) < 400 for each in lines(caplog))
