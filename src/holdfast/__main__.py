"""`holdfast`, and `python -m holdfast`.

`--help` and `--version` alone are answered from a text that is kept ready; everything else is for the command line.
"""

from __future__ import annotations

import os
import sys

from holdfast.help_text import HELP
from holdfast.version import VERSION

READY = {"--help": HELP, "-h": HELP, "--version": f"holdfast {VERSION}\n"}
"""An argument → what it prints on a terminal of 80 columns or more, if there is no other."""


def run() -> None:
    if _is_wide() and _said(READY.get(" ".join(sys.argv[1:]), "")):
        return
    # Imported late: loading click takes longer than printing the text.
    from holdfast.cli import main

    main(prog_name="holdfast")


def _is_wide() -> bool:
    if "COLUMNS" in os.environ:
        return False
    try:
        return os.get_terminal_size(1).columns >= 80
    except OSError:  # no terminal
        return True


def _said(text: str) -> bool:
    """Whether the text was printed. If not, the command line finds out why, and says so."""
    if not text or sys.stdout is None:
        return False
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (OSError, ValueError):
        return False
    return True


if __name__ == "__main__":
    run()
