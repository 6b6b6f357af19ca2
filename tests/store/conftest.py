"""A store of each home, empty, with its clock in the test's hands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest

from holdfast.ids import Minter
from holdfast.store.base import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.homes import WAYS, Damage, Home


@pytest.fixture(params=WAYS, ids=lambda home: home.name)
def home(request: pytest.FixtureRequest) -> Home:
    found: Home = request.param
    return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(home: Home, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await home.open(tmp_path, clock)
    yield opened
    await opened.close()


@pytest.fixture
def mint(clock: ManualClock) -> Minter:
    """Distinct ids, in the order in which they were minted, the same in every run."""
    steps = count()
    return Minter(now_ms=clock.now_ms, random_bits=lambda bits: next(steps) % (1 << bits))


@pytest.fixture
async def player(store: Store, mint: Minter) -> Player:
    """A node that is live, of the tenant `acme`."""
    made = Player(store, mint, tenant=ACME)
    await made.renew()
    return made


@pytest.fixture
def damage(home: Home, store: Store) -> Damage:
    return home.damage(store)


@pytest.fixture
def other_player(store: Store, mint: Minter) -> Callable[[], Player]:
    """Makes another node of the same tenant; it has to `renew` before it counts as alive."""
    return lambda: Player(store, mint, tenant=ACME)
