"""A foreign conversation, played as turns. Pure: the same conversation gives the same session, id for id.

1. Each message of a person begins a turn. An event that the fold refuses is left out.
2. A turn without an answer is closed like an interrupted one, as after a crash; a call without a result may have run,
   so its outcome is unknown.
3. Nothing is invented: a result without its call is left out, and the repairs say so.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import assert_never

from holdfast.core.attachments import set_aside
from holdfast.core.codec import Value
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    Item,
    Parts,
    Reasoning,
    Summary,
    SystemMessage,
    Text,
    ToolCall,
    UserMessage,
    is_substantial,
    result_for,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import advanced, closing
from holdfast.core.turns.turn import Turn, advance, begin
from holdfast.ids import (
    CallId,
    MessageId,
    Minter,
    NoteId,
    ReasoningId,
    SessionId,
    Tenant,
    TurnId,
    Version,
)
from holdfast.peers.foreign_conversation import (
    Entry,
    ForeignAnswer,
    ForeignConversation,
    ForeignInstruction,
    ForeignMessage,
    ForeignResult,
    ForeignSummary,
)
from holdfast.peers.session_rows import PlayedTurn, dump_of
from holdfast.store.outcomes import SessionDump
from holdfast.store.transfer.import_checks import digest_of

LEFT_OPEN: EndedBy = "crash"
"""The end of a turn that has none in the other program's file."""

_UNKNOWN = "Outcome unknown: the conversation went on before this call had a result."


class Rebuilt(Value):
    """A session to import, and the repairs that it needed."""

    dump: SessionDump
    repairs: tuple[str, ...]


def rebuild(foreign: ForeignConversation, *, peer: str, tenant: Tenant) -> Rebuilt | None:
    """The session of a foreign conversation; None if the conversation is empty."""
    work = _Work(foreign, peer)
    for entry in foreign.entries:
        work.take(entry)
    work.finish()
    if not work.turns:
        return None
    dump = dump_of(foreign, work.turns, tenant=tenant, session_id=work.session_id, blobs=work.blobs)
    return Rebuilt(dump=dump, repairs=(*foreign.left_out, *work.repairs))


class _Work:
    """The conversation as far as it has been played. One turn is open at a time."""

    def __init__(self, foreign: ForeignConversation, peer: str) -> None:
        self._peer = peer
        self._now_ms = foreign.created_ms
        self.mint = Minter(now_ms=lambda: self._now_ms, random_bits=_drawn(peer, foreign.id))
        self.session_id = self.mint(SessionId)
        self.turns: list[PlayedTurn] = []
        self.blobs: dict[str, bytes] = {}
        self.repairs: list[str] = []
        self._turn: Turn | None = None
        self._began_ms = 0
        self._length = 0
        self._told: list[Item] = []
        self._summary = ""

    def take(self, entry: Entry) -> None:
        self._now_ms = max(self._now_ms, getattr(entry, "at_ms", 0))
        match entry:
            case ForeignMessage():
                if is_substantial(entry.content):
                    self._end()
                    self._begin(UserMessage(id=self.mint(MessageId), content=entry.content))
            case ForeignInstruction():
                self._told.append(SystemMessage(id=self.mint(MessageId), content=entry.content))
            case ForeignSummary():
                self._summary = entry.text
            case ForeignAnswer():
                self._speak(entry)
            case ForeignResult():
                self._come(entry)
            case _:
                assert_never(entry)

    def finish(self) -> None:
        self._end()
        if self._summary:
            self._repaired("a summary at the very end is not needed, and was left out")

    # ── turns ──

    def _begin(self, *said: Item) -> None:
        items, large = set_aside((*self._told, *said))
        self.blobs |= {digest_of(data): data for data in large}
        self._told = []
        self._began_ms = self._now_ms
        request = ev.TurnRequest(
            turn_id=self.mint(TurnId),
            base=Version(len(self.turns)),
            base_length=self._length,
            input=items,
        )
        self._turn = begin(ev.Began(request=request))
        if self._summary:
            note = Summary(id=self.mint(NoteId), text=self._summary, covers_to=self._length)
            self._turn = advance(self._turn, ev.Compacted(summary=note))
            self._summary = ""

    def _end(self) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        if turn.complete:
            turn = advance(turn, ev.Ended(by="completed", kept=True))
        else:
            turn = self._closed(turn)
        self.turns.append(PlayedTurn(turn=turn, began_ms=self._began_ms, ended_ms=self._now_ms))
        self._length += len(turn.items)

    def _closed(self, turn: Turn) -> Turn:
        for pending in turn.root.pending:
            turn = advance(turn, ev.ToolStarted(call=pending.call.id))
        left = len(turn.root.pending)
        calls = "1 call" if left == 1 else f"{left} calls"
        what = f"{calls} had no result" if left else "a message had no answer"
        self._repaired(f"turn {len(self.turns) + 1}: {what}")
        turn = advance(turn, ev.Interrupted(by=LEFT_OPEN, detail=f"as {self._peer} left it"))
        turn = advanced(turn, closing(turn, self.mint))
        return advance(turn, ev.Ended(by=LEFT_OPEN, kept=True))

    # ── the events of a turn ──

    def _speak(self, entry: ForeignAnswer) -> None:
        items = self._answer(entry)
        if not items:
            return
        if self._turn is not None and self._turn.complete:
            self._end()
        turn = self._turn
        if turn is None:  # an answer without a message before it
            self._begin()
            turn = self._turn
        assert turn is not None
        for pending in turn.root.pending:
            self._repaired(f"turn {len(self.turns) + 1}: {pending.call.name} had no result")
            turn = advance(turn, ev.ToolStarted(call=pending.call.id))
            words = (Text(text=_UNKNOWN),)
            result = result_for(pending.call, "unknown", words, self.mint)
            turn = advance(turn, ev.ToolFinished(result=result))
        turn = advance(turn, ev.StepStarted())
        finish: ev.Finish = "tool_calls" if entry.calls else "stop"
        self._turn = advance(turn, ev.Answered(items=items, finish=finish))

    def _answer(self, entry: ForeignAnswer) -> tuple[ev.Answer, ...]:
        items: list[ev.Answer] = []
        if entry.thought:
            items.append(Reasoning(id=self.mint(ReasoningId), text=entry.thought))
        if is_substantial(entry.content):
            items.append(
                AssistantMessage(id=self.mint(MessageId), content=entry.content, agent=entry.agent)
            )
        items += (
            ToolCall(
                id=self.mint(CallId),
                call_id=call.id,
                name=call.name,
                arguments=call.arguments,
                agent=entry.agent,
            )
            for call in entry.calls
        )
        return tuple(items)

    def _come(self, entry: ForeignResult) -> None:
        pending = self._turn.root.pending if self._turn is not None else ()
        call = next((each.call for each in pending if each.call.call_id == entry.call), None)
        if self._turn is None or call is None:
            self._repaired(f"a result for {entry.call!r} has no call, and was left out")
            return
        content = self._kept(entry.content)
        result = result_for(call, "error" if entry.failed else "ok", content, self.mint)
        turn = advance(self._turn, ev.ToolStarted(call=call.id))
        self._turn = advance(turn, ev.ToolFinished(result=result))

    def _kept(self, content: Parts) -> Parts:
        """The same parts, with large content moved to blobs."""
        holder = UserMessage(id=self.mint(MessageId), content=content)
        (lightened,), large = set_aside((holder,))
        self.blobs |= {digest_of(data): data for data in large}
        assert isinstance(lightened, UserMessage)
        return lightened.content

    def _repaired(self, what: str) -> None:
        self.repairs.append(what)


def _drawn(*names: str) -> Callable[[int], int]:
    """Numbers that look random and follow from these names alone."""
    seed = sha256("\0".join(names).encode()).digest()
    drawn = 0

    def draw(bits: int) -> int:
        nonlocal drawn
        drawn += 1
        return int.from_bytes(sha256(seed + drawn.to_bytes(8)).digest()) >> (256 - bits)

    return draw
