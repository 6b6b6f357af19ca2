"""SIGHUP has a server read its files anew; it ends one only if its terminal has gone."""

from __future__ import annotations

import signal

import pytest

from holdfast.server.processes.reload_signal import hangup_handler


class Terminal:
    def __init__(self, *, there: bool) -> None:
        self.there = there

    def __call__(self) -> bool:
        return self.there


@pytest.fixture(autouse=True)
def heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a run that was started by nohup."""
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_DFL)


def said_to(terminal: Terminal, *, goes: bool = False) -> list[str]:
    said: list[str] = []
    handler = hangup_handler(
        lambda: said.append("reload"), lambda: said.append("end"), has_terminal=terminal
    )
    terminal.there = terminal.there and not goes
    handler()
    return said


def test_a_daemon_has_no_terminal_to_lose() -> None:
    assert said_to(Terminal(there=False)) == ["reload"]


def test_a_server_in_a_terminal_reloads_too_if_it_is_told_to() -> None:
    assert said_to(Terminal(there=True)) == ["reload"]


def test_a_server_whose_window_is_closed_ends_as_with_ctrl_c() -> None:
    assert said_to(Terminal(there=True), goes=True) == ["end"]


def test_a_server_that_was_told_not_to_mind_goes_on_without_its_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)
    assert said_to(Terminal(there=True), goes=True) == ["reload"]
