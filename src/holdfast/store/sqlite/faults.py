"""The meaning of SQLite's errors. They are translated into ours here and nowhere else.

*Fatal* errors leave us without knowing what is on disk. After a failed sync the kernel may have
dropped the pages it could not write and reports success the next time; so we never try again,
but stop, and let recovery read what is really there.

*Damage* is a page that cannot be read as it was written. Other pages can be read as before, so only work that needs the
page fails; if all writes need it, the store is read-only from then on (`protection.py`).

*Passing* errors mean that nothing changed, and that a retry is right. Every error of SQLite that we do not know counts
as passing: the fault is the store's. The remaining errors are *ours*: a value that does not fit or breaks a constraint,
and any error that our own code raises.
"""

from __future__ import annotations

import errno

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
"""Read errors that mean a damaged page: its checksum, or the file system's, does not fit its bytes."""

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


_NO_ROOM = (errno.EDQUOT, errno.EFBIG)
"""Refused writes for which a quota, or a limit on the size of files, leaves no room."""


class Fatal(Exception):
    """The state on disk is unknown; `reason` tells why. Callers get it as StorePoisoned."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def demand_room(error: apsw.IOError, connection: apsw.Connection) -> None:
    """Raises FullError if a quota has refused a write: SQLite takes only ENOSPC for a full disk, others for a broken one."""
    if _number(error) == apsw.SQLITE_IOERR_WRITE and connection.system_errno in _NO_ROOM:
        raise apsw.FullError(str(error)) from error


def is_damage(error: BaseException) -> bool:
    """Whether a page could not be read as it was written."""
    return isinstance(error, _DAMAGE) or _number(error) in _DAMAGE_READ


def is_wrong_checksum(error: BaseException) -> bool:
    """Whether the bytes of a page have another checksum than the one that it ends with."""
    return _number(error) == apsw.SQLITE_IOERR_DATA


def first_fault(connection: apsw.Connection) -> str | None:
    """What SQLite's own check of a whole file finds first; None if it finds nothing."""
    try:
        said = connection.execute("PRAGMA integrity_check(1)").get
    except apsw.Error as error:
        if not is_damage(error):
            raise
        return described(error)
    return None if said == "ok" else " ".join(str(said).split())


def is_failed_read(error: BaseException) -> bool:
    """Whether the disk refused to read a page (EIO). It may pass, so a writer stops, and recovery reads again."""
    return _number(error) == apsw.SQLITE_IOERR_CORRUPTFS


def is_fatal(error: BaseException) -> bool:
    """Whether the store must be opened anew after `error`, because its state is unknown."""
    if isinstance(error, _FATAL) and not is_damage(error):
        return True
    # The file was renamed or deleted under us: what we write goes nowhere.
    return _number(error) == apsw.SQLITE_READONLY_DBMOVED


def translated(error: Exception) -> Exception:
    """Our error for one of SQLite's; an error of our own, a broken constraint included, stays as it is."""
    if is_fatal(error):
        return poisoned(described(error))
    told: Exception
    if is_damage(error):
        told = StoreDamaged("something in the database file", described(error), in_pages=True)
    elif isinstance(error, apsw.FullError):
        told = StorageFull(
            "no space is left for the database; free some and retry, nothing changed"
        )
    elif isinstance(error, _PASSING):
        told = StoreUnavailable(f"the database did not answer ({described(error)}); retry later")
    elif isinstance(error, apsw.Error) and not isinstance(error, _OURS):
        told = StoreFault(
            f"the database refused in a way that we do not know ({described(error)}); nothing changed, retry later"
        )
    elif isinstance(error, StopIteration):
        # A future cannot carry it, and in a coroutine it would mean something else.
        told = RuntimeError("a function run by the store let StopIteration out")
    else:
        return error
    told.__cause__ = error  # as `raise told from error` does, for errors that travel as values
    return told


def poisoned(reason: str) -> StorePoisoned:
    """The error that every caller gets after a fatal one."""
    return StorePoisoned(
        f"the store stopped after a failure that it cannot judge ({reason}); "
        "restart the process, which reads what is really on disk"
    )


def inherited(name: object) -> StoreClosed:
    """The error if a forked child uses a file or connection that its parent has open."""
    return StoreClosed(
        f"{name} was opened by the process that this one was forked from; "
        "open it in the process that uses it, after forking"
    )


def described(error: BaseException) -> str:
    """`IOError: disk I/O error` and the like, with SQLite's number where there is one."""
    number = _number(error)
    if number in _DAMAGE_READ:  # SQLite gives the same message for every failed read
        return f"a page is not as it was written: {type(error).__name__} [{number}]"
    shown = "" if number is None else f" [{number}]"
    return f"{type(error).__name__}: {error}{shown}"


def _number(error: BaseException) -> int | None:
    """SQLite's extended result code; apsw sets it on errors that SQLite itself reported."""
    number: int | None = getattr(error, "extendedresult", None)
    return number
