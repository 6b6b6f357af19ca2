"""The last warnings and errors of this process, kept in memory for operators who look after the fact."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from holdfast import limits
from holdfast.observe.events import log_words


class LogLine(Struct, frozen=True):
    """A record of the log. It has no stack trace, and no secret."""

    at: float
    """Seconds since 1970."""
    level: str
    log: str
    words: str


class RecentLog(logging.Handler):
    """Keeps the last records from WARNING up."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: deque[LogLine] = deque(maxlen=limits.recent_log_lines_max)

    def emit(self, record: logging.LogRecord) -> None:
        words = log_words(record)[: limits.recent_log_chars_max]
        level = record.levelname.lower()
        self._lines.append(LogLine(at=record.created, level=level, log=record.name, words=words))

    @property
    def lines(self) -> tuple[LogLine, ...]:
        """The newest first."""
        return tuple(reversed(self._lines))

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Listen to the whole log of the process."""
        root = logging.getLogger()
        root.addHandler(self)
        try:
            yield
        finally:
            root.removeHandler(self)
