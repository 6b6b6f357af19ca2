"""Input lines of a person at a terminal: edited, with a history, joined where they go on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Self

from holdfast.cli.talk.input_commands import completions, is_unfinished, joined

try:
    import readline as _found
except ImportError:  # Python can be built without it: then there is only the terminal's own editing
    readline: ModuleType | None = None
else:
    readline = _found

HISTORY_LINES = 2_000
FIRST, MORE = "› ", "… "


class Lines:
    """Reads input lines. Their history is a file that only this user may read; without a writable home none is kept."""

    def __init__(self, history: Path) -> None:
        self._history = history
        self._is_kept = False

    def __enter__(self) -> Self:
        if readline is not None:
            readline.clear_history()
            self._is_kept = self._recall(readline)
            readline.set_history_length(HISTORY_LINES)
            readline.set_completer_delims(" ")
            readline.set_completer(_complete)
            is_libedit = "libedit" in (readline.__doc__ or "")
            readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
        return self

    def __exit__(self, *_: object) -> None:
        if readline is not None and self._is_kept:
            try:
                readline.write_history_file(self._history)
            except OSError:
                return  # the disk is full, or gone: the messages are in the conversation anyway

    def _recall(self, reader: ModuleType) -> bool:
        """Load the history. False if there is no home, or it is read-only."""
        try:
            self._history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self._history, os.O_CREAT | os.O_RDWR, 0o600))
            reader.read_history_file(self._history)
        except OSError:
            return False
        return True

    def read(self) -> str | None:
        """The next input; None at the end. Ctrl-C drops what was typed, and raises KeyboardInterrupt."""
        lines: list[str] = []
        try:
            lines.append(input(FIRST))
            while is_unfinished(lines):
                lines.append(input(MORE))
        except EOFError:
            sys.stdout.write("\n")
            return joined(lines) if lines else None
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            raise
        return joined(lines)


def _complete(text: str, n: int) -> str | None:
    return [*completions(text), None][n] if text.startswith("/") else None
