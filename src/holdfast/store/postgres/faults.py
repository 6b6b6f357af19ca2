"""What PostgreSQL's errors mean to us. Foreign errors are translated here and nowhere else.

again    the statement did not happen, and would now: another transaction came first (40001, 40P01), or has
         made the row that we were about to make (23505); or what was decided on has changed (`StaleRead`)
lost     the connection is gone, and with it the answer: whether a write happened is not known
full     no room left
passing  the database cannot serve us now: starting, stopping, out of connections, out of time
unknown  any other error of the database: a privilege that was taken away, an internal error, a table that is being
         restored. That is its fault and not a mistake of ours, and may pass

What is left is ours: a value that does not fit or breaks a constraint, and what our own code raises.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import asyncpg
from asyncpg import exceptions as pg

from holdfast.errors import InDoubt, StorageFull, StoreFault, StoreUnavailable

Fault: TypeAlias = Literal["again", "lost", "full", "passing", "unknown"]


class StaleRead(Exception):
    """What was decided on has changed before it was written; nothing was written."""


_AGAIN = (
    StaleRead,
    pg.SerializationError,
    pg.DeadlockDetectedError,
    pg.UniqueViolationError,
    pg.InvalidCachedStatementError,
    # A pooler, or an administrator, has thrown away what we had prepared.
    pg.InvalidSQLStatementNameError,
)
_LOST = (
    OSError,
    EOFError,
    TimeoutError,
    pg.PostgresConnectionError,
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.IdleInTransactionSessionTimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    # PgBouncer's own words come with this code: a server of its has gone, or none can be had.
    pg.ProtocolViolationError,
)
_FULL = (pg.DiskFullError,)
_PASSING = (
    pg.CannotConnectNowError,
    pg.InsufficientResourcesError,
    pg.OperatorInterventionError,
    pg.LockNotAvailableError,
    pg.ReadOnlySQLTransactionError,
    pg.PostgresIOError,
)
_OURS = (
    pg.DataError,
    pg.IntegrityConstraintViolationError,
    pg.PostgresSyntaxError,
)


def fault_of(error: BaseException) -> Fault | None:
    """What kind of failure this is; None for a mistake of our own."""
    if isinstance(error, _AGAIN):
        return "again"
    if isinstance(error, _FULL):
        return "full"
    if isinstance(error, _LOST):
        return "lost"
    if isinstance(error, _PASSING):
        return "passing"
    is_theirs = isinstance(error, asyncpg.PostgresError) and not isinstance(error, _OURS)
    return "unknown" if is_theirs else None


def is_damage(error: BaseException) -> bool:
    """Whether PostgreSQL cannot read a page or an index as it was written."""
    return isinstance(error, pg.DataCorruptedError | pg.IndexCorruptedError)


def is_harmless(error: BaseException) -> bool:
    """Whether the connection that this happened on is as good as before: the server has answered, and goes on."""
    clean = (StaleRead, pg.SerializationError, pg.DeadlockDetectedError, pg.UniqueViolationError)
    return isinstance(error, clean) or (
        fault_of(error) is None and not isinstance(error, pg.PostgresError)
    )


def translated(error: Exception, *, in_doubt: bool = False) -> Exception:
    """Our error for one of PostgreSQL's; any other stays as it is.

    `in_doubt`: what was asked for may have happened if the answer was lost, and must not happen twice.
    """
    match fault_of(error):
        case "lost" if in_doubt:
            return InDoubt(
                f"the database's answer was lost ({described(error)}), so it is not known whether this "
                "has happened; look before you ask again"
            )
        case None:
            return error
        case "full":
            return StorageFull("no space is left for the database; free some and retry")
        case "again":
            return StoreUnavailable(
                "others kept writing to the same rows, so this came to nothing; retry in a moment"
            )
        case "lost" if isinstance(error, TimeoutError):
            return StoreUnavailable(
                "the database did not answer in time; whether it will still do what was asked is "
                "not known: ask again in a few seconds"
            )
        case "lost":
            return StoreUnavailable(
                f"the connection to the database was lost ({described(error)}); ask again in a second"
            )
        case "passing":
            return StoreUnavailable(
                f"the database cannot serve us now ({described(error)}); retry in a few seconds"
            )
        case "unknown":
            return StoreFault(
                f"the database refused in a way that we do not know ({described(error)}); "
                "its log says more; retry in a few seconds"
            )


def described(error: BaseException) -> str:
    """One line, with the five characters that PostgreSQL's manual lists errors by."""
    code = getattr(error, "sqlstate", None)
    said = str(error).splitlines()[0] if str(error) else ""
    shown = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return f"{shown} [{code}]" if code else shown
