"""What the model has found so far, each as the shortest story that shows it, on every home."""

from __future__ import annotations

import pytest

from holdfast.ids import SessionId, SessionKey
from holdfast.store.outcomes import Gone, Started
from holdfast.store.store import Store
from tests.store.builders import Player


async def test_a_turn_that_a_retry_may_ask_for_does_not_hold_up_what_else_may_go(
    player: Player, store: Store
) -> None:
    """Deleted sessions that wait for their idempotency keys stood in line before all others."""
    waiting = await player.play("first", key="k1")
    other = await player.play("second")
    await store.remove(player.tenant, waiting.session_id)
    await store.remove(player.tenant, other.session_id)

    while (await store.prune(limit=1)).rows:
        pass

    assert await store.turn(player.tenant, waiting.turn_id) is not None
    assert await store.turn(player.tenant, other.turn_id) is None


async def test_a_deleted_session_without_a_single_row_does_not_end_a_prune(
    player: Player, store: Store
) -> None:
    """A step that found nothing but such sessions said that there was nothing more to do."""
    empty = await store.bind(player.tenant, SessionKey("first"), fresh=player.mint(SessionId))
    other = await player.play("second")
    await store.remove(player.tenant, empty.id)
    await store.remove(player.tenant, other.session_id)

    while (await store.prune(limit=1)).rows:
        pass

    assert await store.turn(player.tenant, other.turn_id) is None


async def test_the_first_turn_after_a_reset_has_not_made_the_session_however_often_it_is_asked(
    player: Player, store: Store
) -> None:
    """Asked again within the millisecond of the reset, it said that it had."""
    await store.bind(player.tenant, SessionKey("trip"), fresh=player.mint(SessionId))
    ask = await player.ask("trip")
    first = await store.begin(ask)
    assert isinstance(first, Started) and not first.created

    assert await store.begin(ask) == first


@pytest.mark.parametrize("name", ["trip", None], ids=["by key", "anonymous"])
async def test_a_first_request_that_comes_again_very_late_does_not_revive_what_was_deleted(
    player: Player, store: Store, name: str | None
) -> None:
    """Its turn was pruned and its key was free, so the session was about to be made again, under its old id."""
    ask = await player.ask(name)
    first = await store.begin(ask)
    assert isinstance(first, Started)
    gone = await store.remove(player.tenant, first.fence.session_id)
    while (await store.prune()).rows:
        pass

    assert await store.begin(ask) == Gone(session_id=gone.id, why="deleted")
    assert await store.session(player.tenant, gone.id) == gone
