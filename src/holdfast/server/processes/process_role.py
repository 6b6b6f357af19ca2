"""Where a server process stands: alone on its port, or as one of several workers.

What differs is how it comes by its socket, who tells it to stop, and who hears that it is ready.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from holdfast.core.codec import Value
from holdfast.server.access.quota_usage import ProcessQuotaUsage, QuotaUsage
from holdfast.server.http.listen_sockets import listen
from holdfast.server.processes.numbers import Numbers, OwnNumbers
from holdfast.server.processes.reload_signal import hangup_handler


class ReadyServer(Value):
    """A server that accepts connections."""

    url: str
    node: str
    agents: tuple[str, ...]
    broken: tuple[str, ...] = ()
    """Sources that are not served."""


class StoppableServer(Protocol):
    """What a station may ask of a server."""

    def stop(self) -> None:
        """Drain; when it is said again, hurry."""
        ...

    def drain(self) -> None:
        """Drain; saying it again changes nothing."""
        ...

    def hurry(self) -> None:
        """Stop without giving anybody time."""
        ...

    def reload(self) -> None:
        """Read anew what it was started with."""
        ...


class ProcessRole(Protocol):
    @property
    def numbers(self) -> Numbers:
        """The numbers of all who serve here."""
        ...

    @property
    def accounts(self) -> QuotaUsage:
        """What everybody has used up, with all who serve here."""
        ...

    def listen(self) -> socket.socket:
        """The socket to accept on, bound. Raises InvalidValue if there cannot be one."""
        ...

    def heeding(self, server: StoppableServer) -> AbstractContextManager[None]:
        """Stop the server when it is to stop, and reload it when it is to do that."""
        ...

    def ready(self, ready: ReadyServer) -> None:
        """Connections are accepted."""
        ...


class SoleProcess:
    """One process on its port, stopped by signals: once drains, twice is a hurry."""

    def __init__(self, host: str, port: int, *, on_ready: Callable[[ReadyServer], None]) -> None:
        self.numbers = OwnNumbers()
        self.accounts = ProcessQuotaUsage()
        self._address = host, port
        self._on_ready = on_ready

    def listen(self) -> socket.socket:
        return listen(*self._address)

    def heeding(self, server: StoppableServer) -> AbstractContextManager[None]:
        return heeding_signals(server.stop, server.reload)

    def ready(self, ready: ReadyServer) -> None:
        self._on_ready(ready)


@contextmanager
def heeding_signals(stop: Callable[[], None], reload: Callable[[], None]) -> Iterator[None]:
    """Call `stop` for each SIGTERM and SIGINT, and `reload` for each SIGHUP, unless that means that a terminal has gone."""
    loop = asyncio.get_running_loop()
    heeded: list[signal.Signals] = []
    hung_up = hangup_handler(reload, stop)
    handlers = ((signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGHUP, hung_up))
    try:
        for each, handler in handlers:
            loop.add_signal_handler(each, handler)
            heeded.append(each)
    except (ValueError, RuntimeError):
        pass  # only a main thread gets signals; whoever runs us in another one stops us otherwise
    try:
        yield
    finally:
        for each in heeded:
            loop.remove_signal_handler(each)
