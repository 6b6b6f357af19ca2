"""Store URLs: how they are parsed, and how the store that they name is opened or examined.

sqlite:///relative/path    a file, relative to the working directory
sqlite:////absolute/path   a file
postgresql://host/name     a database; `postgres/address.py` has the options
memory:                    the memory of the process, gone with it
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from holdfast.core.codec import Value
from holdfast.errors import StoreUnusable
from holdfast.observe.supervisor import TaskSupervisor
from holdfast.store.condition import Condition
from holdfast.store.memory_store import MemoryStore
from holdfast.store.postgres.address import parse_address, without_password
from holdfast.store.sql.migrations import Migrated
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.condition import examine as examine_file
from holdfast.store.sqlite.connection import open_reader, unusable
from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.engine.health import OnPoison
from holdfast.store.sqlite.hints import HintingStore
from holdfast.store.sqlite.location_checks import check_not_gone
from holdfast.store.sqlite.migration import newest_step, step_of
from holdfast.store.store import Store

if TYPE_CHECKING:
    from holdfast.store.postgres.store import PostgresStore

__all__ = [
    "DEFAULT_URL",
    "examine_store",
    "existing_file",
    "file_of",
    "look_at",
    "migrate_store",
    "open_existing",
    "open_store",
    "parse_url",
    "shown",
    "without_password",
]

DEFAULT_URL = "sqlite:///holdfast.db"


class InFile(Value):
    """A SQLite file."""

    path: Path


class InPostgres(Value):
    """A PostgreSQL database. Its URL may have a password in it: show `without_password`."""

    url: str

    def __repr__(self) -> str:
        return f"<InPostgres {without_password(self.url)}>"


class InMemory(Value):
    """A store that ends with its process."""


Address = InFile | InPostgres | InMemory


async def open_store(
    url: str, *, on_poison: OnPoison | None = None, supervisor: TaskSupervisor | None = None
) -> Store:
    """Open the store at this URL; make the file or the tables if there are none, and migrate them.

    Raises StoreUnusable, with the way out, if there can be no store. `on_poison` is called once, from any
    thread, if the store must stop for good; without it, calls just raise StorePoisoned.
    `supervisor` runs the store's background tasks for as long as it is open.
    """
    match parse_url(url):
        case InFile(path=path):
            look_at(path)
            engine = partial(SqliteEngine.open, on_poison=on_poison)
            return await HintingStore.open(path, engine=engine)
        case InPostgres(url=address):
            return await _postgres().open(parse_address(address), supervisor=supervisor)
        case InMemory():
            return MemoryStore()


async def open_existing(url: str) -> Store:
    """Open a store that exists and is up to date; make and migrate nothing.

    Raises StoreUnusable, with the way out, if there is no such store.
    """
    match parse_url(url):
        case InPostgres(url=address):
            return await _postgres().open_existing(parse_address(address))
        case _:
            return await SqliteStore.open(existing_file(url))


async def migrate_store(url: str) -> Migrated:
    """Make a store if there is none, and bring its tables up to date."""
    match parse_url(url):
        case InPostgres(url=address):
            store: SqliteStore | PostgresStore = await _postgres().open(parse_address(address))
        case _:
            store = await SqliteStore.open(file_of(url))
    await store.close()
    assert store.migrated is not None, "opening says what it did"
    return store.migrated


def shown(url: str) -> str:
    """A URL as logs may show it: the file that it names, or the URL without its password."""
    match parse_url(url):
        case InFile(path=path):
            return str(path)
        case _:
            return without_password(url)


async def examine_store(url: str) -> Condition | None:
    """The condition of a store, read without opening it; None if its file does not exist.

    Raises StoreUnusable if it cannot be a store here, and StoreUnavailable if it does not answer.
    """
    match parse_url(url):
        case InPostgres(url=address):
            return await _postgres().examine(parse_address(address))
        case _:
            path = file_of(url)
            check_not_gone(path)
            return examine_file(path) if path.is_file() else None


def _postgres() -> type[PostgresStore]:
    """Imported only when needed: it requires a driver that the other homes do without. Raises StoreUnusable if asyncpg
    is not installed."""
    try:
        from holdfast.store.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StoreUnusable(
            "PostgreSQL needs a driver that is not installed; run: pip install 'holdfast[postgres]'"
        ) from error
    return PostgresStore


def existing_file(url: str, *, any_step: bool = False, vfs: str | None = None) -> Path:
    """The file of an existing store; its tables must be up to date, unless `any_step`. Raises StoreUnusable."""
    path = file_of(url)
    check_not_gone(path)
    found = look_at(path, vfs=vfs)
    if found is None:
        raise StoreUnusable(
            f"there is no database at {path} (in {path.resolve().parent}); --store names another place"
        )
    if found.step == 0:
        raise StoreUnusable(f"{path} is empty; `holdfast db migrate` makes a store of it")
    if found.step < found.newest and not any_step:
        raise StoreUnusable(
            f"the tables of {path} are at step {found.step} of {found.newest}; "
            "run `holdfast db backup`, then `holdfast db migrate`"
        )
    return path


def file_of(url: str) -> Path:
    """The file that a URL names. Raises StoreUnusable for a store that is not a file."""
    match parse_url(url):
        case InFile(path=path):
            return path
        case InPostgres(url=address):
            raise StoreUnusable(
                f"{without_password(address)} is no file; PostgreSQL copies itself: "
                "pg_dump --format=custom --schema=holdfast --file=FILE URL"
            )
        case InMemory():
            raise StoreUnusable(
                "a memory store ends with its process, so there is none to look after; "
                "name a file: sqlite:///PATH"
            )


def parse_url(url: str) -> Address:
    """The address in a URL. Raises StoreUnusable, which names the known kinds of URLs."""
    scheme, colon, rest = url.partition(":")
    if not colon or "/" in scheme:
        raise _refused(f"{url!r} is not the URL of a store")
    match scheme.lower():
        case "memory" if not rest:
            return InMemory()
        case "sqlite":
            return InFile(path=_path(rest))
        case "postgresql" | "postgres":  # the rest may have a password in it
            if not rest.startswith("//"):
                raise _refused("the URL of a PostgreSQL store begins with postgresql://")
            return InPostgres(url=url)
        case _:
            raise _refused(f"there is no kind of store called {scheme!r}")


def _path(rest: str) -> Path:
    path = rest.removeprefix("///")
    if path == rest or not path:
        raise _refused(f"'sqlite:{rest}' names no file")
    if "?" in path or "#" in path:
        raise _refused(f"'sqlite:{rest}' has options, and there are none")
    if path == ":memory:":
        raise _refused("SQLite's own memory databases are not supported")
    return Path(path)


def _refused(why: str) -> StoreUnusable:
    return StoreUnusable(
        f"{why}; use sqlite:///PATH (with four slashes for an absolute path), "
        "postgresql://USER@HOST/DATABASE or memory:"
    )


class SchemaState(Value):
    """The step of a file's tables, and the newest step that this version knows."""

    step: int
    newest: int


def look_at(path: Path, *, vfs: str | None = None) -> SchemaState | None:
    """The state of the tables at a path, without changing the file; None if there is no file.

    Raises StoreUnusable if the file is not a store of ours: better before the engine sets it up as one.
    """
    if not path.is_file():
        return None
    try:
        with closing(open_reader(path.resolve(), vfs=vfs)) as db:
            return SchemaState(step=step_of(db), newest=newest_step())
    except apsw.Error as error:
        raise unusable(path, error) from error
