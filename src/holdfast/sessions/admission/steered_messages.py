"""Messages that are steered into an open turn: its player takes them before its next step, and answers them.

A client that resends everything sends the open turn's own messages as well, and a later request of it may have brought
a message before the earlier request did. So new messages are found by comparison with all messages of the open turn so
far, and the store accepts them only if no other message was steered into the turn meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.resends import Arrival, Overtaken
from holdfast.core.items import Item, Items, UserMessage
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record, decode_records
from holdfast.errors import InDoubt, StoreUnavailable, TurnRejected
from holdfast.ids import Tenant, TurnId
from holdfast.sessions.admission.session_lookup import ResolvedSession, SessionLookup, request_after
from holdfast.sessions.admission.steered_requests import is_retried, signed
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.session_requests import Ask, Choose
from holdfast.sessions.turns.live_turn import steering_messages, steering_payload
from holdfast.sessions.turns.owner import Owner
from holdfast.sessions.turns.store_retries import persistently
from holdfast.sessions.turns.turn_notes import note_signal
from holdfast.sessions.turns.watch import Watch, persistent_ending
from holdfast.store.outcomes import (
    Gone,
    Joined,
    Mismatch,
    Replay,
    Signalled,
    ToldMore,
    TooLate,
    Unfinished,
)
from holdfast.store.rows import SignalRow
from holdfast.store.store import Store


class HeardMessage(Value):
    """The turn's player has taken the message, from this request or a later one, and answers it."""


class SteeredMessages:
    """Steers messages into open turns, whichever node plays them."""

    def __init__(
        self, store: Store, owner: Owner, resolver: SessionLookup, ambient: Ambient, choose: Choose
    ) -> None:
        self._store = store
        self._owner = owner
        self._resolver = resolver
        self._ambient = ambient
        self._choose = choose

    async def steer(
        self,
        ask: Ask,
        turn_id: TurnId,
        since: Callable[[Snapshot], Arrival],
        find_known: Callable[[Ask, ResolvedSession], Awaitable[Watch | Unfinished | None]],
    ) -> HeardMessage | Watch | Joined | Replay | Mismatch | Gone | None:
        """Steer the request's messages into the open turn. None if it is too late: then the request begins the next
        turn. `since` tells how the session stood when the request arrived, and `find_known` the turn that the request
        is a retry of, if it is one.

        The idempotency key of a request is bound to that turn: a retry finds the turn instead of steering again.
        """
        while True:
            here = self._owner.live.get(turn_id)
            seen = await self._resolver.look(ask, verify=True)
            known = await find_known(ask, seen)
            if known is not None:
                return None if isinstance(known, Unfinished) else known
            running, earlier = await self._said_to(ask, turn_id)
            last_n = earlier[-1].n if earlier else 0
            told_n = next(
                (row.n for row in earlier if is_retried(_said_in(row), ask.attempt)), None
            )
            if told_n is not None:
                return await self._heard(ask, turn_id, told_n)
            messages = await self._new(ask, seen, since=since(seen.snapshot), running=running)
            if isinstance(messages, Overtaken):
                if messages.turn_id is None:
                    return await self._heard(ask, turn_id, last_n)
                return Replay(turn_id=messages.turn_id, session_id=seen.snapshot.session_id)
            if messages is None:
                return None
            messages = signed(messages, ask.attempt)
            sent = await self._store.signal(
                ask.tenant,
                turn_id,
                kind="steer",
                payload=steering_payload(messages),
                attempt=ask.attempt,
                after=last_n,
            )
            note_signal(ask.tenant, turn_id, "steer")
            match sent:
                case ToldMore():
                    continue
                case TooLate() | Unfinished():
                    return None
                case Signalled(n=n):
                    # Earlier signals may not be delivered yet; deliver them first, unless the turn has changed hands.
                    if here is self._owner.live.get(turn_id):
                        self._deliver(*(each for each in earlier if not each.consumed))
                    self._deliver(_row(ask, turn_id, n, messages))
                    return await self._heard(ask, turn_id, n)
                case _:  # another node was faster with the same request
                    return sent

    async def _new(
        self, ask: Ask, seen: ResolvedSession, *, since: Arrival, running: Items
    ) -> tuple[UserMessage, ...] | Overtaken | None:
        """The messages that are new to the turn; None if the request also has results, which cannot be steered."""
        try:
            taken = request_after(
                ask, seen.snapshot, self._ambient, self._choose, since=since, running=running
            )
        except TurnRejected:
            if seen.snapshot.waiting:
                return None  # it may answer calls that will wait again if the turn is discarded
            raise
        if isinstance(taken, Overtaken):
            return taken
        said = (await self._resolver.with_blobs(ask.tenant, seen, taken.request)).input
        messages = tuple(each for each in said if isinstance(each, UserMessage))
        # Results answer calls of the last turn, so they begin a turn of their own.
        return messages if len(messages) == len(said) else None

    def _deliver(self, *rows: SignalRow) -> None:
        for row in rows:
            self._owner.deliver(row)

    async def _heard(self, ask: Ask, turn_id: TurnId, n: int) -> HeardMessage | None:
        """Wait until the turn has taken the signals up to `n`, or has ended without; 0: the message began the turn.

        Raises InDoubt if the store stays unavailable and the request has no key: sent again, it could be taken twice.
        """
        try:
            return HeardMessage() if not n or await self.is_heard(ask.tenant, turn_id, n) else None
        except StoreUnavailable as error:
            if ask.attempt.key is not None:
                raise
            raise InDoubt(
                f"whether {turn_id} has heard the message is not known: {error}"
            ) from error

    async def _said_to(self, ask: Ask, turn_id: TurnId) -> tuple[Items, tuple[SignalRow, ...]]:
        """The messages of an open turn so far, and its signals."""
        said: list[Item] = [*await self._input(ask.tenant, turn_id)]
        rows: list[SignalRow] = []
        while row := await self._store.find_signal(ask.tenant, turn_id, len(rows) + 1):
            rows.append(row)
            said += _said_in(row)
        return tuple(said), tuple(rows)

    async def _input(self, tenant: Tenant, turn_id: TurnId) -> Items:
        live = self._owner.live.get(turn_id)
        if live is not None:
            return live.turn.request.input
        rows = await self._store.journal(tenant, turn_id)
        for record in decode_records(rows[0].records) if rows else ():
            if isinstance(record, Record) and isinstance(record.event, ev.Began):
                return record.event.request.input
        return ()

    async def is_heard(self, tenant: Tenant, turn_id: TurnId, n: int) -> bool:
        """Wait until a turn has taken a signal, or has ended without.

        Raises StoreUnavailable if the store is unavailable, or accepts no writes, for `store_retry_s`.
        """
        while not await self._was_heard(tenant, turn_id, n):
            if await persistent_ending(self._store, tenant, turn_id) is not None:
                # The turn may have taken it at the last moment, after the check above.
                return await self._was_heard(tenant, turn_id, n)
            await self._owner.lease.wait_for_others()
        return True

    async def _was_heard(self, tenant: Tenant, turn_id: TurnId, n: int) -> bool:
        # Retried: the message has been sent, and a client that sends it again would steer it twice.
        row = await persistently(lambda: self._store.find_signal(tenant, turn_id, n))
        return row is not None and row.consumed


def _said_in(row: SignalRow) -> tuple[UserMessage, ...]:
    return steering_messages(row) if row.kind == "steer" else ()


def _row(ask: Ask, turn_id: TurnId, n: int, messages: tuple[UserMessage, ...]) -> SignalRow:
    payload = steering_payload(messages)
    return SignalRow(tenant=ask.tenant, turn_id=turn_id, n=n, kind="steer", payload=payload)
