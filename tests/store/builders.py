"""Short words for what happens on a store.

A `Player` is one node with a tenant: it asks, begins, plays and ends turns the way a server would, in one
line each. It knows nothing that it has not read from the store, so several of them can play against each other.

    await player.play("trip", "Hello", "Hi")                  # one whole committed turn
    turn = await player.open("trip", "And the weather?")      # T1 only
    await turn.answer("Rain")
    await turn.commit()                                       # or: await turn.end("cancelled")
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TypeAlias, TypedDict, Unpack

import msgspec

from holdfast import limits
from holdfast.core.exchanges import Followed
from holdfast.core.history.conversation import Commit, Snapshot, commit_of
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    Item,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import closing
from holdfast.core.turns.journal import Record, decode_records, encode_records, numbered
from holdfast.core.turns.turn import Turn, advance, begin
from holdfast.ids import (
    CallId,
    IdempotencyKey,
    MessageId,
    Minter,
    NodeId,
    ResultId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)
from holdfast.store.outcomes import (
    Anonymous,
    Attempt,
    Begin,
    BeginOutcome,
    ById,
    ByKey,
    CommitOutcome,
    Committed,
    EnqueueOutcome,
    Fence,
    NewLine,
    Queued,
    QueuedOpening,
    Settlement,
    Started,
    Taken,
    Target,
)
from holdfast.store.rows import NodeRow, TurnRow
from holdfast.store.store import Store
from holdfast.testing import ManualClock

ACME = Tenant("acme")
TTL_MS = 15_000
SOURCE = "agents/butler.yaml"

Words: TypeAlias = str | Item
Name: TypeAlias = str | SessionId | None
"""How a request names its session: by key, by id, or not at all."""


class Asking(TypedDict, total=False):
    """What a test may want to say about a request besides its words."""

    create: bool
    fresh: SessionId
    turn_id: TurnId
    nonce: str
    expire_after_ms: int
    key: str
    request_hash: bytes
    client_attempt: int
    replayable: bool
    agent: str
    source_name: str
    continues: TurnId
    links: int
    followed: Followed


class Player:
    """One node of one tenant, playing turns on a store."""

    def __init__(
        self, store: Store, mint: Minter, *, tenant: Tenant = ACME, node: NodeId | None = None
    ) -> None:
        self.store = store
        self.mint = mint
        self.tenant = tenant
        self.node = node or mint(NodeId)

    async def renew(self, *, ttl_ms: int = TTL_MS) -> NodeRow:
        return await self.store.renew(self.node, ttl_ms=ttl_ms)

    # what is asked for

    async def ask(
        self,
        name: Name,
        *said: Words,
        **asking: Unpack[Asking],
    ) -> Begin:
        """A request as a server would make it now."""
        turn_id = asking.get("turn_id") or self.mint(TurnId)
        fresh = asking.get("fresh") or self.mint(SessionId)
        target = _target(name, fresh, create=asking.get("create", True))
        known = await self.known(target)
        if known is not None and isinstance(target, ByKey) and "fresh" not in asking:
            target = ByKey(key=target.key, create=target.create)
        key = asking.get("key")
        return Begin(
            tenant=self.tenant,
            node=self.node,
            nonce=asking.get("nonce") or f"nonce of {turn_id}",
            target=target,
            expected=known.session_id if known else None,
            request=ev.TurnRequest(
                turn_id=turn_id,
                base=known.version if known else Version(0),
                base_rev=known.notes.rev if known else 0,
                base_length=len(known.items) if known else 0,
                source_key=SOURCE,
                source_name=asking.get("source_name", ""),
                source_digest="d1",
                agent=asking.get("agent", "butler"),
                input=() if "continues" in asking else self._input(said),
                carried=known.waiting if known else (),
                replayable=asking.get("replayable", False),
                continues=asking.get("continues"),
                links=asking.get("links", 0),
                followed=asking.get("followed"),
            ),
            attempt=Attempt(
                request_hash=asking.get("request_hash") or sha256(turn_id.encode()).digest(),
                key=IdempotencyKey(key) if key else None,
                client_attempt=asking.get("client_attempt", 0),
            ),
            expire_after_ms=asking.get("expire_after_ms"),
        )

    def _input(self, said: Sequence[Words]) -> tuple[Item, ...]:
        return tuple(map(self.user, said)) or (self.user("Hello"),)

    async def known(self, target: Target) -> Snapshot | None:
        """The session that a target means, as a request is reconciled against it."""
        match target:
            case Anonymous() | NewLine():
                return None
            case ById():
                return await self.store.snapshot(self.tenant, target.session_id)
            case ByKey():
                row = await self.store.resolve(self.tenant, target.key)
                return await self.store.snapshot(self.tenant, row.session_id) if row else None

    # whole turns

    async def begin(self, name: Name, *said: Words, **asking: Unpack[Asking]) -> BeginOutcome:
        """T1, whatever comes of it."""
        return await self.store.begin(await self.ask(name, *said, **asking))

    async def open(self, name: Name, *said: Words, **asking: Unpack[Asking]) -> Playing:
        """T1 that has to succeed."""
        ask = await self.ask(name, *said, **asking)
        outcome = await self.store.begin(ask)
        assert isinstance(outcome, Started), outcome
        return await self.playing(ask, outcome)

    async def enqueue(
        self, name: Name, *said: Words, behind: bool = False, **asking: Unpack[Asking]
    ) -> EnqueueOutcome:
        """A request that may wait for its session, whatever comes of it."""
        return await self.store.enqueue(await self.ask(name, *said, **asking), behind=behind)

    async def wait(self, name: Name, *said: Words, **asking: Unpack[Asking]) -> Queued:
        """A request that has to wait for its session."""
        outcome = await self.enqueue(name, *said, **asking)
        assert isinstance(outcome, Queued), outcome
        return outcome

    async def opening(self, turn_id: TurnId) -> QueuedOpening:
        """What a server would ask to open a queued turn now."""
        row = await self.store.turn(self.tenant, turn_id)
        assert row is not None
        rows = await self.store.journal(self.tenant, turn_id)
        (record, *_) = decode_records(rows[0].records)
        assert isinstance(record, Record) and isinstance(record.event, ev.Began)
        head = await self.snapshot(row.session_id)
        return QueuedOpening(
            tenant=self.tenant,
            session_id=row.session_id,
            node=self.node,
            nonce=f"opened by {self.node}",
            request=msgspec.structs.replace(
                record.event.request,
                base=head.version,
                base_rev=head.notes.rev,
                base_length=len(head.items),
                carried=head.waiting,
            ),
        )

    async def open_queued(self, turn_id: TurnId) -> Playing:
        """A queued turn that has to open now."""
        ask = await self.opening(turn_id)
        outcome = await self.store.open_queued(ask)
        assert isinstance(outcome, Started), outcome
        base = await self.snapshot(ask.session_id)
        return Playing(self, outcome, begin(ev.Began(request=ask.request)), base)

    async def withdraw(
        self,
        turn_id: TurnId,
        by: EndedBy = "cancelled",
        *,
        detail: str = "",
        settlement: Settlement = "done",
    ) -> TurnRow:
        """End a queued turn. May be repeated."""
        records = encode_records(numbered((ev.Ended(by=by, kept=False),), first=1, at_ms=0))
        return await self.store.withdraw(
            self.tenant,
            turn_id,
            ended_by=by,
            detail=detail,
            records=records,
            settlement=settlement,
        )

    async def playing(self, ask: Begin, started: Started) -> Playing:
        base = await self.store.snapshot(self.tenant, started.fence.session_id)
        assert base is not None
        return Playing(self, started, begin(ev.Began(request=ask.request)), base)

    async def play(
        self,
        name: Name,
        said: Words = "Hello",
        answer: Words = "Hi",
        *,
        changes: tuple[ev.Change, ...] = (),
        **asking: Unpack[Asking],
    ) -> Playing:
        """A whole turn, committed."""
        turn = await self.open(name, said, **asking)
        await turn.answer(answer, changes=changes)
        await turn.commit()
        return turn

    async def play_line(
        self,
        name: str,
        said: Words,
        answer: Words = "Hi",
        *,
        after: SessionId | None = None,
        version: int = 1,
    ) -> Playing:
        """A whole turn in a new line of the family that a name stands for; after a version of another line, or by
        itself."""
        current = await self.store.session(self.tenant, await self.id_of(name))
        assert current is not None
        base = await self.snapshot(after, version=version) if after else None
        ask = await self.ask(None, said, followed=Followed(name=name))
        family, fresh = current.family_id, self.mint(SessionId)
        line = NewLine(key=SessionKey(name), family=family, fresh=fresh, parent=after)
        if base is not None:
            request = msgspec.structs.replace(
                ask.request,
                base=base.version,
                base_rev=base.notes.rev,
                base_length=len(base.items),
            )
            ask = msgspec.structs.replace(ask, request=request)
        ask = msgspec.structs.replace(ask, target=line)
        outcome = await self.store.begin(ask)
        assert isinstance(outcome, Started), outcome
        turn = await self.playing(ask, outcome)
        await turn.answer(answer)
        await turn.commit()
        return turn

    async def break_off(
        self,
        name: Name,
        said: Words = "Hello",
        *,
        by: EndedBy = "model_error",
        detail: str = "",
        **asking: Unpack[Asking],
    ) -> Playing:
        """A whole turn that has acted, failed, and was kept."""
        turn = await self.open(name, said, **asking)
        await turn.call("act")
        await turn.interrupt(by, detail)
        await turn.commit()
        return turn

    async def discard(self, name: Name, said: Words = "Hello", **asking: Unpack[Asking]) -> Playing:
        """A whole turn, discarded half-way."""
        turn = await self.open(name, said, **asking)
        await turn.call("look")
        await turn.end("cancelled")
        return turn

    # shorthands for reading

    async def id_of(self, key: str) -> SessionId:
        row = await self.store.resolve(self.tenant, SessionKey(key))
        assert row is not None, f"nothing is called {key}"
        return row.session_id

    async def snapshot(
        self, name: str | SessionId, *, version: int | None = None, known: Snapshot | None = None
    ) -> Snapshot:
        session_id = name if isinstance(name, SessionId) else await self.id_of(name)
        found = await self.store.snapshot(
            self.tenant,
            session_id,
            version=None if version is None else Version(version),
            known=known,
        )
        assert found is not None, f"{name} has no version {version}"
        return found

    # items

    def user(self, said: Words) -> Item:
        if not isinstance(said, str):
            return said
        return UserMessage(id=self.mint(MessageId), content=(Text(text=said),))

    def said(self, text: str) -> AssistantMessage:
        return AssistantMessage(id=self.mint(MessageId), content=(Text(text=text),))


def _target(name: Name, fresh: SessionId, *, create: bool) -> Target:
    if name is None:
        return Anonymous(fresh=fresh)
    if isinstance(name, SessionId):
        return ById(session_id=name)
    return ByKey(key=SessionKey(name), fresh=fresh, create=create)


class Playing:
    """A turn that is open, in the hands of its player."""

    def __init__(self, player: Player, started: Started, turn: Turn, base: Snapshot) -> None:
        self.player = player
        self.store = player.store
        self.started = started
        self.fence: Fence = started.fence
        self.turn = turn
        self.base = base
        self.n = 1
        """The number of the next record."""

    @property
    def turn_id(self) -> TurnId:
        return self.fence.turn_id

    @property
    def session_id(self) -> SessionId:
        return self.fence.session_id

    # what happens in it

    async def record(self, *happened: ev.Event, consumed: Sequence[int] = ()) -> None:
        """Let these happen, and append them to the journal."""
        n, records = self.records(*happened)
        await self.store.append(self.fence, n=n, records=records, consumed=consumed)

    def records(self, *happened: ev.Event) -> tuple[int, bytes]:
        """Let these happen; what an append would say of them."""
        first = self.n
        for event in happened:
            self.turn = advance(self.turn, event)
        self.n += len(happened)
        return first, encode_records(numbered(happened, first=first, at_ms=0))

    async def answer(self, answer: Words = "Hi", *, changes: tuple[ev.Change, ...] = ()) -> None:
        """The model's last word; before it, a tool that wants these changes remembered."""
        if changes:
            call = await self.call("remember", finish=False)
            await self.record(ev.ToolFinished(result=self.result(call), changes=changes))
        item = self.player.said(answer) if isinstance(answer, str) else answer
        assert isinstance(item, AssistantMessage | ToolCall)
        usage = ev.Usage(output_tokens=1)
        await self.record(ev.StepStarted(), ev.Answered(items=(item,), usage=usage))

    async def call(self, name: str, *, finish: bool = True) -> ToolCall:
        """The model calls a tool, which starts; and finishes, unless told otherwise."""
        made = self.new_call(name)
        await self.record(ev.StepStarted(), ev.Answered(items=(made,), finish="tool_calls"))
        await self.record(ev.ToolStarted(call=made.id))
        if finish:
            await self.record(ev.ToolFinished(result=self.result(made)))
        return made

    def new_call(self, name: str) -> ToolCall:
        made = self.player.mint(CallId)
        return ToolCall(id=made, call_id=f"call_{made.body}", name=name, arguments="{}")

    def result(self, call: ToolCall) -> ToolResult:
        text = (Text(text="done"),)
        return ToolResult(id=self.player.mint(ResultId), call=call.id, outcome="ok", content=text)

    async def interrupt(self, by: EndedBy = "cancelled", detail: str = "") -> None:
        """Stop here, and make what is there well formed: the turn may be kept."""
        await self.record(ev.Interrupted(by=by, detail=detail))
        await self.record(*closing(self.turn, self.player.mint))

    # how it ends

    def kept(self) -> tuple[Commit, int, bytes]:
        """What a commit would be called with now: the commit, and its last record."""
        by: EndedBy = self.turn.interrupted.by if self.turn.interrupted else "completed"
        ended = ev.Ended(by=by, kept=True)
        commit = commit_of(advance(self.turn, ended), previous=self.base.link)
        return commit, self.n, encode_records(numbered((ended,), first=self.n, at_ms=0))

    async def try_commit(self, *, settlement: Settlement = "done") -> CommitOutcome:
        """T2, whatever comes of it. May be repeated."""
        commit, n, records = self.kept()
        return await self.store.commit(
            self.fence, commit, n=n, records=records, settlement=settlement
        )

    async def commit(self, *, settlement: Settlement = "done") -> Committed:
        """T2 that has to succeed."""
        outcome = await self.try_commit(settlement=settlement)
        assert isinstance(outcome, Committed), outcome
        return outcome

    async def end(
        self, by: EndedBy = "cancelled", *, detail: str = "", settlement: Settlement = "failed"
    ) -> TurnRow:
        """Discard it. May be repeated."""
        records = encode_records(numbered((ev.Ended(by=by, kept=False),), first=self.n, at_ms=0))
        return await self.store.end(
            self.fence, ended_by=by, detail=detail, n=self.n, records=records, settlement=settlement
        )

    async def row(self) -> TurnRow:
        found = await self.store.turn(self.player.tenant, self.turn_id)
        assert found is not None
        return found

    def taken_by(self, player: Player, taken: Taken) -> Playing:
        """The same turn, in other hands."""
        theirs = Playing(player, Started(fence=taken.fence, created=False), self.turn, self.base)
        theirs.n = self.n
        return theirs


async def in_use(store: Store, clock: ManualClock, seconds: float) -> None:
    """So much time passes, during the last day of which the store looks at its clock, and believes it then."""
    if seconds > limits.clock_trust_s:
        clock.advance(seconds - limits.clock_trust_s)
        await store.prune(limit=0)
        seconds = limits.clock_trust_s
    while seconds > 0:
        step_s = min(seconds, limits.clock_leap_s)
        clock.advance(step_s)
        await store.prune(limit=0)
        seconds -= step_s
