"""The trouble with one thing that can fail and come back: a model, a tool, the store. The log says so once per cause.

A provider that is down fails every request; a line for each of them would bury the one that matters. The log has a
warning for each new cause, and a line when the trouble is over: when the thing works, and has not failed for a minute.
So a provider that refuses every other request is one line, too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable

from holdfast.printable import printable

STEADY_S = 60.0
"""How long a thing that is asked often must not have failed, for its trouble to be over."""

_CAUSES_MAX = 20
"""How many causes one trouble has in the log; a server that words each failure anew gets no more lines."""
_WORDS_CHARS = 300


class Trouble:
    """Whether something fails now, and why, as far as the log has been told."""

    def __init__(
        self,
        subject: str,
        log: logging.Logger,
        *,
        steady_s: float | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`subject` names the thing in the log, such as `model openai/gpt-4o`."""
        self._subject = subject
        self._log = log
        self._steady_s = STEADY_S if steady_s is None else steady_s
        self._now_s = now_s
        self._causes: set[str] = set()
        self._times = 0
        self._last_s = 0.0

    def failed(self, cause: str, detail: str = "", *, error: Exception | None = None) -> None:
        """It has failed, for this cause; `detail` is told with it, and may be another one each time, and so is the stack
        trace of `error`."""
        self._times += 1
        self._last_s = self._now_s()
        if cause not in self._causes and len(self._causes) < _CAUSES_MAX:
            self._causes.add(cause)
            words = f"{cause} ({detail})" if detail else cause
            words = printable(words[:_WORDS_CHARS])
            self._log.warning("%s: it fails: %s", self._subject, words, exc_info=error)

    def worked(self) -> None:
        """It works."""
        if self._times and self._now_s() - self._last_s >= self._steady_s:
            failures = "1 failure" if self._times == 1 else f"{self._times:,} failures"
            self._causes, self._times = set(), 0
            self._log.warning("%s: it works again, after %s", self._subject, failures)

    def __repr__(self) -> str:
        return f"<Trouble {self._subject} failures={self._times}>"


class Troubles:
    """The troubles of several things, of which most never have any."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._known: dict[Hashable, Trouble] = {}

    def failed(self, thing: Hashable, subject: str, cause: str, detail: str = "") -> None:
        """A thing has failed; `subject` names it in the log. See `Trouble.failed`."""
        if thing not in self._known:
            self._known[thing] = Trouble(subject, self._log)
        self._known[thing].failed(cause, detail)

    def worked(self, thing: Hashable) -> None:
        """A thing works."""
        if thing in self._known:
            self._known[thing].worked()
