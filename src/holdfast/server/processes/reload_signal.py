"""SIGHUP: a server reads its files again, or stops if its terminal has closed.

A daemon has no terminal, so an operator who sends it SIGHUP wants its files read again: after a rotation of the log,
for a new certificate or a changed agent. A server that was started in a terminal gets the same signal when the window
is closed, and should then stop as with Ctrl-C; unless it was started to ignore that (`nohup`).

Other daemons open their logs again at SIGUSR1, or replace themselves at SIGUSR2. A process that does not know these
signals is ended by them, so a server takes them for the same wish.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.observe.events import warn

log = logging.getLogger("holdfast.server")

ALWAYS_RELOAD = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that no closed terminal sends."""


@contextmanager
def reload_part(what: str) -> Iterator[None]:
    """A context for reading one part again. An error is logged, and the other parts are read all the same.

    An error that does not come from the file system is a bug of ours, and is logged with its trace.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError):
            log.error("%s: reloading failed unexpectedly", what, exc_info=error)
        warn("server.not_reloaded", what=what, why=f"{type(error).__name__}: {error}")


def has_terminal() -> bool:
    """Whether this process has a controlling terminal, even if its input and output are redirected."""
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
    """The handler for SIGHUP: it calls `reload`, or `end` if the process has a terminal now and lost it by then."""
    may_lose_it = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    def hung_up() -> None:
        if may_lose_it and not has_terminal():
            end()
        else:
            reload()

    return hung_up
