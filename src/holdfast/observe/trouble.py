"""The trouble with one thing that can fail and come back: a model, an MCP server. The log says so once per cause.

A provider that is down fails every request; a line for each of them would bury the one that matters. The log has a
warning for each new cause, and a line when the trouble is over.
"""

from __future__ import annotations

import logging

from holdfast.printable import printable

_CAUSES_MAX = 20
"""How many causes one trouble has in the log; a server that words each failure anew gets no more lines."""
_WORDS_CHARS = 300


class Trouble:
    """Whether something fails now, and why, as far as the log has been told."""

    def __init__(self, subject: str, log: logging.Logger) -> None:
        """`subject` names the thing in the log, such as `model openai/gpt-4o`."""
        self._subject = subject
        self._log = log
        self._causes: set[str] = set()
        self._times = 0

    def failed(self, cause: str, detail: str = "") -> None:
        """It has failed, for this cause; `detail` is told with it, and may be another one each time."""
        self._times += 1
        if cause not in self._causes and len(self._causes) < _CAUSES_MAX:
            self._causes.add(cause)
            words = f"{cause} ({detail})" if detail else cause
            self._log.warning("%s: it fails: %s", self._subject, printable(words[:_WORDS_CHARS]))

    def worked(self) -> None:
        """It works."""
        if self._times:
            failures = "1 failure" if self._times == 1 else f"{self._times:,} failures"
            self._causes, self._times = set(), 0
            self._log.warning("%s: it works again, after %s", self._subject, failures)

    def __repr__(self) -> str:
        return f"<Trouble {self._subject} failures={self._times}>"
