"""From a URL to a store, or to a sentence that says which URLs there are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from holdfast.errors import StoreUnusable
from holdfast.store.memory_store import MemoryStore
from holdfast.store.sqlite import SqliteStore
from holdfast.store.sqlite.migration import newest_step
from holdfast.store.store_url import (
    InFile,
    InMemory,
    InPostgres,
    examine_store,
    existing_file,
    file_of,
    look_at,
    open_existing,
    open_store,
    parse_url,
    shown,
)


def left_in(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("sqlite:///holdfast.db", InFile(path=Path("holdfast.db"))),
        ("sqlite:///data/a b%20c.db", InFile(path=Path("data/a b%20c.db"))),
        ("sqlite:////var/lib/holdfast.db", InFile(path=Path("/var/lib/holdfast.db"))),
        ("SQLite:///x", InFile(path=Path("x"))),
        ("memory:", InMemory()),
    ],
)
def test_a_url_names_a_place(url: str, address: InFile | InMemory) -> None:
    assert parse_url(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "holdfast.db",
        "./a:b",
        "sqlite:",
        "sqlite:holdfast.db",
        "sqlite://holdfast.db",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///x.db?mode=ro",
        "memory:x",
        "mysql://db/holdfast",
    ],
)
def test_anything_else_is_refused_with_what_there_is(url: str) -> None:
    with pytest.raises(StoreUnusable) as refused:
        parse_url(url)
    told = str(refused.value)
    assert "sqlite:///PATH" in told
    assert "memory:" in told
    assert "\n" not in told


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_database_is_named_by_its_url_and_its_password_is_not_shown(scheme: str) -> None:
    url = f"{scheme}://ada:secret@db/holdfast"
    found = parse_url(url)
    assert found == InPostgres(url=url)
    assert "secret" not in repr(found)
    assert shown(url) == f"{scheme}://ada:***@db/holdfast"


async def test_a_driver_that_is_not_there_is_named_with_its_install_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "holdfast.store.postgres.store", raising=False)
    for module in [each for each in sys.modules if each.partition(".")[0] == "asyncpg"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for name in ("pool", "faults", "engine", "appends", "turns", "migrate"):
        monkeypatch.delitem(sys.modules, f"holdfast.store.postgres.{name}", raising=False)
    with pytest.raises(StoreUnusable) as refused:
        await open_store("postgresql://ada:secret@db/holdfast")
    told = str(refused.value)
    assert "pip install 'holdfast[postgres]'" in told
    assert "secret" not in told


def test_a_database_is_no_file_and_copies_itself() -> None:
    with pytest.raises(StoreUnusable, match="pg_dump") as refused:
        existing_file("postgresql://ada:secret@db/holdfast")
    assert "secret" not in str(refused.value)


def test_a_store_that_needs_no_driver_loads_none() -> None:
    """Start-up time on SQLite is a feature, and the driver is an extra."""
    code = "import sys, holdfast.store.store_url; sys.exit('asyncpg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_store_is_made_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///one.db", f"sqlite:///{tmp_path}/two.db"):
        store = await open_store(url)
        assert isinstance(store, SqliteStore)
        assert (await store.stats()).sessions == 0
        await store.close()
    assert {"one.db", "two.db"} <= left_in(tmp_path)


async def test_a_memory_store_is_a_store() -> None:
    store = await open_store("memory:")
    assert isinstance(store, MemoryStore)
    assert await store.tenants() == ()
    await store.close()
    with pytest.raises(StoreUnusable, match="ends with its process"):
        file_of("memory:")


async def test_what_is_to_exist_is_not_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    with pytest.raises(
        StoreUnusable, match=r"there is no database at .*--store names another place"
    ):
        await open_existing(url)
    assert left_in(tmp_path) == set()

    (tmp_path / "holdfast.db").touch()
    with pytest.raises(StoreUnusable, match="is empty; `holdfast db migrate`"):
        await open_existing(url)
    assert (tmp_path / "holdfast.db").stat().st_size == 0


@pytest.mark.parametrize("left", ["-wal", "-writer"])
async def test_a_database_that_was_here_is_not_said_to_be_made_by_a_migration(
    left: str, tmp_path: Path
) -> None:
    """An operator who is told to make a new one would find it empty, and without the old one's log."""
    url = f"sqlite:///{tmp_path}/holdfast.db"
    (tmp_path / f"holdfast.db{left}").write_bytes(b"what a server leaves behind")
    with pytest.raises(
        StoreUnusable, match=r"is gone, but .*restore a backup.*holdfast db verify --help"
    ):
        await open_existing(url)
    with pytest.raises(
        StoreUnusable, match=r"is gone, but .*restore a backup.*holdfast db verify --help"
    ):
        await examine_store(url)


async def test_a_database_that_was_cut_to_nothing_is_not_said_to_be_made_by_a_migration(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db"
    await (await open_store(url)).close()
    os.truncate(tmp_path / "holdfast.db", 0)
    for look in (open_existing, examine_store):
        with pytest.raises(
            StoreUnusable, match=r"is empty, but .*restore a backup.*holdfast db verify --help"
        ):
            await look(url)


async def test_what_is_to_exist_is_not_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks after an old database wants to copy it first."""
    url = f"sqlite:///{tmp_path}/holdfast.db"
    await (await open_store(url)).close()
    await (await open_existing(url)).close()
    step = newest_step()
    monkeypatch.setattr("holdfast.store.store_url.newest_step", lambda: step + 1)
    told = f"step {step} of {step + 1}; run `holdfast db backup`"
    with pytest.raises(StoreUnusable, match=told):
        await open_existing(url)
    assert existing_file(url, any_step=True) == tmp_path / "holdfast.db"


async def test_somebody_elses_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    theirs = apsw.Connection(str(path))
    theirs.execute("create table photo (x)")
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnusable, match="not a Holdfast store"):
        await open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert left_in(tmp_path) == {"photos.db"}


@pytest.mark.parametrize("content", [b"Dear diary", b"Dear diary, " * 1000])
async def test_what_is_no_database_is_left_as_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "diary.txt"
    path.write_bytes(content)
    with pytest.raises(StoreUnusable, match="is no SQLite database"):
        await open_store(f"sqlite:///{path}")
    assert path.read_bytes() == content


def test_looking_at_nothing_makes_nothing(tmp_path: Path) -> None:
    assert look_at(tmp_path / "none.db") is None
    assert look_at(tmp_path) is None
    assert left_in(tmp_path) == set()
