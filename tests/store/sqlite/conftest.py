from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from holdfast.store.sqlite.engine.engine import SqliteEngine
from holdfast.store.sqlite.engine.health import OnPoison
from holdfast.store.sqlite.engine.jobs import Clock
from holdfast.store.sqlite.engine.writer import Bounds
from tests.store.sqlite.children import Child
from tests.store.sqlite.disk import Disk
from tests.store.sqlite.rows import make_table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def disk() -> Disk:
    return Disk()


class OpenEngine(Protocol):
    async def __call__(
        self,
        *,
        on_poison: OnPoison | None = None,
        inline: bool = False,
        readers: int = 2,
        bounds: Bounds | None = None,
        clock: Clock | None = None,
        vfs: str | None = None,
    ) -> SqliteEngine: ...


@pytest.fixture
async def open_engine(path: Path) -> AsyncIterator[OpenEngine]:
    """Opens engines on one file, with a table `note(id, text unique)`, and closes them."""
    engines: list[SqliteEngine] = []

    async def open_one(**options: object) -> SqliteEngine:
        given = {name: value for name, value in options.items() if value is not None}
        engine = SqliteEngine.open(path, **given)  # type: ignore[arg-type]
        engines.append(engine)
        await engine.write(make_table)
        return engine

    yield open_one
    for engine in engines:
        await engine.close()


@pytest.fixture
async def engine(open_engine: OpenEngine) -> SqliteEngine:
    return await open_engine()


@pytest.fixture
def start(path: Path) -> Iterator[Callable[..., Child]]:
    """Starts real processes that work on the same file; whatever is left of them is killed."""
    children: list[Child] = []

    def start_one(command: str, *arguments: object) -> Child:
        child = Child(command, path, *arguments)
        children.append(child)
        return child

    yield start_one
    for child in children:
        child.end()
