"""Each way in which a session, its turns and idempotency keys can contradict is named; what agrees is not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.core.codec import Value
from holdfast.ids import NodeId, SessionId, Tenant, TurnId, Version
from holdfast.store.rows import SessionRow, TurnRow
from holdfast.store.verification.pairings import KEY_AND_TURN, SESSION_AND_TURN, judge_turns

ACME, HERE = Tenant("acme"), NodeId("node_01jxt21q2m4kv768hy9zw4gw5j")
TURN = TurnId("turn_01jxt23hmsrj7df04jypxk43n5")
CONV = SessionId("conv_01jxt21q2m4kv768hy9zw4gw5j")
BUSY = SessionRow(
    tenant=ACME, id=CONV, head=Version(3), lease_token=7, lease_node=HERE, open_turn=TURN
)
OPEN = TurnRow(
    tenant=ACME, turn_id=TURN, session_id=CONV, base_head=Version(3), state="open", lease_token=7
)
FREE = replace(BUSY, open_turn=None, lease_node=None)
QUEUED = replace(OPEN, state="queued", lease_token=0)
ENDED = replace(
    OPEN, state="committed", seq=Version(3), base_head=Version(2), ended_by="completed", ended_ms=9
)

TURNS: dict[str, tuple[SessionRow, TurnRow]] = {
    "it is open, and its session knows nothing of it": (FREE, OPEN),
    "its session says that it is open, and it is not": (BUSY, ENDED),
    "it is held under another lease than its session": (BUSY, replace(OPEN, lease_token=6)),
    "it has begun at another version than its session is at": (replace(BUSY, head=4), OPEN),
    "it is open, and says that it has ended": (BUSY, replace(OPEN, ended_ms=9)),
    "it is open in a session that is deleted": (replace(BUSY, state="deleted"), OPEN),
    "it waits for a session that is deleted": (replace(FREE, state="deleted"), QUEUED),
    "it waits, and says that it has begun": (FREE, replace(QUEUED, lease_token=7)),
}


@pytest.mark.parametrize("what", [each.what for each in SESSION_AND_TURN])
def test_a_turn_that_contradicts_its_session_is_named(what: str) -> None:
    session, turn = TURNS[what]
    assert [each.what for each in judge_turns(session, [turn])] == [what]


def test_a_session_whose_open_turn_does_not_exist_is_named() -> None:
    [found] = judge_turns(BUSY, [])
    assert (found.code, found.where) == ("open_off", TURN)


def test_a_session_that_is_held_without_an_open_turn_is_named() -> None:
    [found] = judge_turns(replace(FREE, lease_node=HERE), [])
    assert (found.code, found.where) == ("open_off", CONV)


@pytest.mark.parametrize(
    ("session", "turn"),
    [(BUSY, OPEN), (FREE, ENDED), (FREE, QUEUED), (replace(FREE, state="deleted"), ENDED)],
)
def test_what_agrees_is_not_named(session: SessionRow, turn: TurnRow) -> None:
    assert list(judge_turns(session, [turn])) == []


class Key(Value):
    """A key as `claims_page` reads it, as far as the rules look at it."""

    state: str = "running"
    expires_ms: int = 0
    steer: int | None = None
    turn_state: str | None = "open"
    ended_ms: int | None = None
    is_heard: bool | None = None


KEYS: dict[str, Any] = {
    "it waits for a turn that has ended, or does not exist": Key(turn_state=None),
    "it waits for a message that its turn was never told": Key(steer=1),
    "it may begin anew, and its turn is committed": Key(
        state="failed", expires_ms=9, turn_state="committed"
    ),
    "it may begin anew, and its message was heard by a turn that is committed": Key(
        state="failed", expires_ms=9, turn_state="committed", steer=1, is_heard=True
    ),
    "it has ended well, and its message was not heard": Key(
        state="done", expires_ms=9, turn_state="discarded", steer=1, is_heard=False
    ),
    "it ends before its turn has": Key(
        state="done", expires_ms=8, turn_state="committed", ended_ms=9
    ),
    "it has ended, and its turn has not": Key(state="done", expires_ms=9),
}


@pytest.mark.parametrize("what", [each.what for each in KEY_AND_TURN])
def test_a_key_that_contradicts_its_turn_is_named(what: str) -> None:
    assert [each.what for each in KEY_AND_TURN if each.holds(KEYS[what])] == [what]


@pytest.mark.parametrize(
    "key",
    [
        Key(),
        Key(turn_state="queued"),
        Key(steer=1, is_heard=False),
        Key(steer=1, is_heard=True),
        Key(state="done", expires_ms=9, turn_state="committed"),
        Key(state="failed", expires_ms=9, turn_state="discarded"),
        Key(state="done", expires_ms=9, turn_state="committed", ended_ms=9),
        Key(state="failed", expires_ms=9, turn_state="committed", steer=1),
        Key(state="failed", expires_ms=9, turn_state="committed", steer=1, is_heard=False),
        Key(state="failed", expires_ms=9, turn_state="discarded", steer=1, is_heard=True),
        Key(state="done", expires_ms=9, turn_state="committed", steer=1, is_heard=True),
    ],
)
def test_a_key_that_agrees_with_its_turn_is_not_named(key: Key) -> None:
    assert [each.what for each in KEY_AND_TURN if each.holds(key)] == []
