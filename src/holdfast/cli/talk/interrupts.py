"""Ctrl-C while an answer comes: once stops the turn, twice leaves.

Nothing is raised the first time: the turn is told to stop, on a connection of its own, and the answer then ends by
itself, as one that was stopped. So whoever reads it reads on, and learns what was kept.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from holdfast.errors import HoldfastError


class StoppableAnswer(Protocol):
    """An answer that is being read."""

    turn_id: str | None
    """None as long as the server has not said so."""

    def hang_up(self) -> None:
        """Stop listening, now."""
        ...


class InterruptState:
    """Whether Ctrl-C was pressed."""

    pressed = False


@contextmanager
def stopping(answer: StoppableAnswer, cancel: Callable[[str], object]) -> Iterator[InterruptState]:
    """While this lasts, Ctrl-C cancels the turn of an answer; the second one raises KeyboardInterrupt."""
    stop = InterruptState()

    def heard(number: int, frame: FrameType | None) -> None:
        if stop.pressed:
            raise KeyboardInterrupt
        stop.pressed = True
        turn_id = answer.turn_id
        if turn_id is None:
            answer.hang_up()  # there is nothing to keep yet
        else:
            threading.Thread(target=_tell, args=(turn_id,), daemon=True).start()

    def _tell(turn_id: str) -> None:
        try:
            cancel(turn_id)
        except HoldfastError:
            answer.hang_up()  # nobody can be told, so nobody will tell us

    before = signal.signal(signal.SIGINT, heard)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
