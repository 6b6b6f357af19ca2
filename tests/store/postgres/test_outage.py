"""The database goes away and comes back, runs out of connections, or is not what we need."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

import asyncpg
import pytest

from holdfast.errors import StoreClosed, StoreError, StoreUnavailable, StoreUnusable
from holdfast.ids import NodeId
from holdfast.observe.supervisor import TaskSupervisor
from holdfast.sessions.turns.lease import Lease
from holdfast.store.outcomes import Committed
from holdfast.store.postgres import migration as migrating
from holdfast.store.postgres import pool
from holdfast.store.postgres.address import parse_address
from holdfast.store.postgres.migration import load_migrations
from holdfast.store.postgres.queries import compiled
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sql.migrations import Migration
from holdfast.store.store_url import open_existing
from holdfast.testing import ManualClock
from tests.postgres import SAFE, Server
from tests.store import archive
from tests.store.builders import ACME, Player
from tests.store.postgres.conftest import LONG_MS, Open, impatient, random_mint

CONNECTIONS = 12
"""How many a server of ours has, all of which its owner may take."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that this module may mistreat."""
    connections = {"max_connections": str(CONNECTIONS), "superuser_reserved_connections": "3"}
    with Server.started({**SAFE, **connections}) as found:
        yield found


@pytest.fixture
async def remote(server: Server) -> str:
    return server.url(await asyncio.to_thread(server.fresh_database))


async def test_a_store_outlives_its_servers_crash(server: Server, remote: str) -> None:
    """What was acknowledged is there, and what was under way goes on as if nothing had been."""
    store = await PostgresStore.open(parse_address(f"{remote}?timeout=60&listen=off"))
    player = Player(store, random_mint())
    await player.renew(ttl_ms=LONG_MS)
    await player.play("trip", "One", "First")
    turn = await player.open("trip", "Two", replayable=True)
    await asyncio.to_thread(server.crash)
    waiting = asyncio.create_task(turn.answer("Second"))
    await asyncio.to_thread(server.start)
    await waiting
    assert isinstance(await turn.commit(), Committed)
    assert (await player.snapshot("trip")).version == 2
    await store.close()


async def test_while_the_server_is_away_the_store_says_so_in_time(
    server: Server, remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await PostgresStore.open(parse_address(f"{remote}?timeout=60&listen=off"))
    await asyncio.to_thread(server.stop)
    try:
        with impatient(store, monkeypatch):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="retry in"):
                await store.tenants()
            assert time.monotonic() - began < 20
        with pytest.raises(StoreUnavailable):
            await PostgresStore.open(parse_address(f"{remote}?timeout=0.2"))
    finally:
        await asyncio.to_thread(server.start)
    assert await store.tenants() == ()
    await store.close()


async def test_a_server_without_a_free_connection_is_unavailable(
    remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await PostgresStore.open(parse_address(remote))).close()
    # What is told is what the last try met, so there is one, and it has all the time that it needs.
    for name in ("BACKOFF_FIRST_S", "BACKOFF_MOST_S"):
        monkeypatch.setattr(pool, name, 3600.0)
    taken: list[asyncpg.Connection] = []
    try:
        # A server lets go of a connection some time after it was closed: before we have all of them, one may come free.
        while len(taken) < CONNECTIONS:
            with suppress(asyncpg.TooManyConnectionsError):
                taken.append(await asyncpg.connect(remote))
        with pytest.raises(StoreUnavailable, match=r"53300.*retry"):
            await PostgresStore.open(parse_address(f"{remote}?timeout=60"))
    finally:
        for each in taken:
            await each.close()


async def test_connections_that_are_killed_are_replaced(ada: Player, url: str) -> None:
    await ada.play("trip")
    admin = await asyncpg.connect(url)
    await admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name = 'holdfast' and pid <> pg_backend_pid() and datname = current_database()"
    )
    await admin.close()
    await ada.play("trip")
    assert (await ada.snapshot("trip")).version == 2


async def test_a_pool_is_no_larger_than_it_was_told(open_store: Open, url: str) -> None:
    store = await open_store(pool_size="3")
    admin = await asyncpg.connect(url)
    before = await _connections(admin)
    await asyncio.gather(*(store.tenants() for _ in range(40)))
    assert await _connections(admin) <= before + 3
    await admin.close()


async def _connections(admin: asyncpg.Connection) -> int:
    found: int = await admin.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database()"
    )
    return found


async def test_somebody_who_holds_a_row_is_not_waited_for_for_ever(
    open_store: Open, ada: Player, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = await ada.open("trip")
    store = await open_store(timeout="60")
    stranger = await asyncpg.connect(url)
    held = stranger.transaction()
    await held.start()
    await stranger.execute("select from holdfast.session for update")
    with impatient(store, monkeypatch), pytest.raises(StoreUnavailable, match="in time"):
        await store.remove(ACME, turn.session_id)
    await held.rollback()
    await stranger.close()
    # Whether that one still happened was not known; asking again tells.
    assert (await store.remove(ACME, turn.session_id)).state == "deleted"


async def test_a_caller_that_is_cancelled_leaves_a_pool_that_works(postgres: PostgresStore) -> None:
    for _ in range(30):
        task = asyncio.create_task(postgres.tenants())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await asyncio.gather(*(postgres.tenants() for _ in range(30))) == [()] * 30


async def test_a_closed_store_says_that_it_is_closed(open_store: Open) -> None:
    store = await open_store()
    await store.close()
    with pytest.raises(StoreClosed):
        await store.tenants()
    await store.close()


async def test_a_heart_beats_in_a_thread_of_its_own(postgres: PostgresStore) -> None:
    """Connections belong to a loop; whoever comes from another one gets one of its own."""
    node = random_mint()(NodeId)
    lease = Lease(postgres, node, monotonic=time.monotonic, renew_s=0.01)
    beats, beaten = count(1), threading.Event()

    async def beat() -> None:
        await lease.beat()
        if next(beats) == 3:
            beaten.set()

    heart = await TaskSupervisor().keep_in_thread("heart", beat)
    assert await asyncio.to_thread(beaten.wait, 30)
    await heart.stop()
    assert lease.is_live
    await lease.resign()


async def test_a_login_that_is_taken_away_for_a_while_ends_nothing(
    server: Server, remote: str
) -> None:
    """A password is changed, a role is locked: at start that is a mistake to be told at once, later it is an outage."""
    name = remote.rpartition("/")[2]
    await asyncio.to_thread(server.execute, f'create role "{name}" login superuser')
    store = await PostgresStore.open(
        parse_address(remote.replace("//holdfast@", f"//{name}@") + "?timeout=60&listen=off")
    )
    player = Player(store, random_mint())
    await player.renew(ttl_ms=LONG_MS)
    turn = await player.open("trip", "One")
    ended = f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{name}'"
    await asyncio.to_thread(server.execute, f'alter role "{name}" nologin', ended)
    store.engine.timeout_s = 0.2
    with pytest.raises(StoreUnavailable):
        await player.renew(ttl_ms=LONG_MS)
    elsewhere = store.engine.like(size=1)
    with pytest.raises(StoreUnavailable):
        await elsewhere.run(lambda db: db.script("select"))
    store.engine.timeout_s = 60
    answering = asyncio.create_task(turn.answer("First"))
    await asyncio.to_thread(server.execute, f'alter role "{name}" login')
    await answering
    assert isinstance(await turn.commit(), Committed)
    await elsewhere.close()
    await store.close()


# ── what a database must be ──────────────────────────────────────────────────────────────────


async def test_a_database_that_is_not_there_is_refused_at_once(server: Server) -> None:
    with pytest.raises(StoreUnusable, match="no_such_database"):
        await PostgresStore.open(parse_address(server.url("no_such_database")))


async def test_a_database_that_acknowledges_before_it_has_synced_is_refused(
    server: Server, remote: str
) -> None:
    name = remote.rpartition("/")[2]
    await asyncio.to_thread(server.execute, f'alter database "{name}" set synchronous_commit = off')
    # Through a pooler we cannot ask for more than the database gives.
    with pytest.raises(StoreUnusable, match="synchronous_commit = on"):
        await PostgresStore.open(parse_address(f"{remote}?pgbouncer=true"))
    await (await PostgresStore.open(parse_address(remote))).close()


ODD_SETTINGS = (
    "array_nulls = off",
    "bytea_output = escape",
    "client_encoding = latin1",
    "datestyle = 'SQL, DMY'",
    "default_transaction_isolation = serializable",
    "search_path = ''",
    "standard_conforming_strings = off",
    "timezone = 'Asia/Kathmandu'",
    "transform_null_equals = on",
)


async def test_what_is_stored_does_not_depend_on_the_settings_of_a_database(server: Server) -> None:
    """An operator may have set them for other programs, and what is written in another way would be damaged for good."""
    held = []
    for settings in ((), ODD_SETTINGS):
        name = await asyncio.to_thread(server.fresh_database)
        setting = [f'alter database "{name}" set {each}' for each in settings]
        await asyncio.to_thread(server.execute, *setting)
        clock = ManualClock()
        address = parse_address(server.url(name, pgbouncer="true"))
        store = await PostgresStore.open(address, clock=clock.now_ms)
        held.append(await archive.play(store, clock))
        await store.close()
    assert held[0] == held[1]


async def test_an_older_version_leaves_a_newer_database_alone(
    url: str, postgres: PostgresStore
) -> None:
    newer = "insert into holdfast.migration (number, name) values (99, 'later')"
    await postgres.engine.run(lambda db: db.script(newer))
    try:
        with pytest.raises(StoreUnusable, match="newer Holdfast"):
            await PostgresStore.open(parse_address(url))
    finally:
        await postgres.engine.run(
            lambda db: db.script("delete from holdfast.migration where number = 99")
        )


async def test_a_migration_that_fails_changes_nothing(
    url: str, postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = load_migrations()
    sql = "create table holdfast.week (n int); select 1 / 0;"
    bad = Migration(number=known[-1].number + 1, name="oops", sql=sql)
    with pytest.raises(StoreUnusable, match=r"\(oops\) failed: division by zero"):
        await postgres.engine.run(lambda db: migrating.migrate(db, (*known, bad)))
    ((tables,),) = await postgres.engine.run(
        lambda db: db.fetch(
            compiled("weeks", "select count(*) from pg_class where relname = 'week'"), {}
        )
    )
    assert tables == 0
    await (await PostgresStore.open(parse_address(url))).close()


async def test_a_schema_of_somebody_elses_is_left_alone(server: Server, remote: str) -> None:
    name = remote.rpartition("/")[2]
    await asyncio.to_thread(server.execute, "create schema holdfast", database=name)
    with pytest.raises(StoreUnusable, match="not Holdfast's"):
        await PostgresStore.open(parse_address(remote))


async def test_looking_at_a_store_makes_none(remote: str) -> None:
    with pytest.raises(StoreUnusable, match="holdfast db migrate"):
        await open_existing(remote)
    with pytest.raises(StoreError):
        await open_existing(remote)
    await (await PostgresStore.open(parse_address(remote))).close()
    await (await open_existing(remote)).close()
