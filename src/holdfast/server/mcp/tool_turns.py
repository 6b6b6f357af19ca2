"""The turns that calls of tools begin, and the turns that go on with them after a decision.

A turn that leaves calls waiting for an approval is complete; a decision begins the next turn. To the client of a tool all
of them are one call: its answer is what they say together, and its task has the id of the first of them.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

import msgspec
from msgspec import Raw

from holdfast import limits
from holdfast.core.codec import Unreadable, Value
from holdfast.core.history.conversation import SettingsMerged
from holdfast.core.items import EndedBy, Item, Items, Opaque, UserMessage
from holdfast.core.turns import events as ev
from holdfast.errors import InvalidId, SessionMissing
from holdfast.ids import IdempotencyKey, SessionId, Tenant, TurnId
from holdfast.observe.events import audit
from holdfast.server.http.routing import HttpCall
from holdfast.server.turns.answers import end_of, said_before
from holdfast.server.turns.turn_requests import TurnSettings
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.turns.watch import Watch, journaled
from holdfast.store.outcomes import Attempt
from holdfast.wire.json_rpc import RpcId
from holdfast.wire.mcp.elicitation import decisions_in
from holdfast.wire.mcp.results import ToolAnswer
from holdfast.wire.problems import Problem

OWNER = "mcp"
"""The owner of the note that an item of the input carries."""

DOOR = "holdfast.door"
"""The attribute of a session that says by which API key it began here."""


class CallNote(Value):
    """Facts about a call that are stored with the input of its turn: a later cancellation is recognised by them."""

    key: str | None = None
    session: str = ""
    request: RpcId = ""


def note_of(call: HttpCall, session: str, request_id: RpcId) -> Opaque:
    """The note of a call, as an item keeps it."""
    key = None if call.caller.key_id is None else str(call.caller.key_id)
    note = CallNote(key=key, session=session, request=request_id)
    if len(str(request_id)) > limits.idempotency_key_chars_max:
        note = CallNote(key=key)
    return Opaque(owner=OWNER, json=msgspec.json.encode(note).decode())


def door_of(key_id: str | None) -> tuple[str, str]:
    """The attribute of sessions that this key began here."""
    return DOOR, f"mcp {key_id or '-'}"


class FailedTurn(Value):
    """A turn without an answer."""

    turn_id: TurnId
    by: EndedBy
    problem: Problem


class ToolTurns:
    """Finds and follows the turns of tools."""

    def __init__(self, sessions: Sessions, settings: TurnSettings) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self._settings = settings

    async def outcome(
        self, tenant: Tenant, watch: Watch, *, name: str | None = None, known_again: bool = True
    ) -> ToolAnswer | FailedTurn:
        """Wait for a turn's end, and return what it says. `name` is what the client called the conversation."""
        admission = watch.admission
        before: Items = ()
        if admission.continues is not None:
            before = await said_before(self._store, tenant, watch)
        end = await end_of(
            self._store, tenant, watch, stored=True, before=before, known_again=known_again
        )
        turn_id = admission.turn_id
        if isinstance(end, Problem):
            ending = await watch.ended()
            return FailedTurn(turn_id=turn_id, by=ending.by, problem=end)
        if end.version == 1:
            await self._note_door(tenant, admission.session_id, end.items)
        return ToolAnswer(
            items=end.items,
            session_id=admission.session_id,
            turn_id=turn_id,
            conversation=name or str(admission.session_id),
            version=end.version,
            is_limited=end.limited,
            tells_conversation=name is None,
        )

    async def followed(self, tenant: Tenant, turn_id: TurnId) -> ToolAnswer | FailedTurn | None:
        """The answer of a task so far: of its own turn and of the turns that decisions about it began; None while one runs.
        Raises SessionMissing."""
        found: ToolAnswer | None = None
        following: TurnId | None = turn_id
        while following is not None:
            row = await self._store.turn(tenant, following)
            if row is None:
                raise SessionMissing("turn", following)
            if row.ended_by is None:
                return None
            outcome = await self.outcome(tenant, await self._sessions.watch(tenant, following))
            if isinstance(outcome, FailedTurn):
                return outcome
            found = outcome if found is None else joined(found, outcome)
            following = await self.next_turn(tenant, outcome)
        return found

    async def running(self, tenant: Tenant, turn_id: TurnId) -> TurnId:
        """The last turn of a task: the one to cancel, or whose question is open."""
        while True:
            row = await self._store.turn(tenant, turn_id)
            if row is None:
                raise SessionMissing("turn", turn_id)
            if row.ended_by is None or row.seq is None:
                return turn_id
            outcome = await self.outcome(tenant, await self._sessions.watch(tenant, turn_id))
            following = None
            if isinstance(outcome, ToolAnswer):
                following = await self.next_turn(tenant, outcome)
            if following is None:
                return turn_id
            turn_id = following

    async def next_turn(self, tenant: Tenant, answer: ToolAnswer) -> TurnId | None:
        """The turn that decides about the calls which an answer left waiting; None if none does so far, or if another
        message has closed them."""
        found = await self.look(tenant, answer)
        return found if isinstance(found, TurnId) else None

    async def look(self, tenant: Tenant, answer: ToolAnswer) -> TurnId | Literal["open", "closed"]:
        """What became of the question of an answer: the turn that a decision began, `open` if it can still be decided,
        `closed` if there is none, or if something else was said instead."""
        if answer.question is None or answer.version is None:
            return "closed"
        session = await self._store.session(tenant, answer.session_id)
        if session is None:
            return "closed"
        if session.head == answer.version:
            if session.open_turn is None:
                return "open"
            said = await self._request(tenant, session.open_turn)
            return session.open_turn if said is not None and _decides(said.input) else "closed"
        snapshot = await self._sessions.snapshot(tenant, session.id)
        if snapshot is None or len(snapshot.marks) <= answer.version:
            return "closed"
        mark = snapshot.marks[int(answer.version)]
        items = tuple(snapshot.items[mark.start : mark.end])
        return mark.turn_id if _decides(items) else "closed"

    async def asked(self, tenant: Tenant, turn_id: TurnId) -> ToolAnswer | None:
        """The answer of a turn that left calls waiting; None if there is no such turn, or it asked for nothing."""
        row = await self._store.turn(tenant, turn_id)
        if row is None or row.seq is None:
            return None
        outcome = await self.outcome(tenant, await self._sessions.watch(tenant, turn_id))
        if isinstance(outcome, FailedTurn) or outcome.question is None:
            return None
        return outcome

    async def decide(
        self, call: HttpCall, asked: ToolAnswer, reply: Raw | None, *, client: str
    ) -> Watch:
        """Begin the turn that carries out what a client's user decided. The same decision again finds that turn; another
        one raises KeyReused."""
        question = asked.question
        assert question is not None, "only a question can be decided"
        decided = decisions_in(question, reply)
        said = sorted(f"{each} {approve}" for each, approve in decided.items())
        watch = await self._sessions.submit(
            Ask(
                tenant=call.tenant,
                name=asked.session_id,
                approvals=tuple(decided.items()),
                attempt=Attempt(
                    request_hash=sha256("\n".join(("mcp", asked.turn_id, *said)).encode()).digest(),
                    key=IdempotencyKey(f"mcp-decision-{asked.turn_id}"),
                ),
                background=True,  # it goes on when the request that decided has been answered
                deadline_s=self._settings.deadline_s,
                policies=(self._settings.policy,),
            )
        )
        if watch.admission.how == "began":
            for each, approve in decided.items():
                audit(
                    "approval.decide",
                    tenant=call.tenant,
                    key=call.caller.key_id,
                    client=client,
                    about=f"{asked.session_id} {each}",
                    decision="approved" if approve else "refused",
                    how="elicitation",
                )
        return watch

    async def find(self, tenant: Tenant, session: str, request_id: RpcId) -> TurnId | None:
        """The running turn of this request of a client's session, wherever it is played."""
        for each in await self._store.playing(tenant, limit=limits.background_queued_tenant_max):
            request = await self._request(tenant, each.turn_id)
            note = None if request is None else _note_in(request.input)
            if note is not None and (note.session, note.request) == (session, request_id):
                return each.turn_id
        return None

    async def _request(self, tenant: Tenant, turn_id: TurnId) -> ev.TurnRequest | None:
        """What a running turn was asked, by the first record of its journal."""
        async for records in journaled(self._store, tenant, turn_id, 0, upto=1):
            for each in records:
                if isinstance(each.event, ev.Began):
                    return each.event.request
        return None

    async def _note_door(
        self, tenant: Tenant, session_id: SessionId, items: tuple[Item, ...]
    ) -> None:
        """Note which key has begun a session here, with its first version."""
        note = _note_in(items)
        row = None if note is None else await self._store.session(tenant, session_id)
        if note is None or row is None or DOOR in dict(row.settings.attributes):
            return
        patch = SettingsMerged(attributes=(door_of(note.key),))
        await self._sessions.operations.annotate(tenant, session_id, [(None, patch)])


def joined(before: ToolAnswer, after: ToolAnswer) -> ToolAnswer:
    """The answers of two turns of one call, joined."""
    return msgspec.structs.replace(
        after,
        items=(*before.items, *after.items),
        conversation=before.conversation,
        tells_conversation=before.tells_conversation,
    )


def turn_in(text: str) -> TurnId | None:
    """The id of a turn, as a client brings it back; None if it is none."""
    try:
        return TurnId(text)
    except InvalidId:
        return None


def _decides(items: tuple[Item | Unreadable, ...]) -> bool:
    """Whether a turn with this input carries out decisions, and is no new message."""
    said = [each for each in items if isinstance(each, UserMessage) and not each.path]
    return all(each.decisions for each in said)


def _note_in(items: tuple[Item, ...]) -> CallNote | None:
    for item in items:
        if isinstance(item, UserMessage):
            for each in item.extras:
                if each.owner == OWNER:
                    return msgspec.json.decode(each.json, type=CallNote)
    return None
