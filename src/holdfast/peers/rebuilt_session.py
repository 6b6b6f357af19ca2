"""A foreign conversation, played as turns. Pure: the same conversation gives the same session, id for id.

1. Each message of a person begins a turn; a message that only the model saw is part of the turn around it.
2. A turn without an answer is closed like an interrupted one, as after a crash, or by the error that the file tells; a
   call without a result may have run, so its outcome is unknown.
3. The model sees what it would have seen in the other program: annotations hide the rest, and the last summary stands
   for what it covers. People see everything that people saw there.
4. Nothing is invented: a result without its call is left out, and the repairs say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import assert_never

from holdfast import limits
from holdfast.core.attachments import set_aside
from holdfast.core.codec import Value, encode
from holdfast.core.history.conversation import Patch, SettingsMerged, Summarized, Titled, Visibility
from holdfast.core.items import (
    AssistantMessage,
    EndedBy,
    Interruption,
    Item,
    Opaque,
    Outcome,
    Parts,
    Path,
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
from holdfast.core.turns.turn import Branch, Pending, Turn, advance, begin, committed_items
from holdfast.ids import (
    CallId,
    ItemId,
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
    ForeignBranch,
    ForeignConversation,
    ForeignError,
    ForeignInstruction,
    ForeignMessage,
    ForeignResult,
    ForeignSummary,
    Seen,
)
from holdfast.peers.session_rows import Note, PlayedTurn, dump_of
from holdfast.store.outcomes import SessionDump
from holdfast.store.transfer.import_checks import digest_of

LEFT_OPEN: EndedBy = "crash"
"""The end of a turn that has none in the other program's file."""

_ASIDE = Visibility(to_people=False)
_UNKNOWN = "Outcome unknown: the conversation went on before this call had a result."


class Rebuilt(Value):
    """A session to import, and the repairs that it needed."""

    dump: SessionDump
    repairs: tuple[str, ...]


def rebuild(foreign: ForeignConversation, *, peer: str, tenant: Tenant) -> Rebuilt | None:
    """The session of a foreign conversation; None if the conversation is empty."""
    work = _Work(foreign, peer)
    for n, entry in enumerate(foreign.entries):
        work.take(n, entry)
    work.finish()
    if not work.turns:
        return None
    dump = dump_of(
        foreign,
        work.turns,
        tenant=tenant,
        session_id=work.session_id,
        blobs=work.blobs,
        notes=work.notes(),
    )
    return Rebuilt(dump=dump, repairs=(*foreign.left_out, *work.repairs))


class _Work:
    """The conversation as far as it has been played. One turn is open at a time."""

    def __init__(self, foreign: ForeignConversation, peer: str) -> None:
        self._foreign = foreign
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
        self._said: list[Item] = []
        """Instructions and messages that have no answer yet."""
        self._hidden: dict[ItemId, Visibility] = {}
        self._summary: tuple[int, ForeignSummary] | None = None
        self._entry = 0
        self._first_items: list[tuple[int, ItemId]] = []
        """The first item of each entry, by the entry's index."""

    def take(self, n: int, entry: Entry) -> None:
        self._entry = n
        self._now_ms = max(self._now_ms, getattr(entry, "at_ms", 0))
        match entry:
            case ForeignMessage():
                self._hear(entry)
            case ForeignInstruction():
                self._wait(SystemMessage(id=self.mint(MessageId), content=entry.content))
            case ForeignSummary():
                if self._summary is not None:
                    self._repaired("an earlier summary, which the model did not see any more")
                self._summary = (n, entry)
            case ForeignAnswer():
                self._speak(entry)
            case ForeignResult():
                self._come(entry)
            case ForeignError():
                self._fail(entry)
            case ForeignBranch():
                self._delegate(entry)
            case _:
                assert_never(entry)

    def finish(self) -> None:
        self._end()
        if any(isinstance(each, UserMessage) for each in self._said):
            self._begin()
            self._end()

    # ── turns ──

    def _hear(self, entry: ForeignMessage) -> None:
        if not is_substantial(entry.content):
            return
        message = UserMessage(id=self.mint(MessageId), content=self._kept(entry.content))
        self._show(entry.seen_by, message)
        turn, is_aside = self._turn, entry.seen_by == "model"
        if is_aside and turn is not None and turn.root.idle and turn.root.owes_answer:
            self._turn = advance(turn, ev.Steered(items=(message,)))
            self._first_items.append((self._entry, message.id))
            return
        self._end()
        if not is_aside and self._is_asked:
            self._begin()
            self._end()
        self._wait(message)

    @property
    def _is_asked(self) -> bool:
        """Whether a person's message waits for an answer."""
        return any(
            isinstance(each, UserMessage) and self._hidden.get(each.id) != _ASIDE
            for each in self._said
        )

    def _wait(self, item: Item) -> None:
        if not self._said:
            self._began_ms = self._now_ms
        self._said.append(item)
        self._first_items.append((self._entry, item.id))

    def _begin(self) -> Turn:
        said, self._said = self._said, []
        items, large = set_aside(tuple(said))
        self.blobs |= {digest_of(data): data for data in large}
        self._began_ms = self._began_ms if said else self._now_ms
        request = ev.TurnRequest(
            turn_id=self.mint(TurnId),
            base=Version(len(self.turns)),
            base_length=self._length,
            input=items,
        )
        self._turn = begin(ev.Began(request=request))
        return self._turn

    def _end(self) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            return
        if turn.complete:
            turn = advance(turn, ev.Ended(by="completed", kept=True))
        else:
            left = len(turn.root.pending)
            calls = "1 call" if left == 1 else f"{left} calls"
            what = f"{calls} had no result" if left else "a message had no answer"
            self._repaired(f"turn {len(self.turns) + 1}: {what}")
            turn = self._closed(turn, LEFT_OPEN, f"as {self._peer} left it")
        self._keep(turn)

    def _keep(self, turn: Turn) -> None:
        self.turns.append(PlayedTurn(turn=turn, began_ms=self._began_ms, ended_ms=self._now_ms))
        self._length += len(turn.items)

    def _closed(self, turn: Turn, by: EndedBy, why: str) -> Turn:
        """The turn, ended before it was complete. Its note, and where the other program drops them its open calls, are
        for people alone."""
        for branch in turn.branches:
            for pending in branch.pending:
                if self._foreign.drops_open_calls:
                    self._hidden[pending.call.id] = Visibility(to_model=False)
                if not pending.may_have_run:
                    turn = advance(turn, ev.ToolStarted(call=pending.call.id))
        turn = advance(turn, ev.Interrupted(by=by, detail=why))
        turn = advanced(turn, closing(turn, self.mint))
        for item in turn.items:
            if isinstance(item, Interruption):
                self._hidden[item.id] = Visibility(to_model=False)
        return advance(turn, ev.Ended(by=by, kept=True))

    def _fail(self, entry: ForeignError) -> None:
        turn = self._turn
        if turn is None or turn.complete:
            if not self._is_asked:
                self._repaired(f"an error outside of a turn: {entry.text[:200]}")
                return
            turn = self._begin()
        self._turn = None
        self._keep(self._closed(turn, entry.by, entry.text[: limits.title_chars_max]))

    # ── the events of a turn ──

    def _speak(self, entry: ForeignAnswer) -> None:
        items = self._answer(entry, ())
        if not items:
            return
        if self._turn is not None and self._turn.root.idle and not self._turn.root.owes_answer:
            self._end()
        turn = self._turn or self._begin()  # an answer may have no message before it
        turn = self._answered(turn, turn.root, entry, items)
        self._turn = turn
        self._first_items.append((self._entry, items[0].id))
        self._show(entry.seen_by, *items)

    def _answered(
        self, turn: Turn, branch: Branch, entry: ForeignAnswer, items: tuple[ev.Answer, ...]
    ) -> Turn:
        for pending in branch.pending:
            self._repaired(f"turn {len(self.turns) + 1}: {pending.call.name} had no result")
            turn = self._given_up(turn, pending)
        turn = advance(turn, ev.StepStarted(path=branch.path, model=entry.model))
        answered = ev.Answered(
            items=items,
            path=branch.path,
            finish="length" if entry.is_cut else "tool_calls" if entry.calls else "stop",
            usage=entry.usage,
            model=entry.model,
        )
        return advance(turn, answered)

    def _answer(self, entry: ForeignAnswer, path: Path) -> tuple[ev.Answer, ...]:
        items: list[ev.Answer] = []
        if entry.thought:
            items.append(Reasoning(id=self.mint(ReasoningId), text=entry.thought, path=path))
        if is_substantial(entry.content):
            items.append(
                AssistantMessage(
                    id=self.mint(MessageId),
                    content=self._kept(entry.content),
                    agent=entry.agent,
                    path=path,
                    extras=self._extras(entry),
                )
            )
        items += (
            ToolCall(
                id=self.mint(CallId),
                call_id=call.id,
                name=call.name,
                arguments=call.arguments,
                agent=entry.agent,
                path=path,
                extras=self._extras(entry),
            )
            for call in entry.calls
        )
        return tuple(items)

    def _extras(self, entry: ForeignAnswer) -> tuple[Opaque, ...]:
        """The model that gave an answer: no column has it."""
        if not entry.model:
            return ()
        return (Opaque(owner=self._peer, json=encode({"model": entry.model}).decode()),)

    def _come(self, entry: ForeignResult) -> None:
        turn = self._turn
        call = _called(turn.root, entry) if turn is not None else None
        if turn is None or call is None:
            self._repaired(f"a result for {entry.call!r} has no call, and was left out")
            return
        self._turn = self._finished(turn, call, entry)
        self._first_items.append((self._entry, self._turn.items[-1].id))
        self._show(entry.seen_by, self._turn.items[-1])

    def _finished(self, turn: Turn, call: ToolCall, entry: ForeignResult) -> Turn:
        outcome: Outcome = "error" if entry.failed else "ok"
        result = result_for(call, outcome, self._kept(entry.content), self.mint)
        pending = turn.find_pending(call.id)
        if pending is not None and not pending.may_have_run:
            turn = advance(turn, ev.ToolStarted(call=call.id))
        return advance(turn, ev.ToolFinished(result=result))

    # ── branches ──

    def _delegate(self, entry: ForeignBranch) -> None:
        turn = self._turn
        open_calls = (
            [each.call for each in turn.root.pending if not each.may_have_run] if turn else []
        )
        if turn is None or not open_calls:
            self._repaired(f"the work of the sub-agent {entry.agent!r}: no call asks for it")
            return
        self._turn = self._branched(turn, open_calls[0], entry)

    def _branched(self, turn: Turn, call: ToolCall, entry: ForeignBranch) -> Turn:
        """The turn with the work of a sub-agent on this call. The first message of the sub-agent's session is its task."""
        path = (*call.path, call.id)
        if len(path) > limits.branch_depth_max:
            self._repaired(f"the work of the sub-agent {entry.agent!r}: it is too deep")
            return turn
        messages = [each for each in entry.entries if isinstance(each, ForeignMessage)]
        said = messages[0].content if messages else (Text(text=call.arguments),)
        task = UserMessage(id=self.mint(MessageId), content=self._kept(said), path=path)
        turn = advance(turn, ev.BranchOpened(call=call.id, agent=entry.agent, task=task))
        for each in entry.entries:
            branch = turn.branch(path)
            assert branch is not None, "a branch is there until its call has a result"
            match each:
                case ForeignAnswer():
                    items = self._answer(each, path)
                    if items and branch.owes_answer:
                        turn = self._answered(turn, branch, each, items)
                    elif items:
                        self._repaired(f"an answer of the sub-agent {entry.agent!r} after its last")
                case ForeignResult() if called := _called(branch, each):
                    turn = self._finished(turn, called, each)
                case ForeignBranch() if branch.pending:
                    turn = self._branched(turn, branch.pending[0].call, each)
                case _ if each is not (messages[0] if messages else None):
                    kind = type(each).__name__.removeprefix("Foreign").lower()
                    self._repaired(f"a {kind} in the work of the sub-agent {entry.agent!r}")
        return self._settled(turn, path)

    def _settled(self, turn: Turn, path: Path) -> Turn:
        """The turn without open calls in this branch, so that its own call can have a result."""
        branch = turn.branch(path)
        for pending in branch.pending if branch else ():
            turn = self._given_up(turn, pending)
        return turn

    def _given_up(self, turn: Turn, pending: Pending) -> Turn:
        """The turn with an unknown outcome of this call: the conversation went on without its result."""
        if self._foreign.drops_open_calls:
            self._hidden[pending.call.id] = Visibility(to_model=False)
        if not pending.may_have_run:
            turn = advance(turn, ev.ToolStarted(call=pending.call.id))
        result = result_for(pending.call, "unknown", (Text(text=_UNKNOWN),), self.mint)
        return advance(turn, ev.ToolFinished(result=result))

    # ── what is noted beside the history ──

    def notes(self) -> Iterable[Note]:
        """The annotations of the session, the title first."""
        foreign = self._foreign
        if title := foreign.title[: limits.title_chars_max]:
            yield Note(patch=Titled(title=title))
        if foreign.attributes:
            yield Note(patch=SettingsMerged(attributes=foreign.attributes))
        if self._summary is not None:
            yield Note(patch=self._summed_up(*self._summary))
        for item, shown in self._hidden.items():
            yield Note(patch=shown, item=item)

    def _summed_up(self, n: int, entry: ForeignSummary) -> Patch:
        since = n if entry.kept_from is None else entry.kept_from
        ids = [each.id for played in self.turns for each in committed_items(played.turn)]
        positions: dict[ItemId, int] = {each: position for position, each in enumerate(ids)}
        kept = (
            positions[item] for at, item in self._first_items if at >= since and item in positions
        )
        note = Summary(id=self.mint(NoteId), text=entry.text, covers_to=min(kept, default=len(ids)))
        return Summarized(summary=note)

    def _show(self, seen_by: Seen, *items: Item) -> None:
        if seen_by != "both":
            shown = Visibility(
                to_people=None if seen_by == "people" else False,
                to_model=None if seen_by == "model" else False,
            )
            self._hidden |= {each.id: shown for each in items}

    def _kept(self, content: Parts) -> Parts:
        """The same parts, with large content moved to blobs."""
        holder = UserMessage(id=self.mint(MessageId), content=content)
        (lightened,), large = set_aside((holder,))
        self.blobs |= {digest_of(data): data for data in large}
        assert isinstance(lightened, UserMessage)
        return lightened.content

    def _repaired(self, what: str) -> None:
        self.repairs.append(what)


def _called(branch: Branch, entry: ForeignResult) -> ToolCall | None:
    """The open call of a branch that a result is for."""
    return next((each.call for each in branch.pending if each.call.call_id == entry.call), None)


def _drawn(*names: str) -> Callable[[int], int]:
    """Numbers that look random and follow from these names alone."""
    seed = sha256("\0".join(names).encode()).digest()
    drawn = 0

    def draw(bits: int) -> int:
        nonlocal drawn
        drawn += 1
        return int.from_bytes(sha256(seed + drawn.to_bytes(8)).digest()) >> (256 - bits)

    return draw
