"""A server of one's own: for a command that talks to agents, and has nobody to talk to.

The same server as `holdfast serve`, in a thread of this process, on a socket in a folder that only this user may
enter. So a command has one way to talk, and what it sees here is what it will see of a server elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from holdfast.config import Config, load_config
from holdfast.loop.play import Player
from holdfast.server.agents import AgentDirectory, load_directory
from holdfast.server.app import App
from holdfast.server.playing import playing
from holdfast.server.run import HttpServer
from holdfast.sessions.lease import HeartTask, HeartThread
from holdfast.sessions.sessions import Sessions
from holdfast.store.base import Store
from holdfast.store.memory import MemoryStore
from holdfast.store.open import open_store


@contextmanager
def private_server(sources: tuple[str, ...], store: str) -> Iterator[str]:
    """The address of a server over these sources and this store, for as long as the context lasts.

    Turns that are running when it ends get the time that a server gives them; Ctrl-C takes it away.
    Raises what keeps the server from starting.
    """
    config = load_config({"store": store}, os.environ, sources)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        running = _Running(config, Path(folder) / "socket")
        try:
            yield running.ready.result()
        finally:
            running.end()


class _Running:
    """A server in its thread."""

    def __init__(self, config: Config, path: Path) -> None:
        self.ready: Future[str] = Future()
        """Where it listens, or why it does not."""
        self._stop: Callable[[], None] = lambda: None
        self._thread = threading.Thread(
            target=self._run, args=(config, path), name="holdfast-private", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        self._stop()
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self._stop()  # the second time means at once
            self._thread.join()

    def _run(self, config: Config, path: Path) -> None:
        try:
            asyncio.run(self._serve(config, path))
        except BaseException as error:
            if self.ready.done():
                raise
            self.ready.set_exception(error)

    async def _serve(self, config: Config, path: Path) -> None:
        directory = await load_directory(config.sources, aliases=dict(config.model_aliases))
        try:
            store = await open_store(config.store)
            try:
                await self._serve_on(path, config, directory, store)
            finally:
                await store.close()
        finally:
            await directory.close()

    async def _serve_on(
        self, path: Path, config: Config, directory: AgentDirectory, store: Store
    ) -> None:
        heart = HeartTask() if isinstance(store, MemoryStore) else HeartThread()
        play = playing(directory.playing(Player(directory.team_for)))
        async with Sessions(store, play, choose=directory.choose, heart=heart) as sessions:
            app = App(sessions, directory, policy=config.policy, deadline_s=config.turn_deadline_s)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(str(path))
                ready = partial(self.ready.set_result, f"unix:{path}")
                server = HttpServer(app, sessions, on_ready=ready)
                with self._heeding(server.stop):
                    await server.serve(sockets=[listener])

    @contextmanager
    def _heeding(self, stop: Callable[[], None]) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        self._stop = lambda: _quietly(loop, stop)
        try:
            yield
        finally:
            self._stop = lambda: None


def _quietly(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(stop)
    except RuntimeError:
        pass  # it has ended by itself
