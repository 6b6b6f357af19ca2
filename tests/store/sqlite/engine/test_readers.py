"""What a reader makes of SQLite's own mistakes."""

from __future__ import annotations

import asyncio
from asyncio import Future

import apsw
import pytest
from apsw import Connection

from holdfast.errors import StoreFault, StoreUnavailable
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.engine.health import EngineHealth
from holdfast.store.sqlite.engine.jobs import Job, JobQueue
from holdfast.store.sqlite.engine.readers import SqliteReader, read
from tests.store.sqlite.rows import add, texts


@pytest.fixture
def connection() -> Connection:
    return Connection(":memory:")


def test_a_table_that_is_said_to_be_missing_is_looked_for_once_more(connection: Connection) -> None:
    """If SQLite fails to read whether the tables have changed, it says that one does not exist."""
    tries: list[int] = []

    def work(db: Connection) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise apsw.SQLError("no such table: session")
        return "found"

    assert read(connection, work) == "found"
    assert not connection.in_transaction


def test_a_table_that_is_missing_twice_is_missing(connection: Connection) -> None:
    with pytest.raises(apsw.SQLError):
        read(connection, lambda db: db.execute("select * from nothing").fetchall())
    assert not connection.in_transaction


def test_a_disk_that_fails_the_second_time_is_believed(connection: Connection) -> None:
    errors: list[apsw.Error] = [apsw.SQLError("no such table: session"), apsw.IOError("disk")]

    def work(db: Connection) -> None:
        raise errors.pop(0)

    with pytest.raises(apsw.IOError):
        read(connection, work)


async def test_a_read_whose_time_is_up_is_not_run() -> None:
    """The event loop, which has a timer for it, may have been held up itself."""
    loop = asyncio.get_running_loop()
    queue = JobQueue(EngineHealth("test"), lambda: 5.0, inline=True)
    reader = SqliteReader(lambda: Connection(":memory:"), queue)
    queue.start("reader", reader)
    ran: list[str] = []

    def ask(name: str, *, deadline: float) -> Future[object]:
        future: Future[object] = loop.create_future()
        queue.put(Job(lambda _: ran.append(name), future, 0, deadline), loop)
        return future

    late, good = ask("late", deadline=5), ask("good", deadline=6)
    await queue.close()
    assert isinstance(late.exception(), StoreUnavailable)
    assert good.exception() is None
    assert ran == ["good"]


async def test_a_reader_goes_on_after_a_query_that_cannot_be_understood(
    engine: SqliteEngine,
) -> None:
    await engine.write(add("a"))
    with pytest.raises(StoreFault, match="SQLError"):
        await engine.read(lambda db: db.execute("select * from nothing").fetchall())
    assert await engine.read(texts) == ["a"]
