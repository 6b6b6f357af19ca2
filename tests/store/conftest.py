"""A store of each home, empty, with its clock in the test's hands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest

from holdfast.ids import Minter
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.homes import HOMES, WAYS, Damage, Home

BY_ANY_WAY = frozenset(
    "begin damage forks late_commits removal retention signals stray_turns turn_lists verification".split()
)
"""Families of which each test runs by every way. What differs through PgBouncer is what several statements do together,
that no statement has a name, and what a connection is set to: these have statements of every form, alone and together,
and with `test_verification` all that is read is read through it, too. `make torture-claims` runs the others as well."""

NEXT = dict(zip(HOMES, (*HOMES[1:], HOMES[0]), strict=True))
"""Where an export from each home is taken to. All of them write the same bytes, so other pairs say nothing new."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what asks for a `home` in each of them, and what also asks for a `destination` between two of them."""
    given = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "destination" in metafunc.fixturenames and "home" not in given:
        pairs = [
            _claim(here, there, once=there is NEXT.get(here)) for here in WAYS for there in HOMES
        ]
        metafunc.parametrize(("home", "destination"), pairs, indirect=["destination"])
    elif "home" in metafunc.fixturenames and "home" not in given:
        family = metafunc.module.__name__.rpartition(".test_")[2]
        ways = WAYS if family in BY_ANY_WAY else HOMES
        metafunc.parametrize("home", [_claim(way, once=way in ways) for way in WAYS])


def _claim(*homes: Home, once: bool) -> object:
    """One run of a test, in `make test` if it makes the claim `once`; else it is a combination more."""
    marks = [] if once else [pytest.mark.thorough]
    return pytest.param(*homes, id=" to ".join(each.name for each in homes), marks=marks)


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
