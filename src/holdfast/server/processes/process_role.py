"""The role of a server process: alone on its port, or one of several workers.

The role decides how the process gets its socket, what stops it, and where it reports that it is ready.
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
from holdfast.server.processes.reload_signal import ALWAYS_RELOAD, hangup_handler


class ReadyServer(Value):
    """A server that accepts connections."""

    url: str
    node: str
    agents: tuple[str, ...]
    broken: tuple[str, ...] = ()
    """Sources that cannot be loaded as they are now."""


class StoppableServer(Protocol):
    """A server as its process role controls it."""

    def stop(self) -> None:
        """Drain; when called again, hurry."""
        ...

    def drain(self) -> None:
        """Drain; calling it again changes nothing."""
        ...

    def hurry(self) -> None:
        """Stop at once, without time for turns to finish."""
        ...

    def reload(self) -> None:
        """Read the agents, the certificate and the log files again."""
        ...


class ProcessRole(Protocol):
    @property
    def numbers(self) -> Numbers:
        """The numbers of the whole server."""
        ...

    @property
    def quota_usage(self) -> QuotaUsage:
        """The quota usage of tenants and keys, over all workers of the server."""
        ...

    def listen(self) -> socket.socket:
        """The bound socket to accept on. Raises InvalidValue if it cannot be bound."""
        ...

    def control(self, server: StoppableServer) -> AbstractContextManager[None]:
        """A context in which signals, or orders of the supervisor, stop and reload the server."""
        ...

    def ready(self, ready: ReadyServer) -> None:
        """Report that the server accepts connections."""
        ...


class SoleProcess:
    """The only process on its port, stopped by signals: the first drains, the second hurries."""

    def __init__(self, host: str, port: int, *, on_ready: Callable[[ReadyServer], None]) -> None:
        self.numbers = OwnNumbers()
        self.quota_usage = ProcessQuotaUsage()
        self._address = host, port
        self._on_ready = on_ready

    def listen(self) -> socket.socket:
        return listen(*self._address)

    def control(self, server: StoppableServer) -> AbstractContextManager[None]:
        return handle_signals(server.stop, server.reload)

    def ready(self, ready: ReadyServer) -> None:
        self._on_ready(ready)


@contextmanager
def handle_signals(stop: Callable[[], None], reload: Callable[[], None]) -> Iterator[None]:
    """Call `stop` for each SIGTERM and SIGINT, `reload` for each SIGUSR1 and SIGUSR2, and for each SIGHUP `reload`, or
    `stop` if the terminal has closed."""
    loop = asyncio.get_running_loop()
    handled: list[signal.Signals] = []
    hung_up = hangup_handler(reload, stop)
    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: hung_up}
    try:
        for each, handler in (handlers | dict.fromkeys(ALWAYS_RELOAD, reload)).items():
            loop.add_signal_handler(each, handler)
            handled.append(each)
    except (ValueError, RuntimeError):
        pass  # only a main thread gets signals; a caller that serves in another thread stops the server itself
    try:
        yield
    finally:
        for each in handled:
            loop.remove_signal_handler(each)
