"""Ctrl-C while an answer comes."""

from __future__ import annotations

import signal
import threading

import pytest

from holdfast.cli.talk.interrupts import stopping
from holdfast.errors import ServerUnreachable


class Answering:
    def __init__(self, turn_id: str | None) -> None:
        self.turn_id = turn_id
        self.hung_up = threading.Event()

    def hang_up(self) -> None:
        self.hung_up.set()


def test_the_first_one_cancels_the_turn_and_the_second_one_raises() -> None:
    answer, told = Answering("turn_1"), threading.Event()

    def cancel(turn_id: str) -> None:
        assert turn_id == "turn_1"
        told.set()

    before = signal.getsignal(signal.SIGINT)
    with stopping(answer, cancel) as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.pressed
        assert told.wait(30)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert not answer.hung_up.is_set()
    assert signal.getsignal(signal.SIGINT) == before


def test_before_there_is_a_turn_it_hangs_up() -> None:
    answer = Answering(None)
    with stopping(answer, lambda turn_id: pytest.fail("there is none")):
        signal.raise_signal(signal.SIGINT)
        assert answer.hung_up.is_set()


def test_if_nobody_can_be_told_it_hangs_up() -> None:
    answer = Answering("turn_1")

    def cancel(turn_id: str) -> None:
        raise ServerUnreachable("http://a", "gone")

    with stopping(answer, cancel):
        signal.raise_signal(signal.SIGINT)
        assert answer.hung_up.wait(30)
