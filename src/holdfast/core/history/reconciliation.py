"""Which of a request's messages are new, and the items that a turn stores for them.

Clients may resend the whole conversation or send only new messages; nothing is stored twice.

1. If the request begins with the whole history, as its client has seen it, that prefix is dropped, however the client
   groups texts, calls and results (`history/resends.py`). So is a result that was given before.
2. Otherwise the messages after the request's last assistant message are new; a request with such a message has
   diverged.

A request that merely repeats words is not a resend: "continue", sent twice, is two messages. Only a prefix
that covers the *whole* history is dropped, so a new message is never mistaken for the past; and if the prefix
contains no answer (the turn was stopped at once, or the answer was lost), its last message counts as asked again.

White space is nothing: it is not stored, not missed, and answers no call.

The new messages must contain a message with content, or results for calls that wait for the client. Waiting
calls are answered all or none: if only some results are sent, the request is refused with the missing ids; a
message without results closes the calls as not answered, and open approvals as refused.

Where a person may decide in the chat (`Speaker`), a message closes no approval. It decides if it is the only new input,
answers the question (`core/approval_questions.py`), came after the question was acknowledged, and has the key that was
asked. A client that resends the conversation must also show that question as the last answer: an old yes, sent again,
is not about a new question. Any other message decides and stores nothing (`StillAsked`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import Literal, TypeAlias

import msgspec

from holdfast.core.approval_questions import (
    ChatQuestion,
    is_repeated_question,
    question_in,
    without_question,
)
from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.resends import (
    Arrival,
    Overtaken,
    Resend,
    find_resend,
    held_results,
    repeats_steered,
)
from holdfast.core.history.seen_messages import Seen, media, telling_of, without_results
from holdfast.core.items import (
    AssistantMessage,
    CallDecision,
    ForeignContent,
    ForeignItem,
    Item,
    Items,
    Opaques,
    Outcome,
    Parts,
    Reasoning,
    SystemMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    is_substantial,
    item_id,
    plain_text,
    result_for,
    text_of,
)
from holdfast.ids import CallId, ItemId, MessageId, Minter, NoteId, ReasoningId

# ── messages of a request ────────────────────────────────────────────────────────────────────


class IncomingCall(Value):
    call_id: str
    name: str
    arguments: str
    extras: Opaques = ()


class Thought(Value):
    """An assistant's reasoning as a client sends it back; `extras` are its provider's."""

    text: str = ""
    extras: Opaques = ()


class Incoming(Value):
    """One message of a request, as its client sends it."""

    role: Literal["user", "assistant", "system", "tool", "foreign"]
    """`foreign`: no message, but an item that only other servers act on."""
    content: Parts = ()
    name: str = ""
    calls: tuple[IncomingCall, ...] = ()
    """An assistant's calls."""
    call_id: str = ""
    """The call that a tool message answers."""
    failed: bool = False
    """Of a tool message: the client's tool failed, and the content says how."""
    extras: Opaques = ()
    thoughts: tuple[Thought, ...] = ()
    """An assistant's reasoning, before its text."""
    decisions: tuple[CallDecision, ...] = ()
    """A user's decisions about calls that wait for an approval, by their ids."""
    foreign: ForeignContent | None = None
    ours: ItemId | None = None
    """The item of ours that a foreign one repeats, by its id: answers show some items in a form that other servers use."""


class Speaker(Value):
    """The person who types in the chat that a request came from, where that person may decide about calls."""

    key: str
    """The id of the API key; empty where none is needed."""
    has_read: bool = False
    """The answer with the question was acknowledged."""


# ── outcomes ─────────────────────────────────────────────────────────────────────────────────


class Fresh(Value):
    """The request has new messages: the turn may begin."""

    input: Items
    approved: tuple[CallId, ...] = ()
    dropped: int = 0
    """How many of the request's messages were in the history already."""
    diverged: bool = False


class NothingNew(Value):
    """The request has no new message with content, and no results."""


class ResultsMissing(Value):
    """The request answers some waiting calls, but not these."""

    call_ids: tuple[str, ...]


class UnknownCall(Value):
    """The request has a result for a call that does not exist, or that has its result already."""

    call_id: str


class ApprovalClosed(Value):
    """The request decides on calls that do not wait for an approval, or not any more."""

    calls: tuple[CallId, ...]


class ApprovalsMissing(Value):
    """The request decides on some waiting calls, but not on these, and has no message that would close them."""

    calls: tuple[CallId, ...]


WhyUndecided: TypeAlias = Literal["no_answer", "too_early", "old_answer", "other_key"]
"""`too_early`: the message was sent before the question was acknowledged. `old_answer`: it answers another question."""


WHY_UNDECIDED: dict[WhyUndecided, str] = {
    "no_answer": "The message is no answer to the question, and was not stored.",
    "too_early": "The message was sent before the question had been received.",
    "old_answer": "The message answers another question.",
    "other_key": "The question was asked in a chat with another API key: only that key decides here.",
}


class StillAsked(Value):
    """A message in a chat has not decided about the calls that wait for an approval: nothing is stored."""

    question: ChatQuestion
    why: WhyUndecided


Reconciled: TypeAlias = (
    Fresh
    | StillAsked
    | Overtaken
    | NothingNew
    | ResultsMissing
    | UnknownCall
    | ApprovalClosed
    | ApprovalsMissing
)

NOT_ANSWERED = "Not answered: the user went on without a result for this call."
REFUSED = "Refused: the user did not allow this call."


def reconcile(
    snapshot: Snapshot,
    messages: Sequence[Incoming],
    mint: Minter,
    *,
    approvals: Mapping[CallId, bool] | None = None,
    system_is_stored: bool = False,
    since: Arrival | None = None,
    running: Items | None = None,
    speaker: Speaker | None = None,
    known: int | None = None,
    needs_question: bool = True,
) -> Reconciled:
    """Decide which of `messages` are new on top of `snapshot`, and which items the turn will store.

    `approvals` are a person's decisions on calls that wait for an approval. Without a message they must cover all
    such calls; a message closes the calls that they leave out as refused. `system_is_stored` keeps system messages
    as items (Responses, Conversations); in Chat Completions they are instructions for one request. `since` is the
    session as it stood when the request arrived, if the request has waited since. `running` are the messages of the
    open turn, for a request that is to be steered into it: no call waits while that turn is open. `speaker` is the
    person whose message may decide. `known` is how many of the messages are the history, if the client owns it
    (`history/branches.py`): the others are new, answers included. Without `needs_question` nothing need be asked: the
    last answer is to go on.
    """
    waiting = snapshot.waiting if running is None else ()
    asked = snapshot.asked if waiting else ()
    undecided = _undecided(asked, approvals) if approvals else ()
    if isinstance(undecided, ApprovalClosed):
        return undecided
    spoken = [each for each in messages if system_is_stored or each.role != "system"]
    answers = [each for each in spoken if each.role == "assistant"]
    if any(map(_is_repeat, answers)):
        spoken = _without_repeats(spoken)
    rest = spoken
    if known is not None:
        rest = _rest(messages, known, snapshot, waiting, system_is_stored=system_is_stored)
    is_late = bool(running) or (since is not None and since.version < snapshot.version)
    resend = _NO_RESEND
    if known is not None:
        is_late = False
    elif is_late or len(spoken) != 1 or spoken[0].role == "assistant":
        # A resend has more than one message, and most requests are no resend.
        found = find_resend(
            snapshot,
            telling_of(map(_seen_of, spoken)),
            since=Arrival(version=snapshot.version) if since is None else since,
            running=running or (),
        )
        if isinstance(found, Overtaken):
            return found
        resend = found
    stored = _foreign_stored(rest, snapshot, running or (), is_resend=resend.dropped > 0)
    new = [
        each
        for n, each in enumerate(rest)
        if not (n in stored if each.foreign else resend.knows(n) or _is_supplied(each))
    ]
    again = _given_again(new, waiting, spoken, snapshot, running or ())
    if again:
        new = [each for n, each in enumerate(new) if n not in again]
    decisions: tuple[CallDecision, ...] = tuple(each for one in new for each in one.decisions)
    if decisions:
        approvals = {**(approvals or {}), **{each.call: each.approve for each in decisions}}
        undecided = _undecided(asked, approvals)
        if isinstance(undecided, ApprovalClosed):
            return undecided
    elif speaker is not None and asked and not approvals and any(map(_is_said, new)):
        question = question_of(snapshot)
        if question is not None and question.in_chat:
            shown = text_of(answers[-1].content) if answers else None
            if resend.diverged or (shown is None and len(spoken) > 1):
                shown = ""  # the same call may have been asked about before
            said = _said_in_chat(question, speaker, shown, new, too_early=is_late)
            if isinstance(said, StillAsked):
                return said
            approvals, new = dict(said.decided), [said.message]
    intake = _Intake(waiting, approvals or {}, mint, {each.call: each.reason for each in decisions})
    if undecided and not any(map(_is_said, new)):
        return ApprovalsMissing(calls=undecided)
    for message in _results_first(new, waiting):
        refusal = intake.take(message)
        if refusal is not None:
            return refusal
    outcome = intake.outcome(
        dropped=len(spoken) - len(new), diverged=resend.diverged, demand=needs_question
    )
    if isinstance(outcome, NothingNew) and not needs_question:
        return _going_on(snapshot, waiting, speaker)
    if again and isinstance(outcome, NothingNew):
        return UnknownCall(call_id=min(again.items())[1])
    return outcome


def _rest(
    messages: Sequence[Incoming],
    known: int,
    snapshot: Snapshot,
    waiting: Sequence[ToolCall],
    *,
    system_is_stored: bool,
) -> list[Incoming]:
    """The messages after the history that a client owns, without results that the history has already.

    A result for a call that waits is new wherever it stands: clients group the texts, calls and results of an answer as
    they like.
    """
    answers = _results_for(waiting, messages, known, snapshot)
    called = {call.call_id for each in messages[known:] for call in each.calls}
    rest = [each for n, each in enumerate(messages[:known]) if n in answers]
    for n, each in enumerate(messages[known:], known):
        if each.role == "tool":
            is_new = each.call_id in called or n in answers
        else:
            is_new = system_is_stored or each.role != "system"
        if is_new:
            rest.append(each)
    return rest


def _results_for(
    waiting: Sequence[ToolCall], messages: Sequence[Incoming], known: int, snapshot: Snapshot
) -> frozenset[int]:
    """The positions of a request's results for calls that wait for the client.

    Some providers count calls anew in each answer. Of the results for one id, the first ones belong to earlier calls: as
    many as the request tells, or as the history has, if the request leaves calls out.
    """
    found: set[int] = set()
    told = Counter(call.call_id for each in messages[:known] for call in each.calls)
    wanted = Counter(each.call_id for each in waiting if each.waits_for == "client")
    for call_id, count in wanted.items():
        sent = [n for n, each in enumerate(messages) if each.call_id == call_id]
        if told[call_id]:
            earlier = told[call_id] - count
        elif len(sent) > count:
            earlier = min(sum(1 for _ in held_results(snapshot, {call_id})), len(sent) - count)
        else:
            earlier = 0
        found.update(sent[max(0, earlier) :])
    return frozenset(found)


def _going_on(
    snapshot: Snapshot, waiting: Sequence[ToolCall], speaker: Speaker | None
) -> Fresh | StillAsked | NothingNew | ResultsMissing:
    """The outcome for a request that brings nothing, since the last answer is to go on. While calls of that answer wait,
    it cannot."""
    missing = tuple(each.call_id for each in waiting if each.waits_for == "client")
    if missing:
        return ResultsMissing(call_ids=missing)
    question = question_of(snapshot) if waiting and speaker is not None else None
    if question is not None and question.in_chat:
        return StillAsked(question=question, why="no_answer")
    return NothingNew() if waiting else Fresh(input=())


def without_repeats(messages: tuple[Incoming, ...]) -> tuple[Incoming, ...]:
    """The messages without those that decided nothing, and the questions that were repeated to them: neither is
    stored."""
    if not any(_is_repeat(each) for each in messages if each.role == "assistant"):
        return messages
    return tuple(_without_repeats(messages))


_NO_RESEND = Resend(dropped=0)


# ── decisions in a chat ──────────────────────────────────────────────────────────────────────


class _SaidInChat(Value):
    """A message that decides, and its decisions."""

    message: Incoming
    decided: tuple[tuple[CallId, bool], ...]


def question_of(snapshot: Snapshot) -> ChatQuestion | None:
    """The question that a session ends with at this version, if any."""
    if not snapshot.marks:
        return None
    last = snapshot.marks[-1]
    return question_in(snapshot.said_by(last), last.turn_id)


def question_shown(messages: Sequence[Incoming]) -> str:
    """The last answer of a request, if it ends with a question; otherwise nothing."""
    said = (text_of(each.content) for each in reversed(messages) if each.role == "assistant")
    text = next(said, "")
    return text if without_question(text) != text else ""


def _said_in_chat(
    question: ChatQuestion,
    speaker: Speaker,
    shown: str | None,
    new: Sequence[Incoming],
    *,
    too_early: bool,
) -> _SaidInChat | StillAsked:
    """The decisions of a message in a chat, if everything holds that a decision needs. `shown` is the last answer that
    its client has; None if the client sends only what is new."""
    message = new[0]
    is_alone = len(new) == 1 and len(message.content) == 1 and isinstance(message.content[0], Text)
    decided = question.decisions(text_of(message.content)) if is_alone else None
    if decided is None:
        return StillAsked(question=question, why="no_answer")
    if any(each.chat_key != speaker.key for each in question.calls):
        return StillAsked(question=question, why="other_key")
    if too_early or not speaker.has_read:
        return StillAsked(question=question, why="too_early")
    if shown is not None and not question.is_end_of(shown):
        return StillAsked(question=question, why="old_answer")
    decisions = tuple(CallDecision(call=call, approve=yes) for call, yes in decided.items())
    return _SaidInChat(
        message=msgspec.structs.replace(message, decisions=decisions),
        decided=tuple(decided.items()),
    )


def _is_repeat(message: Incoming) -> bool:
    return message.role == "assistant" and is_repeated_question(text_of(message.content))


def _without_repeats(spoken: Sequence[Incoming]) -> list[Incoming]:
    """The messages without repeated questions, and without the messages before them, which decided nothing: neither is
    stored."""
    found: list[Incoming] = []
    for each in spoken:
        if not _is_repeat(each):
            found.append(each)
            continue
        while found and found[-1].role == "user":
            found.pop()
    return found


def is_steered_again(
    snapshot: Snapshot, messages: Sequence[Incoming], *, system_is_stored: bool = False
) -> bool:
    """Whether a request repeats a message that was steered into the last turn, and has no new message."""
    spoken = (each for each in messages if system_is_stored or each.role != "system")
    sent = without_results((seen, None) for each in spoken if (seen := _seen_of(each)))
    return repeats_steered(snapshot, [seen for seen, _ in sent])


def take_in(snapshot: Snapshot, messages: Sequence[Incoming], mint: Minter) -> Reconciled:
    """The items for these messages, all of them new: nothing is compared with the history.

    For clients that write a history instead of asking an agent: an assistant's message alone is enough here. Calls
    have their results among these messages, or are closed as not answered.
    """
    intake = _Intake(snapshot.waiting, {}, mint)
    messages = [each for each in messages if not each.decisions]  # only a person in a chat decides
    for message in _results_first(messages, snapshot.waiting):
        refusal = intake.take(message)
        if refusal is not None:
            return refusal
    return intake.outcome(dropped=0, diverged=False, demand=False)


def _undecided(
    asked: Sequence[ToolCall], approvals: Mapping[CallId, bool]
) -> tuple[CallId, ...] | ApprovalClosed:
    """The calls that wait for an approval and are not decided on; ApprovalClosed if a decided one does not wait."""
    names = [each.id for each in asked]
    closed = tuple(each for each in approvals if each not in names)
    if closed:
        return ApprovalClosed(calls=closed)
    return tuple(each for each in names if each not in approvals)


def _is_said(message: Incoming) -> bool:
    return message.role == "user" and is_substantial(message.content)


def _is_supplied(message: Incoming) -> bool:
    """Whether a message is only the question that the server writes while calls wait."""
    if message.role != "assistant" or message.calls:
        return False
    text = text_of(message.content)
    return bool(text) and not without_question(text).strip()


def _given_again(
    new: Sequence[Incoming],
    waiting: Sequence[ToolCall],
    spoken: Sequence[Incoming],
    snapshot: Snapshot,
    running: Items,
) -> dict[int, str]:
    """The results among `new` that answer no open call but are stored already, by position, with their call ids: some
    clients send the results of all calls since the user's message with each request.

    A result that differs from the stored one counts if the request tells its call as well, which makes it a part of the
    history as this client tells it.
    """
    results = [each.call_id for each in new if each.role == "tool"]
    if not results:  # nearly always
        return {}
    sent = Counter(results)
    sent.subtract(each.call_id for each in waiting if each.waits_for == "client")
    sent.subtract(call.call_id for each in new for call in each.calls)
    surplus = +sent
    if not surplus:
        return {}
    stored: dict[str, list[Seen]] = {call_id: [] for call_id in surplus}
    for held in held_results(snapshot, surplus, running):
        stored[held.call_id].append(_result_seen(held.call_id, held.content))
        if all(len(stored[call_id]) >= n for call_id, n in surplus.items()):
            break
    told = {call.call_id for each in spoken for call in each.calls}
    found: dict[int, str] = {}
    for n, each in enumerate(new):
        if each.role != "tool" or surplus[each.call_id] <= 0 or not stored[each.call_id]:
            continue
        if each.call_id in told or _result_seen(each.call_id, each.content) in stored[each.call_id]:
            surplus[each.call_id] -= 1
            found[n] = each.call_id
    return found


def _foreign_stored(
    spoken: Sequence[Incoming], snapshot: Snapshot, running: Items, *, is_resend: bool
) -> frozenset[int]:
    """The positions of foreign items that the history has already. An item without an id counts only in a resend of
    messages: a client may mean the same item twice."""
    sent = [
        (n, each, each.foreign)
        for n, each in enumerate(spoken)
        if each.foreign is not None and (is_resend or each.foreign.given_id or each.ours)
    ]
    if not sent:  # nearly always
        return frozenset()
    repeated = {each.ours for _, each, _ in sent if each.ours}
    kinds = {content.kind for _, _, content in sent}
    held = Counter[tuple[str, bytes]]()
    ours: set[ItemId] = set()
    for item in chain(snapshot.items, running):
        if (its_id := item_id(item)) in repeated and its_id is not None:
            ours.add(its_id)
        elif isinstance(item, ForeignItem) and item.original.kind in kinds:
            held[_foreign_key(item.original)] += 1
    found: set[int] = set()
    for n, each, content in sent:
        key = _foreign_key(content)
        if each.ours in ours:
            found.add(n)
        elif held[key]:
            found.add(n)
            held[key] -= 1
    return frozenset(found)


def _foreign_key(content: ForeignContent) -> tuple[str, bytes]:
    """A key that is the same for the same item, however its JSON is written."""
    value = msgspec.json.decode(content.json)
    return content.kind, sha256(msgspec.json.encode(value, order="sorted")).digest()


def _result_seen(call_id: str, content: Parts) -> Seen:
    return "tool", text_of(content), (call_id, *media(content))


def _results_first(new: Sequence[Incoming], waiting: Sequence[ToolCall]) -> Sequence[Incoming]:
    """The messages, results for waiting calls first: clients may send them in any order."""
    if not waiting:
        return new
    wanted = {each.call_id for each in waiting}
    return sorted(new, key=lambda each: each.role != "tool" or each.call_id not in wanted)


# ── comparing with history ───────────────────────────────────────────────────────────────────


def _seen_of(message: Incoming) -> Seen | None:
    if message.foreign is not None:
        return None
    if message.role == "tool":
        return "tool", "", (message.call_id,)
    if message.role == "assistant":
        text = without_question(text_of(message.content))
        return "assistant", text, tuple(c.call_id for c in message.calls)
    decided = tuple(each.call for each in message.decisions)
    return message.role, text_of(message.content), (*media(message.content), *decided)


# ── items for new messages ───────────────────────────────────────────────────────────────────


class _Intake:
    """Turns new messages into items, and keeps track of calls without a result."""

    def __init__(
        self,
        waiting: Sequence[ToolCall],
        approvals: Mapping[CallId, bool],
        mint: Minter,
        reasons: Mapping[CallId, str] | None = None,
    ) -> None:
        self._mint = mint
        self._reasons = reasons or {}
        self._items: list[Item] = []
        self._answered = False
        self._substantial = False
        self._approved: tuple[CallId, ...] = ()
        self._open: dict[CallId, ToolCall] = {}
        """Calls without a result, by our own id: a provider may use one id twice in an answer."""
        self._given: list[Seen] = []
        """The results so far."""
        if waiting:
            self._decide_on(waiting, approvals)

    def _decide_on(self, waiting: Sequence[ToolCall], approvals: Mapping[CallId, bool]) -> None:
        self._approved = tuple(
            each.id for each in waiting if each.waits_for == "approval" and approvals.get(each.id)
        )
        self._open = {each.id: each for each in waiting if each.id not in self._approved}
        denied = [
            each
            for each in self._open.values()
            if each.waits_for == "approval" and approvals.get(each.id) is False
        ]
        for call in denied:
            self._close(call)
        self._substantial = bool(self._approved or denied)

    def take(self, message: Incoming) -> ResultsMissing | UnknownCall | None:
        """Add the items of one more message, or return why the request is refused."""
        if message.role == "tool":
            return self._take_result(message)
        if message.foreign is not None:
            self._items.append(ForeignItem(id=self._mint(NoteId), original=message.foreign))
            return None
        if message.role == "assistant":
            self._take_answer(message)  # calls of neighbouring messages are answered side by side
            return None
        if not (message.decisions or message.extras or is_substantial(message.content)):
            return None
        refusal = self._settle_open()
        if refusal is not None:
            return refusal
        if message.role == "system":
            self._items.append(
                SystemMessage(
                    id=self._mint(MessageId), content=message.content, extras=message.extras
                )
            )
        else:
            self._substantial |= bool(message.decisions) or is_substantial(message.content)
            self._items.append(
                UserMessage(
                    id=self._mint(MessageId),
                    content=message.content,
                    name=message.name,
                    extras=message.extras,
                    decisions=message.decisions,
                )
            )
        return None

    def outcome(
        self, *, dropped: int, diverged: bool, demand: bool = True
    ) -> Fresh | NothingNew | ResultsMissing:
        """The outcome for all messages taken. With `demand`, they must contain something that an agent can answer."""
        if not (self._substantial or (self._items and not demand)):
            return NothingNew()
        refusal = self._settle_open()
        if refusal is not None:
            return refusal
        return Fresh(
            input=tuple(self._items), approved=self._approved, dropped=dropped, diverged=diverged
        )

    @property
    def _asked(self) -> Iterator[ToolCall]:
        """The open calls that wait for the client."""
        return (each for each in self._open.values() if each.waits_for == "client")

    def _take_result(self, message: Incoming) -> UnknownCall | None:
        call = next((each for each in self._asked if each.call_id == message.call_id), None)
        given = _result_seen(message.call_id, message.content)
        if call is None:  # the same result twice is one
            return None if given in self._given else UnknownCall(call_id=message.call_id)
        self._given.append(given)
        del self._open[call.id]
        self._answered = self._substantial = True
        outcome: Outcome = "error" if message.failed else "ok"
        result = result_for(call, outcome, message.content, self._mint, from_client=True)
        self._items.append(msgspec.structs.replace(result, extras=message.extras))
        return None

    def _take_answer(self, message: Incoming) -> None:
        """Add an assistant's message that is not in this session: the client brought it from another conversation."""
        if not self._open:
            self._answered = False  # all calls before it have their results
        self._items += (
            Reasoning(id=self._mint(ReasoningId), text=each.text, extras=each.extras)
            for each in message.thoughts
        )
        content = _without_question(message.content)
        if is_substantial(content) or message.extras:
            self._items.append(
                AssistantMessage(id=self._mint(MessageId), content=content, extras=message.extras)
            )
        for each in message.calls:
            call = ToolCall(
                id=self._mint(CallId),
                call_id=each.call_id,
                name=each.name,
                arguments=each.arguments,
                waits_for="client",
                extras=each.extras,
            )
            self._items.append(call)
            self._open[call.id] = call

    def _settle_open(self) -> ResultsMissing | None:
        """Close the open calls before another message: by now all of them have results, or none has."""
        if not self._open:
            self._answered = False
            return None
        missing = tuple(each.call_id for each in self._asked)
        if missing and self._answered:
            return ResultsMissing(call_ids=missing)
        for call in tuple(self._open.values()):
            self._close(call)
        self._answered = False
        return None

    def _close(self, call: ToolCall) -> None:
        self._items.append(unanswered(call, self._mint, self._reasons.get(call.id, "")))
        del self._open[call.id]


def _without_question(parts: Parts) -> Parts:
    """An answer's parts as its model made them. No model sees a question of the server's, also if a client brings it back."""
    text = text_of(parts)
    said = without_question(text)
    return parts if len(said) == len(text) else plain_text(said.rstrip())


def unanswered(call: ToolCall, mint: Minter, reason: str = "") -> ToolResult:
    """The result of a waiting call if the client sends a message instead of an answer, or a person refuses it."""
    asked = call.waits_for == "approval"
    outcome: Outcome = "refused" if asked else "not_answered"
    words = REFUSED if asked else NOT_ANSWERED
    parts = (Text(text=f"{words} {reason}" if reason else words),)
    return result_for(call, outcome, parts, mint, from_client=not asked)
