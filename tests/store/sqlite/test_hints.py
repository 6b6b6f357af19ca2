"""A process is told at once that there is something for it to read, and nothing is lost if it is not."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.store.outcomes import HintSupport
from holdfast.store.sqlite.hints import HintingStore
from tests.store.builders import ACME, Player
from tests.store.postgres.conftest import random_mint
from tests.store.postgres.test_hints import Woken


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def joined(path: Path) -> Player:
    """A node on this file. It has a store of its own, as another process would."""
    player = Player(await HintingStore.open(path), random_mint())
    await player.renew()
    return player


@pytest.fixture
async def ada(path: Path) -> AsyncIterator[Player]:
    player = await joined(path)
    yield player
    await player.store.close()


@pytest.fixture
async def ben(path: Path) -> AsyncIterator[Player]:
    player = await joined(path)
    yield player
    await player.store.close()


def pipes(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.glob("*-hint-*"))


async def test_a_signal_wakes_the_node_that_it_is_for(ada: Player, ben: Player) -> None:
    assert isinstance(ada.store, HintSupport) and isinstance(ben.store, HintSupport)
    woken, other = Woken(), Woken()
    ada.store.listen(ada.node, woken)
    ben.store.listen(ben.node, other)
    turn = await ada.open("trip")
    await ben.store.signal(ACME, turn.turn_id, kind="cancel")
    await woken.wait()
    assert [row.kind for row in await ada.store.signals(ada.node)] == ["cancel"]
    assert not other.is_set
    await ben.store.signal(ACME, turn.turn_id, kind="cancel")
    await woken.wait()  # also the second time, when the first writer is gone


async def test_a_node_that_does_not_listen_finds_its_signals_by_looking(
    ada: Player, ben: Player
) -> None:
    turn = await ada.open("trip")
    await ben.store.signal(ACME, turn.turn_id, kind="cancel")
    assert len(await ada.store.signals(ada.node)) == 1


async def test_more_hints_than_a_pipe_holds_are_one(ada: Player, ben: Player) -> None:
    assert isinstance(ada.store, HintingStore) and isinstance(ben.store, HintingStore)
    hints, slot = ben.store._hints, ada.store._slots[ada.node]
    woken = Woken()
    ada.store.listen(ada.node, woken)
    for _ in range(70_000):  # a pipe has room for 65,536
        hints.tell(slot)
    await woken.wait()


async def test_pipes_go_with_their_nodes(path: Path, ada: Player, ben: Player) -> None:
    """Those that a killed process has left go with the next one that listens."""
    left = path.with_name(f"{path.name}-hint-4711")
    os.mkfifo(left)
    assert isinstance(ada.store, HintingStore) and isinstance(ben.store, HintingStore)
    ada.store.listen(ada.node, Woken())
    ben.store.listen(ben.node, Woken())
    assert left.name not in pipes(path) and len(pipes(path)) == 2
    await ben.store.close()
    assert len(pipes(path)) == 1
