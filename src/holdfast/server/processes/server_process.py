"""A server process, from its settings to its end.

SIGTERM and Ctrl-C drain: the server accepts no new connections, `/readyz` says so, and running turns get some time.
Turns that are still open then are ended by policy or handed over, their clients get an error, and the store is closed
last. A second signal ends the wait. SIGHUP reads agents and certificate again, and reopens the log files.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import uvicorn

from holdfast import limits
from holdfast.config import Config
from holdfast.errors import InvalidValue, StorePoisoned
from holdfast.libraries import load_wanted
from holdfast.loop.player import Player
from holdfast.observe.events import event, flush_log, warn
from holdfast.observe.log_files import reopen_all, standard_files
from holdfast.observe.recent_log import RecentLog
from holdfast.observe.supervisor import TaskSupervisor, start_thread
from holdfast.server.access.authentication import make_authenticator
from holdfast.server.access.confinement import require_for_tenants
from holdfast.server.access.quotas import Quotas
from holdfast.server.agents.directory import Directory
from holdfast.server.agents.source_directory import load_directory
from holdfast.server.app import App
from holdfast.server.http.body_memory import BodyMemory, memory_bytes
from holdfast.server.http.connection import connection_class
from holdfast.server.http.connection_register import ConnectionRegister
from holdfast.server.http.listen_sockets import shown
from holdfast.server.http.origin_guard import OriginGuard
from holdfast.server.processes.dependency_parts import demand_parts
from holdfast.server.processes.file_descriptors import FileDescriptors
from holdfast.server.processes.number_history import NumberHistory
from holdfast.server.processes.process_role import ProcessRole, ReadyServer
from holdfast.server.processes.reload_signal import reload_part
from holdfast.server.turns.turn_failures import with_failure_codes
from holdfast.server.turns.turn_requests import TurnSettings
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.sessions import Sessions
from holdfast.store.memory_store import MemoryStore
from holdfast.store.store_url import InFile, InMemory, InPostgres, open_store, parse_url
from holdfast.tools.files.reserved_files import NamePattern, ReservedFiles
from holdfast.tools.mcp.logins import login_files
from holdfast.tools.sandbox.sandbox import Sandbox


async def serve_sources(config: Config, role: ProcessRole, *, cache: Path | None = None) -> None:
    """Load the agents that the settings name, and serve them until stopped. Copies of remote sources are kept in
    `cache`, if there is one. Raises SourceUnusable, and what `serve` raises."""
    sandbox = Sandbox(config.sandbox)
    supervisor = TaskSupervisor()
    directory = await load_directory(
        config.sources,
        aliases=dict(config.model_aliases),
        cache=cache,
        trust_remote=config.trust_remote,
        reserved=files_of(config),
        tenants=config.tenant_agents,
        sandbox=sandbox,
        supervisor=supervisor,
    )
    try:
        await serve(config, directory, role, supervisor, sandbox=sandbox)
    finally:
        await directory.close()


async def serve(
    config: Config,
    directory: Directory,
    role: ProcessRole,
    supervisor: TaskSupervisor,
    *,
    sandbox: Sandbox | None = None,
) -> None:
    """Serve until stopped. `role` gives the socket, is told when connections are accepted, and stops the server;
    `supervisor` keeps the tasks that live as long as the process; `sandbox` is where the agents' commands run.

    Raises StorePoisoned if the store can no longer trust its own state: the process must be started again, and
    recovery then reads what is really on disk.
    """
    alarm, recent = _Alarm(), RecentLog()
    with recent.attached(), role.listen() as listener:
        store = await open_store(config.store, on_poison=alarm, supervisor=supervisor)
        try:
            ambient = Ambient()
            authenticator = await make_authenticator(
                store,
                config.auth,
                beyond_loopback=not config.listen.is_loopback,
                now_ms=ambient.now_ms,
            )
            if sandbox is not None:
                await require_for_tenants(sandbox, store)
            play = with_failure_codes(Player(directory.team_for, tally=supervisor.tally))
            async with Sessions(
                store,
                play,
                choose=directory.choose,
                ambient=ambient,
                # A memory store lives on this loop; any other is renewed from a thread of its own, so
                # that a loop that is busy for a while does not look like a dead process.
                heart_in_thread=not isinstance(store, MemoryStore),
                supervisor=supervisor,
                lease_ttl_s=config.lease_ttl_s,
                lease_renew_s=config.lease_ttl_s / 3,
                background_max=config.background_turns,
            ) as sessions:
                quotas = Quotas(
                    tenant=config.quota("tenant"),
                    key=config.quota("key"),
                    playing=sessions.turns_of,
                    usage=role.quota_usage,
                )
                history = NumberHistory(sessions, role.numbers)
                app = App(
                    sessions,
                    directory,
                    turns=TurnSettings(
                        names=config.conversation_headers,
                        policy=config.turn_policy,
                        deadline_s=config.turn_deadline_s,
                        expire_after_s=config.expire_after_s,
                    ),
                    busy_status=config.busy_status,
                    guard=OriginGuard(
                        config.hosts,
                        origins=config.cors_origins,
                        proxies=config.trusted_proxies,
                        names=config.conversation_headers,
                    ),
                    authenticator=authenticator,
                    quotas=quotas,
                    numbers=role.numbers,
                    bodies=BodyMemory(memory_bytes(processes=config.workers)),
                    approve_in_chat=config.approve_in_chat,
                    currency=config.currency,
                    history=history,
                    mcp_resources=config.mcp_resources,
                    on_loopback=config.listen.is_loopback,
                    recent=recent,
                    published=config.a2a_agents,
                )
                ready = ReadyServer(
                    url=shown(listener, tls=config.tls is not None),
                    node=str(sessions.lease.node),
                    agents=tuple(each.id for each in directory.entries()),
                    broken=tuple(each.source for each in directory.broken()),
                )
                server = HttpServer(
                    app,
                    sessions,
                    on_ready=lambda: role.ready(ready),
                    refresh=directory.refresh,
                    tls=config.tls,
                    register=ConnectionRegister.of_files(config.trusted_proxies),
                )
                alarm.stop = server.hurry
                showing = role.numbers.showing(sessions, refresh=quotas.refresh)
                async with showing, history.keeping():
                    with role.control(server):
                        await server.serve(sockets=[listener])
        finally:
            await store.close()
    alarm.check()


def files_of(config: Config) -> ReservedFiles:
    """The files that no tool may reach: the store's file, all files whose names begin with its name, the TLS key, and
    logins with their key. Tools may read the TLS certificate, but not change it."""
    tls = [os.path.abspath(each) for each in config.tls or ()]  # a certificate, and its key
    files = set(tls[1:])
    names: set[NamePattern] = set()
    match parse_url(config.store):
        case InFile(path=path):
            files.add(os.path.abspath(path))  # links on the way to it are reserved, too
            for each in (os.path.abspath(path), os.path.realpath(path)):
                names.add(
                    NamePattern(directory=os.path.dirname(each), begin=os.path.basename(each))
                )
        case InPostgres() | InMemory():
            pass
    return login_files(config.login_key, config.logins) | ReservedFiles(
        files=frozenset(files), names=frozenset(names), readable=frozenset(tls).difference(files)
    )


class _Alarm:
    """Stops the server when its store has failed for good. Called from the store's threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._error: StorePoisoned | None = None
        self.stop: Callable[[], None] = lambda: None

    def __call__(self, error: StorePoisoned) -> None:
        self._loop.call_soon_threadsafe(self._ring, error)

    def _ring(self, error: StorePoisoned) -> None:
        warn("store.poisoned", why=str(error))
        self._error = error
        self.stop()

    def check(self) -> None:
        """Raise the store's error, if there was one."""
        if self._error is not None:
            raise self._error


class _Connections(set[Any]):
    """The open connections, with a way to wait until all have ended. uvicorn adds and removes them."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def discard(self, connection: object) -> None:
        super().discard(connection)
        self._changed.set()

    def remove(self, connection: object) -> None:
        super().remove(connection)
        self._changed.set()

    async def wait_empty(self) -> None:
        while self:
            self._changed.clear()
            await self._changed.wait()


UVICORN = (
    "capture_signals",
    "config",
    "force_exit",
    "main_loop",
    "serve",
    "server_state",
    "servers",
    "should_exit",
    "shutdown",
    "started",
    "startup",
)
"""The parts of uvicorn's server that we use."""
demand_parts("uvicorn", uvicorn.Server, *UVICORN)


class HttpServer(uvicorn.Server):
    """uvicorn's server, which also reports when it is ready, and lets turns end before it stops."""

    def __init__(
        self,
        app: App,
        sessions: Sessions,
        *,
        on_ready: Callable[[], None],
        refresh: Callable[[], Awaitable[None]] | None = None,
        tls: tuple[str, str] | None = None,
        register: ConnectionRegister | None = None,
    ) -> None:
        """`refresh` checks the agents' sources for changes, `register` bounds the connections (without it there is no
        bound), `tls` are the files with a certificate and its key. Raises InvalidValue if those cannot be used.
        """
        grace_s = limits.drain_grace_s + 2 * limits.ending_grace_s
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http=connection_class(register or ConnectionRegister()),
                ws="none",  # our `Connection` chooses the WebSocket protocol itself
                ws_max_size=limits.body_bytes_max,
                ws_per_message_deflate=False,  # small messages gain little, and each window costs memory
                ws_ping_interval=limits.heartbeat_s,
                ws_ping_timeout=limits.heartbeat_s,
                lifespan="off",
                log_config=None,  # the operator's settings say where logs go
                log_level="error",  # a bad request is answered with an error, and needs no log line
                access_log=False,
                server_header=False,
                proxy_headers=False,  # `OriginGuard` reads them, and only from proxies that the operator has named
                date_header=False,
                timeout_keep_alive=limits.keep_alive_s,
                timeout_graceful_shutdown=round(grace_s),
                ssl_certfile=tls[0] if tls else None,
                ssl_keyfile=tls[1] if tls else None,
            )
        )
        try:
            self.config.load()
        except OSError as error:  # ssl's errors are OSErrors, too
            raise InvalidValue(
                f"TLS cannot be served with {' and '.join(tls or ())}: {error.strerror or error}; "
                "both have to be readable PEM files that belong together"
            ) from error
        self._app = app
        self._sessions = sessions
        self._on_ready = on_ready
        self._refresh = refresh
        self._tls = tls
        self._logs = standard_files()
        self._files = FileDescriptors(sessions.tally.files_exhausted)
        self._reloading: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._connections = self.server_state.connections = _Connections()

    def stop(self) -> None:
        """Drain; when called again, hurry."""
        event("server.draining", hurry=self.should_exit)
        self._app.drain()
        if self.should_exit:
            self._hurry()
        self.should_exit = True
        self._stopping.set()

    def drain(self) -> None:
        """Drain; calling it again changes nothing."""
        if not self.should_exit:
            self.stop()

    def hurry(self) -> None:
        """Stop at once, without time for turns to finish."""
        self.stop()
        self._hurry()

    def _hurry(self) -> None:
        self.force_exit = True
        self._hurrying.set()

    def reload(self) -> None:
        """Reopen the log files, and read the certificate and the agents' sources again. A part that cannot be read
        stays as it was, and the failure is logged."""
        if self.should_exit:
            return
        with reload_part("log"):
            reopen_all(self._logs)
        if self._tls is not None and self.config.ssl is not None:
            with reload_part("tls"):
                self.config.ssl.load_cert_chain(*self._tls)
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._reload(), name="holdfast-reload")

    async def _reload(self) -> None:
        with reload_part("agents"):
            if self._refresh is not None:
                await self._refresh()
            event("server.reloaded")

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        supervisor = self._sessions.supervisor
        keys = supervisor.keep("keys", self._app.keys.look)
        try:
            await super().serve(sockets)
        finally:
            await supervisor.stop(keys)

    async def main_loop(self) -> None:
        while not self._stopping.is_set():
            self._files.look()
            flush_log()
            try:
                async with asyncio.timeout(limits.files_look_s):
                    await self._stopping.wait()
            except TimeoutError:
                pass

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()
            start_thread("libraries", load_wanted)  # which no request should wait for

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As in uvicorn, but woken by the last connection or a second signal, where uvicorn checks every 100 ms."""
        self._app.drain()
        closing = asyncio.create_task(self._end_turns())
        for server in self.servers:
            server.close()
        for listener in sockets or ():
            listener.close()
        for connection in list(self._connections):
            connection.shutdown()
        quiet = asyncio.create_task(self._wait_quiet())
        hurry = asyncio.create_task(self._hurrying.wait())
        await asyncio.wait(
            {quiet, hurry},
            timeout=self.config.timeout_graceful_shutdown,
            return_when=asyncio.FIRST_COMPLETED,
        )
        for late in (quiet, hurry, *([] if self.force_exit else self.server_state.tasks)):
            late.cancel()
        if self.force_exit:
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            await self._sessions.close(grace_s=0.0)
        else:
            await closing

    async def _wait_quiet(self) -> None:
        """Wait until every connection has ended and every request was answered."""
        await self._connections.wait_empty()
        while self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks)

    async def _end_turns(self) -> None:
        """Let turns finish for a while, end or hand over the rest, and let their requests be answered."""
        await self._sessions.close(grace_s=limits.drain_grace_s)
        answering = set(self.server_state.tasks)
        if answering:
            _, late = await asyncio.wait(answering, timeout=limits.ending_grace_s)
            for task in late:  # these requests wait for turns that another server will end
                task.cancel()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        # uvicorn's version raises the signal again at the end, which would kill the process before its store is closed.
        return nullcontext()
