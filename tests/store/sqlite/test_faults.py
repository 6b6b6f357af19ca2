"""What SQLite's errors mean to us."""

from __future__ import annotations

import apsw
import pytest

from holdfast.errors import StorageFull, StoreDamaged, StoreFault, StorePoisoned, StoreUnavailable
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.faults import translated


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (apsw.IOError("disk I/O error"), StorePoisoned),
        (apsw.CorruptError("malformed"), StoreDamaged),
        (apsw.FullError("full"), StorageFull),
        (apsw.BusyError("busy"), StoreUnavailable),
        (apsw.PermissionsError("access denied"), StoreUnavailable),
        (apsw.SQLError("no such table: node"), StoreFault),
        (apsw.AuthError("not authorized"), StoreFault),
        (apsw.SchemaChangeError("the schema has changed"), StoreFault),
        (apsw.Error("of a kind that is yet to be invented"), StoreFault),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else each.__name__,
)
def test_an_error_of_sqlites_becomes_one_of_ours(error: Exception, ours: type[Exception]) -> None:
    assert type(translated(error)) is ours


@pytest.mark.parametrize(
    "error",
    [
        apsw.ConstraintError("a check failed"),
        apsw.TooBigError("string or blob too big"),
        apsw.BindingsError("an incorrect number of bindings"),
        KeyError("ours"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_mistake_of_ours_stays_one(error: Exception) -> None:
    assert translated(error) is error


async def test_an_unknown_error_fails_one_call_and_stops_nothing(engine: SqliteEngine) -> None:
    def read_nothing(connection: apsw.Connection) -> None:
        connection.execute("select * from absent")

    for ask in (engine.read, engine.write):
        with pytest.raises(StoreFault, match="no such table: absent") as raised:
            await ask(read_nothing)
        assert isinstance(raised.value.__cause__, apsw.SQLError)
    await engine.write(lambda connection: None)
