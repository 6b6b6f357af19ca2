"""A store of each home, empty, with its clock in the test's hands."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest

from holdfast.ids import Minter
from holdfast.store.base import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.homes import HOMES, WAYS, Damage, Home

SAME_BY_ANY_WAY = frozenset(
    "annotations api_keys exporting grants listing moving reading search tenants".split()
)
"""Families that a pooler cannot change: single statements, or reads in one transaction. What does differ through
PgBouncer is what several statements do together, that no statement has a name, and what a connection is set to; the
other families run by every way, and with `test_verify` all that is read is read through it, too.
`make torture-pooler` runs these as well."""

EVERY_WAY = bool(os.environ.get("EVERY_WAY"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what asks for a `home` in each of them."""
    given = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "home" in metafunc.fixturenames and "home" not in given:
        family = metafunc.module.__name__.rpartition(".test_")[2]
        ways = HOMES if family in SAME_BY_ANY_WAY and not EVERY_WAY else WAYS
        metafunc.parametrize("home", ways, ids=lambda home: home.name)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store(home: Home, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await home.open(tmp_path, clock)
    await opened.prune(limit=0)  # it has looked at its clock
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
