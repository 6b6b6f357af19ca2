"""What PostgreSQL's errors mean to us."""

from __future__ import annotations

from functools import partial

import asyncpg
import pytest
from asyncpg import exceptions as pg

from holdfast.errors import StorageFull, StoreFault, StoreUnavailable
from holdfast.store.postgres.engine import Db
from holdfast.store.postgres.faults import Fault, StaleRead, fault_of, is_harmless, translated
from holdfast.store.postgres.queries import compiled
from holdfast.store.postgres.store import PostgresStore


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (StaleRead(), "again"),
        (pg.SerializationError("40001"), "again"),
        (pg.DeadlockDetectedError("40P01"), "again"),
        (pg.UniqueViolationError("23505"), "again"),
        (ConnectionResetError(), "lost"),
        (TimeoutError(), "lost"),
        (pg.ConnectionDoesNotExistError("08003"), "lost"),
        (pg.AdminShutdownError("57P01"), "lost"),
        (pg.ProtocolViolationError("08P01"), "lost"),
        (asyncpg.InterfaceError("connection is closed"), "lost"),
        (pg.DiskFullError("53100"), "full"),
        (pg.CannotConnectNowError("57P03"), "passing"),
        (pg.TooManyConnectionsError("53300"), "passing"),
        (pg.QueryCanceledError("57014"), "passing"),
        (pg.LockNotAvailableError("55P03"), "passing"),
        (pg.ReadOnlySQLTransactionError("25006"), "passing"),
        (pg.UndefinedTableError("42P01"), "unknown"),
        (pg.InsufficientPrivilegeError("42501"), "unknown"),
        (pg.InternalServerError("XX000"), "unknown"),
        (pg.PostgresError("of a kind that is yet to be invented"), "unknown"),
        (pg.CheckViolationError("23514"), None),
        (pg.NumericValueOutOfRangeError("22003"), None),
        (pg.PostgresSyntaxError("42601"), None),
        (ValueError("ours"), None),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else str(each),
)
def test_an_error_is_of_a_kind(error: Exception, fault: Fault | None) -> None:
    assert fault_of(error) == fault
    match fault:
        case None:
            assert translated(error) is error
        case "full":
            assert isinstance(translated(error), StorageFull)
        case "unknown":
            assert isinstance(translated(error), StoreFault)
        case _:
            assert isinstance(translated(error), StoreUnavailable)


def test_only_a_connection_that_has_answered_is_kept() -> None:
    assert is_harmless(StaleRead())
    assert is_harmless(pg.UniqueViolationError("23505"))
    assert is_harmless(KeyError("ours"))
    assert not is_harmless(ConnectionResetError())
    assert not is_harmless(pg.InvalidCachedStatementError("0A000"))


async def test_a_value_that_does_not_fit_is_our_mistake_and_not_an_outage(
    postgres: PostgresStore,
) -> None:
    query = compiled("sample", "select :n::bigint")
    for value in (1 << 63, "one"):
        with pytest.raises(asyncpg.DataError):
            await postgres.engine.run(partial(Db.fetch, query=query, bindings={"n": value}))
    assert await postgres.tenants() == ()
