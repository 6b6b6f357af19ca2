"""Whole turns, made before the clock runs: what T1 and T2 are called with."""

from __future__ import annotations

import random
import time

from msgspec import Struct

from holdfast.core.history import chain
from holdfast.core.history.conversation import Commit, commit_of
from holdfast.core.items import AssistantMessage, UserMessage, plain_text
from holdfast.core.turns import events as ev
from holdfast.core.turns.turn import advance, begin
from holdfast.ids import (
    IdempotencyKey,
    MessageId,
    Minter,
    NodeId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)
from holdfast.store.outcomes import Attempt, Begin, ByKey

TENANT = Tenant("local")
SAID_CHARS = 400
"""A message of a chat: a few sentences."""

dice = random.Random(1)
mint = Minter(now_ms=lambda: time.time_ns() // 1_000_000, random_bits=dice.getrandbits)


class Turn(Struct):
    """A whole turn, ready to be written: what T1 and T2 are called with."""

    ask: Begin
    commit: Commit


class Session:
    """Makes the turns of one session, each on top of the last, without asking a store."""

    def __init__(
        self, key: str, node: NodeId, *, chars: int = SAID_CHARS, keyed: bool = False
    ) -> None:
        self._key = SessionKey(key)
        self._node = node
        self._id = mint(SessionId)
        self._chars = chars
        self._keyed = keyed
        """Whether each request has an idempotency key."""
        self._version = Version(0)
        self._length = 0
        self._link = chain.GENESIS

    def next_turn(self) -> Turn:
        request = ev.TurnRequest(
            turn_id=mint(TurnId),
            base=self._version,
            base_length=self._length,
            source_key="agents/butler.yaml",
            agent="butler",
            input=(UserMessage(id=mint(MessageId), content=plain_text("u" * self._chars)),),
        )
        answer = AssistantMessage(id=mint(MessageId), content=plain_text("a" * self._chars))
        turn = begin(ev.Began(request=request))
        for event in (
            ev.StepStarted(),
            ev.Answered(items=(answer,), usage=ev.Usage(input_tokens=90, output_tokens=90)),
            ev.Ended(by="completed", kept=True),
        ):
            turn = advance(turn, event)
        commit = commit_of(turn, previous=self._link)
        ask = Begin(
            tenant=TENANT,
            node=self._node,
            nonce=request.turn_id.body,
            target=ByKey(key=self._key, fresh=self._id),
            expected=self._id if self._version else None,
            request=request,
            attempt=Attempt(
                request_hash=bytes(32),
                key=IdempotencyKey(request.turn_id.body) if self._keyed else None,
            ),
        )
        self._version, self._link = commit.version, commit.link
        self._length += len(commit.items)
        return Turn(ask, commit)
