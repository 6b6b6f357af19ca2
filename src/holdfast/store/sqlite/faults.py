"""What SQLite's errors mean to us. Foreign errors are translated here and nowhere else.

*Fatal* ones leave us without knowing what is on disk. After a failed sync the kernel may have
dropped the pages it could not write and reports success the next time; so we never try again,
but stop, and let recovery read what is really there.

*Damage* is a page that cannot be read as it was written. Reading another page is as good as before, so it stops nothing
but what needs the page; if everything meets there, the store is only read from then on (`protection.py`).

*Passing* ones mean that nothing changed, and that asking again is right. So does whatever else SQLite says that we do
not know: that is a fault of the store. What is left is *ours*: a value that does not fit or breaks a constraint, and
whatever our own code raises.
"""

from __future__ import annotations

import apsw

from holdfast.errors import (
    StorageFull,
    StoreClosed,
    StoreDamaged,
    StoreFault,
    StorePoisoned,
    StoreUnavailable,
)

_FATAL = (apsw.IOError, apsw.InternalError)
_DAMAGE = (apsw.CorruptError, apsw.NotADBError)
_DAMAGE_READ = (apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS)
"""Errors of a read that are about the page: its checksum, or the file system's own, is not that of its bytes."""

_PASSING = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.NoMemError,
    apsw.CantOpenError,
    apsw.ProtocolError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.InterruptError,
)

_OURS = (
    apsw.ConstraintError,
    apsw.TooBigError,
    apsw.MismatchError,
    apsw.RangeError,
    apsw.MisuseError,
    apsw.BindingsError,
)


class Fatal(Exception):
    """The store has lost its footing; `reason` says how. Becomes StorePoisoned for callers."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def is_damage(error: BaseException) -> bool:
    """Whether a page could not be read as it was written."""
    return isinstance(error, _DAMAGE) or _number(error) in _DAMAGE_READ


def is_fatal(error: BaseException) -> bool:
    """Whether nothing may be trusted after `error` but a fresh start."""
    if isinstance(error, _FATAL) and not is_damage(error):
        return True
    # The file was renamed or deleted under us: what we write goes nowhere.
    return _number(error) == apsw.SQLITE_READONLY_DBMOVED


def translated(error: Exception) -> Exception:
    """Our error for one of SQLite's; one of our own making, a broken constraint included, stays as it is."""
    if is_fatal(error):
        return poisoned(described(error))
    if is_damage(error):
        damage = StoreDamaged("something in the database file", described(error), in_pages=True)
        return caused(damage, error)
    if isinstance(error, apsw.FullError):
        return caused(
            StorageFull("no space is left for the database; free some and retry, nothing changed"),
            error,
        )
    if isinstance(error, _PASSING):
        return caused(
            StoreUnavailable(f"the database did not answer ({described(error)}); retry later"),
            error,
        )
    if isinstance(error, apsw.Error) and not isinstance(error, _OURS):
        return caused(
            StoreFault(
                f"the database refused in a way that we do not know ({described(error)}); nothing changed, retry later"
            ),
            error,
        )
    if isinstance(error, StopIteration):
        # A future cannot carry it, and in a coroutine it would mean something else.
        return caused(RuntimeError("a function run by the store let StopIteration out"), error)
    return error


def poisoned(reason: str) -> StorePoisoned:
    """The error that every caller gets after a fatal one."""
    return StorePoisoned(
        f"the store stopped after a failure that it cannot judge ({reason}); "
        "restart the process: recovery keeps all that was acknowledged"
    )


def inherited(name: object) -> StoreClosed:
    """The error of whatever a forked child does with something that its parent has open."""
    return StoreClosed(
        f"{name} was opened by the process that this one was forked from; "
        "open it in the process that uses it, after forking"
    )


def described(error: BaseException) -> str:
    """`IOError: disk I/O error` and the like, with SQLite's number where there is one."""
    number = _number(error)
    if number in _DAMAGE_READ:  # SQLite's own words for it are those of every failed read
        return f"a page is not as it was written: {type(error).__name__} [{number}]"
    shown = "" if number is None else f" [{number}]"
    return f"{type(error).__name__}: {error}{shown}"


def _number(error: BaseException) -> int | None:
    """SQLite's extended result code; apsw sets it on what SQLite itself reported."""
    number: int | None = getattr(error, "extendedresult", None)
    return number


def caused(error: Exception, cause: BaseException) -> Exception:
    """`raise error from cause`, for errors that travel as values."""
    error.__cause__ = cause
    return error
