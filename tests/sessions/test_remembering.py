"""Turns that have ended are remembered for watchers who are late, as far as there is room."""

from __future__ import annotations

import pytest

from holdfast import limits
from holdfast.sessions import owner
from tests.simulation.stage import Stage, act_out, on_stage


@on_stage
async def test_a_turn_is_remembered_for_a_while(stage: Stage) -> None:
    node = await stage.boot()
    ending = await stage.send(node, "Hi")
    await stage.sleep(limits.feed_keep_s - 1)
    assert node.sessions._owner.find(ending.turn_id) is not None
    await stage.sleep(2)
    assert node.sessions._owner.find(ending.turn_id) is None


def test_turns_are_remembered_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy server ends thousands of turns while one of them would be remembered."""
    monkeypatch.setattr(limits, "ended_turns_bytes", 3 * owner.ENDED_BYTES + 100_000)

    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        endings = [await stage.send(node, f"message {n}") for n in range(10)]
        found = [node.sessions._owner.find(each.turn_id) is not None for each in endings]
        assert found == sorted(found) and 3 <= sum(found) < 10, "the last ones"
        await stage.sleep(limits.feed_keep_s + 1)
        assert not node.sessions._owner.live
        assert node.sessions._owner._ended_bytes == 0

    act_out(scenario, "memory")
