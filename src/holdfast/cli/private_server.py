"""A private server for a command that talks to agents without `--server`.

It is the same server as `holdfast serve`, in a thread of this process, on a socket in a folder that only this user may
enter. So a command always talks to agents over HTTP, and behaves the same with its own server and with another one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from holdfast.config import Config, load_config
from holdfast.observe.supervisor import start_thread
from holdfast.server.access.quota_usage import ProcessQuotaUsage
from holdfast.server.processes.numbers import OwnNumbers
from holdfast.server.processes.process_role import ReadyServer, StoppableServer
from holdfast.server.processes.server_process import serve_sources

ALONE = {"listen": "127.0.0.1:0", "auth": "off", "tls_cert": "", "tls_key": ""}
"""Settings about access: no other user reaches the socket, so no key is needed."""


@contextmanager
def private_server(sources: tuple[str, ...], store: str) -> Iterator[str]:
    """The address of a server over these sources and this store, for as long as the context lasts.

    Running turns get the usual time to finish when it ends; Ctrl-C stops them at once.
    Raises the error that keeps the server from starting.
    """
    config = load_config({**ALONE, "store": store}, os.environ, sources)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        own = _ThreadRole(Path(folder) / "socket")
        thread = start_thread("holdfast-server", partial(own.run, config))
        try:
            yield own.address.result()
        finally:
            own.stop()
            try:
                thread.join()
            except KeyboardInterrupt:
                own.stop()  # the second call stops running turns at once
                thread.join()


class _ThreadRole:
    """The `ProcessRole` of a server in a thread of this process."""

    def __init__(self, path: Path) -> None:
        self.numbers = OwnNumbers()
        self.quota_usage = ProcessQuotaUsage()
        self._path = path
        self.address: Future[str] = Future()
        """The server's URL, or the error that kept it from starting."""
        self.stop: Callable[[], None] = lambda: None
        """Stop the server, from any thread."""

    def run(self, config: Config) -> None:
        """Serve until `stop` is called."""
        try:
            asyncio.run(serve_sources(config, self))
        except BaseException as error:
            if self.address.done():
                raise
            self.address.set_exception(error)

    def listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self._path))
        return listener

    @contextmanager
    def control(self, server: StoppableServer) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        self.stop = lambda: _quietly(loop, server.stop)
        try:
            yield
        finally:
            self.stop = lambda: None

    def ready(self, ready: ReadyServer) -> None:
        self.address.set_result(ready.url)


def _quietly(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(stop)
    except RuntimeError:
        pass  # the server has ended by itself
