"""What SIGHUP means to a server: read everything anew. It ends one only if its terminal has gone.

A daemon has no terminal to lose, so who sends it SIGHUP wants its files read again: after a rotation of the log, a new
certificate, a changed agent. A server that somebody has started in a terminal gets the same signal when the window is
closed, and should end as with Ctrl-C then; unless it was told not to mind (`nohup`).
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.observe.events import warn

log = logging.getLogger("holdfast.server")


@contextmanager
def reading_anew(what: str) -> Iterator[None]:
    """Inside, one part is read anew. Whatever goes wrong is told, and the other parts are read all the same.

    An error that no file system makes is a mistake of ours, and is logged with its trace.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError):
            log.error("%s: reading it anew failed unexpectedly", what, exc_info=error)
        warn("server.not_reloaded", what=what, why=f"{type(error).__name__}: {error}")


def has_terminal() -> bool:
    """Whether this process has a controlling terminal, whatever its input and output are."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def hangup_handler(
    reload: Callable[[], None],
    end: Callable[[], None],
    *,
    has_terminal: Callable[[], bool] = has_terminal,
) -> Callable[[], None]:
    """What to do on SIGHUP: `reload`, or `end` if the terminal that there is now will have gone."""
    may_lose_it = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    def hung_up() -> None:
        if may_lose_it and not has_terminal():
            end()
        else:
            reload()

    return hung_up
