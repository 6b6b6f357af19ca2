"""A commit that was given up for lost may still be on its way. What it finds when it arrives is not what it left."""

from __future__ import annotations

import pytest

from holdfast.core.items import Text, UserMessage
from holdfast.core.turns import events as ev
from holdfast.errors import StoreError, Superseded
from holdfast.ids import MessageId
from holdfast.store.outcomes import Committed, Signalled, Taken, Unconsumed
from holdfast.store.store import Store
from tests.store.builders import ACME, Player
from tests.store.contract.words import changes_nothing


@pytest.mark.parametrize("replayable", [False, True])
async def test_a_commit_that_comes_late_is_not_let_in_once_its_turn_has_gone_on(
    store: Store, player: Player, replayable: bool
) -> None:
    """Asked again, the store said that somebody had been speaking; so the turn listened, and acted on it."""
    turn = await player.open("trip", replayable=replayable)
    await turn.answer("Here you are")
    commit, n, records = turn.kept()
    steer = await store.signal(ACME, turn.turn_id, kind="steer")
    assert isinstance(steer, Signalled)
    assert isinstance(await turn.try_commit(), Unconsumed)
    said = UserMessage(id=player.mint(MessageId), content=(Text(text="And a hotel"),))
    await turn.record(ev.Steered(items=(said,), signals=(steer.n,)), consumed=[steer.n])

    async with changes_nothing(store):
        with pytest.raises(StoreError, match="come past"):
            await store.commit(turn.fence, commit, n=n, records=records)
    await turn.answer("Booked")
    assert isinstance(await turn.commit(), Committed)


@pytest.mark.parametrize("replayable", [False, True])
async def test_a_commit_that_comes_late_is_not_let_in_though_nobody_has_spoken(
    store: Store, player: Player, replayable: bool
) -> None:
    turn = await player.open("trip", replayable=replayable)
    await turn.answer()
    commit, n, records = turn.kept()
    await store.append(turn.fence, n=n, records=records)
    async with changes_nothing(store):
        with pytest.raises(StoreError, match="come past"):
            await store.commit(turn.fence, commit, n=n, records=records)


async def test_a_commit_of_the_same_items_by_somebody_else_is_not_ones_own(
    store: Store, player: Player
) -> None:
    """Whoever took the turn over may have had nothing to add to it; but its journal says that it was there."""
    turn = await player.open("trip", replayable=True)
    await turn.answer()
    commit, n, records = turn.kept()
    taken = await store.takeover(ACME, turn.session_id, node=player.node, nonce="theirs")
    assert isinstance(taken, Taken)
    mine, turn.fence = turn.fence, taken.fence
    await turn.record(ev.Resumed(attempt=2))
    await turn.commit()

    async with changes_nothing(store):
        with pytest.raises(Superseded):
            await store.commit(mine, commit, n=n, records=records)
        assert isinstance(await turn.try_commit(), Committed)
