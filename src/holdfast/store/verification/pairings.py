"""What a session, its turns and the idempotency keys say of each other: every way in which two rows can contradict.

Each rule names a contradiction. An operation writes both rows of a pair in one transaction, so none may ever be found in
a store; sweeps end a turn that its session does not name (`end_stray`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from holdfast.core.history.checks import Violation
from holdfast.store.rows import SessionRow, TurnRow

Pair = TypeVar("Pair")


class Contradiction(Struct, Generic[Pair], frozen=True):
    """`holds` is whether a pair of rows contradicts itself, and `what` what is wrong with it then."""

    code: str
    what: str
    holds: Callable[[Pair], bool]


class SessionTurn(Struct, frozen=True):
    """A session and one of its turns."""

    session: SessionRow
    turn: TurnRow

    @property
    def is_named(self) -> bool:
        return self.session.open_turn == self.turn.turn_id

    @property
    def is_open(self) -> bool:
        return self.turn.state == "open"

    @property
    def is_queued(self) -> bool:
        return self.turn.state == "queued"


class KeyedTurn(Protocol):
    """An idempotency key, and the turn that it leads to; `turn_state` is None if there is no such turn."""

    @property
    def state(self) -> str: ...
    @property
    def expires_ms(self) -> int: ...
    @property
    def steer(self) -> int | None: ...
    @property
    def turn_state(self) -> str | None: ...
    @property
    def ended_ms(self) -> int | None: ...
    @property
    def is_heard(self) -> bool | None: ...


SESSION_AND_TURN: tuple[Contradiction[SessionTurn], ...] = (
    Contradiction(
        "open_off",
        "it is open, and its session knows nothing of it",
        lambda pair: pair.is_open and not pair.is_named,
    ),
    Contradiction(
        "open_off",
        "its session says that it is open, and it is not",
        lambda pair: pair.is_named and not pair.is_open,
    ),
    Contradiction(
        "open_off",
        "it is held under another lease than its session",
        lambda pair: pair.is_open and pair.turn.lease_token != pair.session.lease_token,
    ),
    Contradiction(
        "open_off",
        "it has begun at another version than its session is at",
        lambda pair: pair.is_open and pair.turn.base_head != pair.session.head,
    ),
    Contradiction(
        "open_off",
        "it is open, and says that it has ended",
        lambda pair: pair.is_open and not _is_unended(pair.turn),
    ),
    Contradiction(
        "open_off",
        "it is open in a session that is deleted",
        lambda pair: pair.is_open and pair.session.state == "deleted",
    ),
    Contradiction(
        "queued_off",
        "it waits for a session that is deleted",
        lambda pair: pair.is_queued and pair.session.state == "deleted",
    ),
    Contradiction(
        "queued_off",
        "it waits, and says that it has begun",
        lambda pair: pair.is_queued and (pair.turn.lease_token > 0 or not _is_unended(pair.turn)),
    ),
)

KEY_AND_TURN: tuple[Contradiction[KeyedTurn], ...] = (
    Contradiction(
        "claim_running",
        "it waits for a turn that has ended, or does not exist",
        lambda key: key.state == "running" and key.turn_state not in ("open", "queued"),
    ),
    Contradiction(
        "claim_running",
        "it waits for a message that its turn was never told",
        lambda key: key.state == "running" and key.steer is not None and key.is_heard is None,
    ),
    Contradiction(
        "claim_off",
        "it may begin anew, and its turn is committed",
        lambda key: key.state == "failed" and key.turn_state == "committed" and key.steer is None,
    ),
    Contradiction(
        "claim_off",
        "it may begin anew, and its message was heard by a turn that is committed",
        lambda key: (
            key.state == "failed" and key.turn_state == "committed" and key.is_heard is True
        ),
    ),
    Contradiction(
        "claim_off",
        "it has ended well, and its message was not heard",
        lambda key: key.state == "done" and key.is_heard is False,
    ),
    Contradiction(
        "claim_off",
        "it ends before its turn has",
        lambda key: key.state != "running" and key.expires_ms < (key.ended_ms or 0),
    ),
    Contradiction(
        "claim_off",
        "it has ended, and its turn has not",
        lambda key: (
            key.turn_state in ("open", "queued") and (key.state != "running" or key.expires_ms > 0)
        ),
    ),
)


def judge_turns(session: SessionRow, turns: Iterable[TurnRow]) -> Iterator[Violation]:
    """Whether a session and its turns agree on which turn is open, and which ones wait."""
    turns = tuple(turns)
    for turn in turns:
        pair = SessionTurn(session, turn)
        for rule in SESSION_AND_TURN:
            if rule.holds(pair):
                yield Violation(code=rule.code, where=turn.turn_id, what=rule.what)
    named = session.open_turn
    if named is not None and named not in {each.turn_id for each in turns}:
        what = "its session says that it is open, and it does not exist"
        yield Violation(code="open_off", where=named, what=what)
    if named is None and session.lease_node is not None:
        what = f"{session.lease_node} holds it, and it has no open turn"
        yield Violation(code="open_off", where=session.id, what=what)


_AT_THE_END = (
    *("seq", "ended_by", "detail", "start", "end", "rev", "changes", "link", "usage"),
    *("acked", "ended_ms", "links", "answer", "prefix", "answer_id"),
)
_BEFORE = {each.name: each.default for each in msgspec.structs.fields(TurnRow)}


def _is_unended(turn: TurnRow) -> bool:
    """Whether a turn says nothing yet that only its end tells."""
    return all(getattr(turn, name) == _BEFORE[name] for name in _AT_THE_END)
