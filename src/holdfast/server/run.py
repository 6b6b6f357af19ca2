"""A server process, from its settings to its end.

SIGTERM and Ctrl-C drain: no new connections, `/readyz` says so, running turns get some time; those that are
still open then are ended by policy or handed over, their clients are told, and the store is closed last. A
second signal takes the time away.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import uvicorn

from holdfast import limits
from holdfast.config import Config
from holdfast.errors import InvalidValue, StorePoisoned
from holdfast.loop.play import Player
from holdfast.observe.events import event
from holdfast.server.app import App
from holdfast.server.auth import open_door
from holdfast.server.connection import Connection
from holdfast.server.directory import Directory
from holdfast.server.guards import Guard
from holdfast.server.listening import shown
from holdfast.server.playing import playing
from holdfast.server.quotas import Quotas
from holdfast.server.station import Ready, Station
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.lease import HeartTask, HeartThread
from holdfast.sessions.sessions import Sessions
from holdfast.store.memory import MemoryStore
from holdfast.store.open import open_store


async def serve(config: Config, directory: Directory, station: Station) -> None:
    """Serve until told to stop. `station` says where from, and hears when connections are accepted.

    Raises StorePoisoned if the store has lost its footing: whoever started us starts us again, and
    recovery reads what is really there.
    """
    alarm = _Alarm()
    with station.listen() as listener:
        store = await open_store(config.store, on_poison=alarm)
        try:
            ambient = Ambient()
            door = await open_door(
                store,
                config.auth,
                beyond_loopback=config.beyond_loopback,
                now_ms=ambient.now_ms,
            )
            # A memory store lives on this loop; any other is renewed from a thread of its own, so
            # that a loop that is busy for a while does not look like a dead process.
            heart = HeartTask() if isinstance(store, MemoryStore) else HeartThread()
            play = playing(directory.playing(Player(directory.team_for)))
            async with Sessions(
                store,
                play,
                choose=directory.choose,
                ambient=ambient,
                heart=heart,
                lease_ttl_s=config.lease_ttl_s,
                lease_renew_s=config.lease_ttl_s / 3,
                background_max=config.background_turns,
            ) as sessions:
                quotas = Quotas(
                    tenant=config.tenant_quota,
                    key=config.key_quota,
                    playing=sessions.turns_of,
                    accounts=station.accounts,
                )
                app = App(
                    sessions,
                    directory,
                    names=config.names,
                    policy=config.policy,
                    deadline_s=config.turn_deadline_s,
                    expire_after_s=config.expire_after_s,
                    busy_status=config.busy_status,
                    guard=Guard(
                        config.hosts, origins=config.cors_origins, proxies=config.trusted_proxies
                    ),
                    door=door,
                    quotas=quotas,
                    numbers=station.numbers,
                )
                ready = Ready(
                    url=shown(listener, tls=config.tls is not None),
                    node=str(sessions.lease.node),
                    agents=tuple(each.id for each in directory.entries()),
                    broken=tuple(each.source for each in directory.broken()),
                )
                server = HttpServer(
                    app, sessions, on_ready=lambda: station.ready(ready), tls=config.tls
                )
                alarm.stop = server.hurry
                async with station.numbers.showing(sessions, refresh=quotas.refresh):
                    with station.heeding(server):
                        await server.serve(sockets=[listener])
        finally:
            await store.close()
    alarm.check()


class _Alarm:
    """Ends the server when its store has stopped for good. Rung from the store's threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._error: StorePoisoned | None = None
        self.stop: Callable[[], None] = lambda: None

    def __call__(self, error: StorePoisoned) -> None:
        self._loop.call_soon_threadsafe(self._ring, error)

    def _ring(self, error: StorePoisoned) -> None:
        self._error = error
        self.stop()

    def check(self) -> None:
        """Raise what the alarm was rung for, if it was."""
        if self._error is not None:
            raise self._error


class HttpServer(uvicorn.Server):
    """uvicorn, which says when it is ready, and lets turns end before it does."""

    def __init__(
        self,
        app: App,
        sessions: Sessions,
        *,
        on_ready: Callable[[], None],
        tls: tuple[str, str] | None = None,
    ) -> None:
        """`tls` are the files with a certificate and its key. Raises InvalidValue if they cannot be."""
        grace_s = limits.drain_grace_s + 2 * limits.ending_grace_s
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http=Connection,
                ws="none",  # a connection that is asked to be one finds its protocol itself
                ws_max_size=limits.body_bytes_max,
                ws_per_message_deflate=False,  # text in small pieces, and a window of memory for each of us
                ws_ping_interval=limits.heartbeat_s,
                ws_ping_timeout=limits.heartbeat_s,
                lifespan="off",
                log_config=None,  # whoever runs us says where logs go
                log_level="error",  # what is wrong with a request is told to who sent it
                access_log=False,
                server_header=False,
                proxy_headers=False,  # nobody is let in or kept out by an address
                date_header=False,
                timeout_keep_alive=limits.keep_alive_s,
                timeout_graceful_shutdown=round(grace_s),
                ssl_certfile=tls[0] if tls else None,
                ssl_keyfile=tls[1] if tls else None,
            )
        )
        try:
            self.config.load()
        except OSError as error:  # of which ssl's are a kind
            raise InvalidValue(
                f"TLS cannot be served with {' and '.join(tls or ())}: {error.strerror or error}; "
                "both have to be readable PEM files that belong together"
            ) from error
        self._app = app
        self._sessions = sessions
        self._on_ready = on_ready
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Drain; when it is said again, hurry."""
        event("server.draining", hurry=self.should_exit)
        self._app.drain()
        self.force_exit = self.should_exit
        self.should_exit = True
        self._stopping.set()

    def drain(self) -> None:
        """Drain; saying it again changes nothing."""
        if not self.should_exit:
            self.stop()

    def hurry(self) -> None:
        """Stop without giving anybody time: there is nothing left that could be finished."""
        self.stop()
        self.force_exit = True

    async def main_loop(self) -> None:
        await (
            self._stopping.wait()
        )  # uvicorn's own looks every 100 ms whether there is anything to do

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.drain()
        closing = asyncio.create_task(self._end_turns())
        await super().shutdown(sockets)
        if self.force_exit:
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            await self._sessions.close(grace_s=0.0)
        else:
            await closing

    async def _end_turns(self) -> None:
        """Let turns finish for a while, end or hand over the rest, and see that their clients hear of it."""
        await self._sessions.close(grace_s=limits.drain_grace_s)
        answering = set(self.server_state.tasks)
        if answering:
            _, late = await asyncio.wait(answering, timeout=limits.ending_grace_s)
            for task in late:  # they wait for turns that another server will end
                task.cancel()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        # uvicorn's would raise the signal once more when it is done, and end us before our store is closed.
        return nullcontext()
