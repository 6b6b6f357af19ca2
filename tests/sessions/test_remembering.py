"""Turns that have ended are remembered for watchers who are late, as far as there is room."""

from __future__ import annotations

import pytest

from holdfast import limits
from holdfast.core.turns import events as ev
from holdfast.ids import MessageId, SessionKey
from holdfast.sessions.turns import owner
from tests.simulation.stage import Hand, Part, Stage, act_out, on_stage

LONG = "word " * 60_000


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


async def _be_brief(hand: Hand) -> None:
    await hand.say("Hello")


async def _say_at_length(hand: Hand) -> None:
    await hand.say(LONG)


async def _break_off(hand: Hand) -> None:
    item = hand.open.mint(MessageId)
    await hand.open.record(ev.StepStarted(), ev.ItemOpened(item=item, kind="message"))
    await hand.open.record(ev.Grew(item=item, text=LONG))
    raise RuntimeError("it has fallen over")


@pytest.mark.parametrize(
    ("text", "part"), [(LONG, _be_brief), ("Hi", _say_at_length), ("Hi", _break_off)]
)
def test_turns_are_remembered_by_what_they_hold(
    monkeypatch: pytest.MonkeyPatch, text: str, part: Part
) -> None:
    """A turn holds its history; and its events, however few they are, hold what they say."""
    monkeypatch.setattr(limits, "ended_turns_bytes", 1_000_000)

    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        stage.parts[text] = part
        for n in range(10):
            await stage.send(node, text, name=SessionKey(f"c{n}"))
        assert 0 < len(node.sessions._owner.live) <= 3

    act_out(scenario, "memory")
