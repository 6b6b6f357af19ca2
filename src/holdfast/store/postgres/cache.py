"""What this process knows of sessions because it was the last to write them.

A write moves the session's stamp, and the process that wrote knows what the row is now. That stays true for as long as
the stamp does, and the next write names the stamp in any case. So a process that goes on with a session begins and
commits its turns by one statement each, and reads nothing.

1. What is known is a proposal: the statement that builds on it touches nothing if another process has written since.
2. Only a yes comes of it. What looks like a refusal, a repetition or a late commit is read before it is said.
3. It is used once, and known anew from what was written: a statement whose answer was lost leaves nothing behind.
4. A connection that breaks ends all of it. There may be another database behind the next one, a standby that has
   heard less, and there the same stamp can come a second time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.ids import SessionId, SessionKey, Tenant, TurnId
from holdfast.store.operations.turns import AppendLook, BeginLook, EndLook
from holdfast.store.rows import KeyRow, NodeRow, SessionRow
from holdfast.store.sql.tables import CLAIMS, JOURNAL, SESSIONS, TURNS
from holdfast.store.steps import Insert, LookStep, Moment, Step, Update, WriteStep
from holdfast.store.verification import proofs


class Known(Value):
    """A session as our last write left it."""

    session: SessionRow
    stamp: int
    key: SessionKey | None
    """One that means it: an operation that moves a key moves the stamp of its session."""
    last_n: int = -1
    """The first number of the last row in its open turn's journal."""
    replayable: bool = False
    """Whether its open turn is."""
    is_claimed: bool = False
    """Whether idempotency keys lead to its open turn."""
    noted_s: float = 0.0
    """When that was, by our own clock."""
    noted_ms: int = 0
    """And by the database's."""

    def answer(self, step: Step, *, now_ms: int) -> object:
        """What a step would find; None if that is not known."""
        if not isinstance(step, LookStep):
            return None
        kind, given = step.look.kind, step.given
        if kind is BeginLook and given["claim"] is None:
            return self._beginning(given, now_ms)
        if kind is AppendLook and given["n"] > self.last_n:
            return AppendLook(now_ms=now_ms, session=self.session, last_n=self.last_n, same_n=None)
        if kind is EndLook and self._is_of(given):
            return EndLook(
                now_ms=now_ms,
                session=self.session,
                replayable=self.replayable,
                last_n=self.last_n,
                is_told=False,  # each signal moves the stamp
                is_claimed=self.is_claimed,
            )
        return None

    def _is_of(self, given: Mapping[str, Any]) -> bool:
        return self.session.open_turn is not None and given["turn_id"] == self.session.open_turn

    def _beginning(self, given: Mapping[str, Any], now_ms: int) -> BeginLook:
        """Left to the statement that writes: that the node is alive, and that this very request has not begun."""
        session = self.session
        node = NodeRow(node_id=given["node"], ttl_ms=0, since_ms=now_ms, expires_ms=now_ms + 1)
        key = given["key"] and KeyRow(
            tenant=session.tenant, key=given["key"], session_id=session.id
        )
        return BeginLook(
            now_ms=now_ms,
            node=node,
            key=key or None,
            session=session,
            holder=None,
            has_begun=False,
            claim=None,
        )


class Cache:
    """The sessions that were written last by us. `era` changes when a connection breaks."""

    def __init__(self, *, era: Callable[[], int]) -> None:
        self._era = era
        self._since = era()
        self._known: OrderedDict[tuple[Tenant, SessionId], Known] = OrderedDict()
        self._named: dict[tuple[Tenant, SessionKey], SessionId] = {}

    def __repr__(self) -> str:
        return f"<Cache {len(self._known)} sessions>"

    def __iter__(self) -> Iterator[Known]:
        return iter(self._known.values())

    def take(self, step: Step) -> Known | None:
        """What is known of the session that an operation looks at first, for once."""
        self._forget_former()
        if not isinstance(step, LookStep) or step.look.kind not in (BeginLook, AppendLook, EndLook):
            return None
        given = step.given
        tenant, key = given["tenant"], given.get("key")
        session_id = given["session_id"] if key is None else self._named.get((tenant, key))
        return None if session_id is None else self._pop(tenant, session_id)

    def forget(self, tenant: Tenant, session_id: SessionId) -> None:
        self._pop(tenant, session_id)

    def put(self, known: Known) -> None:
        """This is how we have written a session."""
        self._forget_former()
        place = known.session.tenant, known.session.id
        self._known[place] = known
        if known.key is not None:
            self._named[known.session.tenant, known.key] = known.session.id
        if len(self._known) > limits.known_rows_max:
            self._pop(*next(iter(self._known)))

    def _pop(self, tenant: Tenant, session_id: SessionId) -> Known | None:
        known = self._known.pop((tenant, session_id), None)
        if known is not None and known.key is not None:
            self._named.pop((tenant, known.key), None)
        return known

    def _forget_former(self) -> None:
        if self._since != self._era():
            self._since = self._era()
            self._known.clear()
            self._named.clear()


def known_after(
    writing: WriteStep,
    before: Known | None,
    *,
    stamp: int,
    key: SessionKey | None,
    at_ms: int,
    at_s: float,
) -> Known | None:
    """What is known of the one session that was written under this stamp; None if that is not all of it.

    `before` is what was known of it until then, if it still was so.
    """
    session = _session_after(writing, at_ms)
    if session is None:
        return None
    last_n, replayable, is_claimed = -1, False, False
    if session.open_turn is not None:
        # What begins to wait for the session is written as well, and is not its open turn.
        turns = _of_turn(writing, TURNS, session.open_turn)
        journal = _of_turn(writing, JOURNAL, session.open_turn)
        if turns:
            (turn,) = turns
            replayable = turn.replayable
            is_claimed = bool(_of_turn(writing, CLAIMS, session.open_turn))
            if any(isinstance(each, Update) and each.table is CLAIMS for each in writing.changes):
                return None  # keys that led elsewhere are better read
        elif before is not None:
            last_n, replayable = before.last_n, before.replayable
            is_claimed = before.is_claimed
        else:
            return None
        last_n = max([last_n, *(row.n for row in journal)])
    return Known(
        session=session,
        stamp=stamp,
        key=key,
        last_n=last_n,
        replayable=replayable,
        is_claimed=is_claimed,
        noted_s=at_s,
        noted_ms=at_ms,
    )


def _of_turn(writing: WriteStep, table: object, turn_id: TurnId) -> list[Any]:
    rows = (row for each in _inserted(writing, table) for row in each.rows)
    return [row for row in rows if row.turn_id == turn_id]


def _inserted(writing: WriteStep, table: object) -> Iterator[Insert]:
    return (each for each in writing.changes if isinstance(each, Insert) and each.table is table)


def _session_after(writing: WriteStep, at_ms: int) -> SessionRow | None:
    made = [row for each in _inserted(writing, SESSIONS) for row in each.rows]
    if len(writing.on) + len(made) != 1:
        return None
    if made:
        return made[0]  # type: ignore[no-any-return]
    (session,) = writing.on
    if not isinstance(session, SessionRow):
        return None
    for each in writing.changes:
        if isinstance(each, Update) and each.table is SESSIONS:
            columns = {
                name: at_ms + value if type(value) is Moment else value
                for name, value in each.columns.items()
                if name not in (proofs.AGENT.column, proofs.SESSION.column)
            }
            session = msgspec.structs.replace(session, **columns)
    return session


FIRST_STAMP = 1
"""What the table gives to a session that is new."""
