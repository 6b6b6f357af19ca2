"""Where playing a turn and owning it meet: each side can be had without the other."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import assert_never

import pytest

from holdfast.core.grants import Grant
from holdfast.core.history.conversation import Snapshot
from holdfast.core.items import Blob, ToolResult, TurnLimits, UserMessage
from holdfast.core.ports import OpenTurn, Play
from holdfast.core.turns import effects as wish
from holdfast.core.turns.closure import advanced
from holdfast.core.turns.effects import wanted
from holdfast.core.turns.events import Event
from holdfast.core.turns.turn import Turn
from holdfast.errors import IllegalEvent
from holdfast.ids import SessionId, Tenant
from tests.core.builders import (
    after,
    answered,
    asked,
    begun,
    branch_opened,
    call,
    called,
    finished,
    frozen,
    interrupted,
    mint,
    said,
    started,
    steered,
)


class TurnInMemory:
    """An open turn that nobody stores: enough to play one."""

    def __init__(self, turn: Turn, *waiting: UserMessage) -> None:
        self.tenant = Tenant("acme")
        self.mint = mint
        self.blobs: dict[str, bytes] = {}
        self.snapshot = Snapshot(session_id=mint(SessionId))
        self.turn = turn
        self.deadline_s: float | None = None
        self._steering = waiting

    async def record(self, *events: Event) -> None:
        self.turn = advanced(self.turn, events)

    async def keep_blob(self, data: bytes, media_type: str) -> Blob:
        blob = Blob(
            media_type=media_type,
            digest=f"sha256:{sha256(data).hexdigest()}",
            size_bytes=len(data),
        )
        self.blobs[blob.digest] = data
        return blob

    async def blob(self, digest: str) -> bytes | None:
        return self.blobs.get(digest)

    async def memories(self, agent: str) -> Mapping[str, str]:
        return {}

    async def grants(self, agent: str) -> tuple[Grant, ...]:
        return ()

    async def take_steering(self) -> tuple[UserMessage, ...]:
        if not self.turn.root.idle or not self._steering:
            return ()
        taken, self._steering = self._steering, ()
        await self.record(steered(*(str(each.content) for each in taken)))
        return taken


async def play(turn: OpenTurn) -> None:
    """The smallest player: every model says one word, every tool does what it is told."""
    while True:
        await turn.take_steering()
        for effect in wanted(turn.turn):
            match effect:
                case wish.AskModel():
                    await turn.record(
                        asked(effect.path), answered(said(path=effect.path), path=effect.path)
                    )
                case wish.RunCall():
                    await turn.record(started(effect.call), finished(effect.call))
                case wish.ReturnBranch():
                    await turn.record(finished(effect.call, effect.text))
                case wish.StopAtLimit():
                    await turn.record(interrupted("limit", detail=effect.limit))
                case wish.Finish() | wish.Close():
                    return
                case _:
                    assert_never(effect)


async def test_a_turn_is_played_until_nothing_but_its_end_is_wanted() -> None:
    look, fly = call("look"), call("fly")
    turn = TurnInMemory(after(called(look, fly), branch_opened(look)))
    player: Play = play

    await player(turn)

    assert wanted(turn.turn) == (wish.Finish(),)
    results = [each for each in turn.turn.items if isinstance(each, ToolResult)]
    assert {each.call for each in results} == {look.id, fly.id}


async def test_a_turn_that_comes_to_a_limit_is_left_to_be_closed() -> None:
    turn = TurnInMemory(called(call(), limits=TurnLimits(calls_max=0)))
    await play(turn)
    assert wanted(turn.turn) == (wish.Close(),)


async def test_events_are_recorded_all_or_none() -> None:
    turn = TurnInMemory(begun())
    before = frozen(turn.turn)
    with pytest.raises(IllegalEvent):
        await turn.record(asked(), asked())
    assert frozen(turn.turn) == before


async def test_a_tool_may_keep_what_is_too_large_for_an_item() -> None:
    turn: OpenTurn = TurnInMemory(begun())
    blob = await turn.keep_blob(b"GIF89a", "image/gif")
    assert (blob.media_type, blob.size_bytes) == ("image/gif", 6)
    assert await turn.blob(blob.digest) == b"GIF89a"


async def test_steering_is_taken_between_two_steps_and_answered() -> None:
    (words,) = steered("Louder").items
    turn = TurnInMemory(begun(), words)

    await play(turn)

    assert turn.turn.complete
    assert await turn.take_steering() == ()
