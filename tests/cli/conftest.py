from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Protocol

import apsw
import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.ids import Minter
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import ManualClock
from tests.store.builders import Player
from tests.store.furnishing import furnish

SOURCES = Path(__file__).parents[2] / "src"


class Run(Protocol):
    def __call__(self, *arguments: str) -> Result: ...


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in a folder of its own, and whoever runs it has said nothing about a store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_STORE", raising=False)
    return tmp_path


@pytest.fixture
def run() -> Run:
    """Runs a command in this process."""
    return lambda *arguments: CliRunner().invoke(main, arguments)


@pytest.fixture
def spawn() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command in a process of its own, as a person would."""

    def spawn_one(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONPATH": str(SOURCES)} | environment,
        )

    return spawn_one


@pytest.fixture
def furnished(elsewhere: Path) -> Path:
    """`holdfast.db`, with one of everything in it."""
    path = elsewhere / "holdfast.db"

    async def make() -> None:
        clock, steps = ManualClock(), count()
        store = await SqliteStore.open(path, now_ms=clock.now_ms)
        mint = Minter(now_ms=clock.now_ms, random_bits=lambda bits: next(steps) % (1 << bits))
        player = Player(store, mint)
        await player.renew()
        await furnish(player)
        await store.close()

    asyncio.run(make())
    return path


@pytest.fixture
def broken(furnished: Path) -> Path:
    """The same with a head that is ahead, and a key that leads nowhere."""
    damage(furnished, "update session set head = 9 where id = (select min(id) from session)")
    damage(
        furnished,
        "insert into session_key (tenant, key, session_id, generation) values ('acme', 'lost', 'conv_"
        + "0" * 26
        + "', 1)",
    )
    return furnished


def damage(path: Path, sql: str) -> None:
    """Change a store behind its back, while nobody has it open."""
    db = apsw.Connection(str(path))
    db.execute(sql)
    db.close()
