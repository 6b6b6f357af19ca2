"""Ctrl-C while an answer comes: once stops the turn, twice leaves.

The first Ctrl-C raises nothing: it cancels the turn over a second connection, and the answer then ends by itself as
cancelled. So the code that reads the answer reads on to its end, and learns what was kept.
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
    """None until the server has named the turn."""

    def hang_up(self) -> None:
        """Close the connection now."""
        ...


class InterruptState:
    """Whether Ctrl-C was pressed."""

    pressed = False


@contextmanager
def stopping(answer: StoppableAnswer, cancel: Callable[[str], object]) -> Iterator[InterruptState]:
    """While this lasts, Ctrl-C cancels the turn of an answer; the second one raises KeyboardInterrupt."""
    stop = InterruptState()

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if stop.pressed:
            raise KeyboardInterrupt
        stop.pressed = True
        turn_id = answer.turn_id
        if turn_id is None:
            answer.hang_up()  # there is nothing to keep yet
        else:
            threading.Thread(target=_cancel, args=(turn_id,), daemon=True).start()

    def _cancel(turn_id: str) -> None:
        try:
            cancel(turn_id)
        except HoldfastError:
            answer.hang_up()  # the cancel did not arrive, so the answer would not end by it

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
