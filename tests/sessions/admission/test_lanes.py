"""A lane lets one in at a time, in the order in which they came, and is gone when nobody is in it."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.sessions.admission.lanes import Lane, LaneFull, Lanes

NAME = ("acme", "trip")


async def waiting(lanes: Lanes, *, first: bool = False) -> asyncio.Task[Lane]:
    """Somebody who waits for the lane."""
    before = lanes.waiting
    task = asyncio.create_task(lanes.enter(NAME, first=first))
    await asyncio.sleep(0)  # it runs until it waits
    assert lanes.waiting == before + 1
    return task


async def test_a_lane_that_nobody_is_in_is_entered_at_once_and_by_one() -> None:
    lanes = Lanes(waiting_max=2)
    lane = lanes.enter_free(NAME)
    assert lane is not None and lanes.is_held(NAME)
    assert lanes.enter_free(NAME) is None
    lanes.leave(lane)
    assert len(lanes) == 0 and not lanes.is_held(NAME)


async def test_whoever_waits_is_let_in_in_order_and_nobody_enters_before_them() -> None:
    lanes = Lanes(waiting_max=3)
    lane = lanes.enter_free(NAME)
    assert lane is not None
    second, third = await waiting(lanes), await waiting(lanes)
    urgent = await waiting(lanes, first=True)
    for task in (urgent, second, third):
        lanes.leave(lane)
        assert lanes.enter_free(NAME) is None  # it has changed hands, whoever is woken late
        assert await task is lane
    lanes.leave(lane)
    assert len(lanes) == 0


async def test_no_more_wait_than_may() -> None:
    lanes = Lanes(waiting_max=1)
    lane = await lanes.enter(NAME)
    only = await waiting(lanes)
    with pytest.raises(LaneFull):
        await lanes.enter(NAME)
    lanes.leave(lane)
    lanes.leave(await only)


async def test_a_waiter_that_gives_up_leaves_the_others_where_they_are() -> None:
    lanes = Lanes(waiting_max=3)
    lane = await lanes.enter(NAME)
    early, late = await waiting(lanes), await waiting(lanes)
    early.cancel()
    await asyncio.gather(early, return_exceptions=True)
    assert lanes.waiting == 1
    lanes.leave(lane)
    late.cancel()  # it was its turn already, and it does not take it
    await asyncio.gather(late, return_exceptions=True)
    assert len(lanes) == 0


async def test_a_lane_goes_by_all_its_names_until_it_is_empty() -> None:
    lanes = Lanes(waiting_max=1)
    lane = lanes.enter_free(NAME)
    assert lane is not None
    lanes.alias("session", lane)
    assert lanes.enter_free("session") is None and len(lanes) == 1
    lanes.leave(lane)
    assert lanes.enter_free("session") is not None
