"""Which version of a family a request goes on from, for clients that own their history. No I/O happens here.

A chat program resends the whole branch that a person looks at, and lets that person edit, regenerate and branch. Its name
for a chat therefore stands for a *family* of lines, and a request is compared by content with the versions of all of them.

1. A conversation is compared in *exchanges*: what was asked, and all that was answered before the next question, as one
   text. Reasoning, system messages, white space and the server's own questions do not count, and tool calls count by
   their ids in any order: clients group and decorate these as they like.
2. Each version has two digests: of its last answer, and of everything that its client had said and seen up to then
   (its prefix). So one read finds the versions that a request may go on from, however long the request is.
3. An equal prefix is a match. An equal answer is a candidate: it matches if, going backwards, all answers agree and each
   question equals the held one or is its end, since chat programs put retrieved passages in front of a question and
   leave them out the next time. The request may begin later than the line. The model is shown what the request has.
4. The match that covers most of a request wins; the rest of the request is new, answers of other models included.
5. A turn that did not complete also matches without its answer, or with a beginning of it.
6. A version whose calls wait for the client is found by the id of its last call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

import msgspec

from holdfast.core.approval_questions import without_question
from holdfast.core.codec import Unreadable, Value
from holdfast.core.exchanges import WHOLE, Followed, ShownPast, SpokenExchange, UserWords
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.history.seen_messages import media
from holdfast.core.items import (
    AssistantMessage,
    Item,
    Parts,
    ToolCall,
    UserMessage,
    text_of,
)
from holdfast.ids import Version

DIGEST_BYTES = 16
RECENT = 8
"""How many of a request's last exchanges are looked up first: most requests go on from the last one."""

# ── what is compared ─────────────────────────────────────────────────────────────────────────

_REASONING = re.compile(
    r"<(think|thinking|thought|reasoning)>.*?</\1>|<details\b[^>]*\btype=\"[^\"]*\"[^>]*>.*?</details>",
    re.DOTALL | re.IGNORECASE,
)
_ASKED = "\x01"
"""Stands for an answer in which only the server spoke: a question about calls that wait for an approval."""


def answer_words(text: str) -> str:
    """An answer as it is compared: without reasoning, white space, and questions of the server."""
    shown = _REASONING.sub("", text) if "<" in text else text
    spoken = without_question(shown)
    return "".join(spoken.split()) or (_ASKED if spoken != shown else "")


def _digest(kind: bytes, *parts: bytes) -> bytes:
    made = blake2b(digest_size=DIGEST_BYTES, person=kind)
    for part in parts:
        made.update(len(part).to_bytes(8) + part)
    return made.hexdigest().encode()


def answer_digest(said: str) -> bytes:
    """The digest of an answer, all that was said since the last question."""
    return _digest(b"answer", said.encode())


def call_digest(call_id: str) -> bytes:
    return _digest(b"call", call_id.encode())


def id_digest(answer_id: str) -> bytes:
    """The digest of a client's own id for an answer."""
    return _digest(b"id", answer_id.encode())


def prefix_digest(past: bytes, exchange: SpokenExchange) -> bytes:
    """The digest of a conversation: of all exchanges before, and of the last one so far."""
    asked = (f"{each.parts} {each.words}".encode() for each in exchange.asked)
    calls = (each.encode() for each in sorted(exchange.calls))
    return _digest(b"prefix", past, b"?", *asked, b"!", exchange.said.encode(), b"+", *calls)


# ── a request ────────────────────────────────────────────────────────────────────────────────


class Boundary(Value):
    """A place in a request at which a version may end."""

    end: int
    """How many of the request's messages come before it."""
    exchanges: int
    """How many exchanges it covers, the last one as far as it goes."""
    last: SpokenExchange
    past: bytes
    """The digest of the exchanges before the last one."""

    @property
    def prefix(self) -> bytes:
        return prefix_digest(self.past, self.last)

    @property
    def answers(self) -> tuple[bytes, ...]:
        """The digests of its answer: of what was said, and of the last call. None if it ends with a question."""
        said = (answer_digest(self.last.said),) if self.last.said else ()
        return (*said, *(call_digest(each) for each in self.last.calls[-1:]))


class ClientBranch(Value):
    """A request as it is compared: its exchanges, and the places at which a version may end."""

    exchanges: tuple[SpokenExchange, ...]
    boundaries: tuple[Boundary, ...]
    """In the order of the request."""
    results: tuple[tuple[int, str], ...] = ()
    """The tool results after the last answer: the number of the message, and the call that it answers."""
    length: int = 0
    """How many messages the request has."""

    def digests(self, *, recent: int | None = RECENT) -> frozenset[bytes]:
        """The digests that versions are looked up by, of its last boundaries or of all of them."""
        chosen = self.boundaries if recent is None else self.boundaries[-2 * recent :]
        found = {digest for each in chosen for digest in (each.prefix, *each.answers)}
        return frozenset(found.union(call_digest(call) for _, call in self.results))

    @property
    def answer_before(self) -> Boundary | None:
        """The end of the answer before its last question; None without one."""
        before = (each for each in self.boundaries if each.exchanges < len(self.exchanges))
        return max(before, key=lambda each: each.end, default=None)

    @property
    def continues_answer(self) -> bool:
        """Whether it ends with an answer, which is to go on."""
        return bool(self.boundaries) and self.boundaries[-1].end == self.length


def branch_of(messages: Sequence[Incoming]) -> ClientBranch:
    """A request's messages, to be compared."""
    exchanges: list[SpokenExchange] = []
    boundaries: list[Boundary] = []
    results: list[tuple[int, str]] = []
    past, current, text = b"", SpokenExchange(), ""
    answering = False
    for n, message in enumerate(messages):
        if message.role == "user":
            question = _question(message.content)
            if question is None:
                continue
            if current.is_answered:
                exchanges.append(current)
                past, current, text = prefix_digest(past, current), SpokenExchange(), ""
            elif current.asked:
                boundaries.append(_boundary(n, exchanges, current, past))
            current = SpokenExchange(asked=(*current.asked, question))
            answering, results = False, []
        elif message.role == "assistant":
            text += text_of(message.content)
            calls = tuple(each.call_id for each in message.calls)
            if answering:
                boundaries.pop()  # neighbouring answers are one
            elif current.asked and not current.is_answered:
                boundaries.append(_boundary(n, exchanges, current, past))
            current = SpokenExchange(
                asked=current.asked, said=answer_words(text), calls=(*current.calls, *calls)
            )
            answering = current.is_answered
            if answering:
                boundaries.append(_boundary(n + 1, exchanges, current, past))
                results = []
        elif message.role == "tool":
            answering = False
            results.append((n, message.call_id))
    if current.asked or current.is_answered:
        exchanges.append(current)
    return ClientBranch(
        exchanges=tuple(exchanges),
        boundaries=tuple(boundaries),
        results=tuple(results),
        length=len(messages),
    )


def _question(content: Parts) -> UserWords | None:
    """A user's message to be compared; None if nothing is in it."""
    words, parts = text_of(content).strip(), len(media(content))
    return UserWords(words=words, parts=parts) if words or parts else None


def _boundary(
    end: int, before: list[SpokenExchange], last: SpokenExchange, past: bytes
) -> Boundary:
    return Boundary(end=end, exchanges=len(before) + 1, last=last, past=past)


# ── what a version is found by ───────────────────────────────────────────────────────────────


class TurnDigests(Value):
    """The digests that a committed turn is found by."""

    answer: bytes | None = None
    prefix: bytes | None = None
    """None if the turn's client does not follow its own history."""
    answer_id: bytes | None = None


def digests_of(
    items: Iterable[Item], waiting: Sequence[ToolCall], followed: Followed | None, *, whole: bool
) -> TurnDigests:
    """The digests of a turn with these items. `waiting` are the calls that it leaves open; not `whole`, if it did not
    complete: then its prefix ends before its answer."""
    last, own = (followed or Followed()).last, _answered_in(items)
    asks = any(each.waits_for == "approval" for each in waiting)
    said = last.said + own or (_ASKED if asks else "")
    calls = tuple(each.call_id for each in waiting if each.waits_for == "client")
    answer = call_digest(calls[-1]) if calls else answer_digest(said) if said else None
    ends = (
        SpokenExchange(asked=last.asked, said=said, calls=(*last.calls, *calls)) if whole else last
    )
    return TurnDigests(
        answer=answer,
        prefix=_prefix(followed, ends),
        answer_id=id_digest(followed.answer_id) if followed and followed.answer_id else None,
    )


def _prefix(followed: Followed | None, last: SpokenExchange) -> bytes | None:
    """The prefix of a turn. If its request has only a part of the line, it equals no request's prefix: the next request
    has to be compared."""
    if followed is None:
        return None
    whole = prefix_digest(followed.past, last)
    return whole if followed.shown == WHOLE else _digest(b"part", whole)


def _answered_in(items: Iterable[Item]) -> str:
    """What agents have said in these items since the last question."""
    texts: list[str] = []
    for each in items:
        if each.path:
            continue
        if isinstance(each, UserMessage):
            texts = []
        elif isinstance(each, AssistantMessage) and each.agent and each.state != "set_aside":
            texts.append(text_of(each.content))
    return answer_words("".join(texts))


def followed_by(
    branch: ClientBranch,
    *,
    name: str,
    answer_id: str,
    streamed: bool,
    shown: ShownPast,
) -> Followed:
    """What the turn of a request is found by later, and what its model is shown."""
    last, past = SpokenExchange(), b""
    for each in branch.exchanges[:-1]:
        past = prefix_digest(past, each)
    if branch.exchanges:
        last = branch.exchanges[-1]
    return Followed(
        name=name,
        past=past,
        last=last,
        answer_id=answer_id,
        streamed=streamed,
        shown=shown,
    )


# ── comparing with a line ────────────────────────────────────────────────────────────────────


class LineMatch(Value):
    """A version that a request goes on from."""

    version: Version
    known: int
    """How many of the request's messages are held."""
    shown: ShownPast = WHOLE


class _Held(Value):
    """An exchange of a line, and the positions of its questions and of the beginning of its answer."""

    exchange: SpokenExchange = SpokenExchange()
    questions: tuple[int, ...] = ()
    answer: int = 0


def matched(branch: ClientBranch, boundary: Boundary, snapshot: Snapshot) -> LineMatch | None:
    """Compare a request up to a boundary with a line at its head, from the end on. None if they differ.

    The request may begin later than the line, and may have only the end of a question.
    """
    return _compared(branch, boundary, _exchanges_of(snapshot), snapshot.version)


def begun_after(snapshot: Snapshot) -> LineMatch:
    """The match of a request that begins right after a line's head: its model is shown nothing of the line."""
    shown = ShownPast(since=len(snapshot.items))
    return LineMatch(version=snapshot.version, known=0, shown=shown)


def matched_anywhere(branch: ClientBranch, snapshot: Snapshot) -> LineMatch | None:
    """The version of a line that covers most of a request. For lines whose versions have no digests: they are older, or
    other requests have appended to them."""
    held = list(_versions_of(snapshot))
    for boundary in reversed(branch.boundaries):
        if not boundary.last.is_answered:
            continue
        for version, exchanges in reversed(held):
            found = _compared(branch, boundary, exchanges, version)
            if found is not None:
                return found
    return None


def _versions_of(snapshot: Snapshot) -> Iterator[tuple[Version, list[_Held]]]:
    """Each version of a line with its exchanges."""
    for mark in snapshot.marks:
        seen = msgspec.structs.replace(snapshot, items=snapshot.items.prefix(mark.end))
        yield mark.version, _exchanges_of(seen)


def _compared(
    branch: ClientBranch, boundary: Boundary, held: Sequence[_Held], version: Version
) -> LineMatch | None:
    assert boundary.last.is_answered, "a question alone anchors nothing"
    sent = [*branch.exchanges[: boundary.exchanges - 1], boundary.last]
    if len(sent) > len(held):
        return None
    back = list(zip(reversed(sent), reversed(held), strict=False))
    for n, (theirs, ours) in enumerate(back, start=1):
        if not _agrees(theirs, ours.exchange, is_cut=n == len(sent)):
            return None
    first, ours = back[-1]
    missing = len(ours.exchange.asked) - len(first.asked)
    is_whole = len(sent) == len(held) and not missing
    since = 0 if is_whole else (*ours.questions, ours.answer)[missing]
    shown = ShownPast(since=since, ends=tuple(_ends(reversed(back))))
    return LineMatch(version=version, known=boundary.end, shown=shown)


def _ends(pairs: Iterable[tuple[SpokenExchange, _Held]]) -> Iterator[tuple[int, int]]:
    """The questions of which a request has only the end: their positions, and how many characters it has."""
    for theirs, ours in pairs:
        missing = len(ours.questions) - len(theirs.asked)
        held = zip(ours.exchange.asked[missing:], ours.questions[missing:], strict=True)
        for sent, (whole, position) in zip(theirs.asked, held, strict=True):
            if sent.words != whole.words:
                yield position, len(sent.words)


def _agrees(theirs: SpokenExchange, ours: SpokenExchange, *, is_cut: bool) -> bool:
    """Whether an exchange is the held one. Calls may be missing, since some clients leave them out; if the request may
    begin in it, questions may be, too."""
    if theirs.said != ours.said or not set(theirs.calls) <= set(ours.calls):
        return False
    missing = len(ours.asked) - len(theirs.asked)
    if missing < 0 or (missing and not is_cut):
        return False
    pairs = zip(theirs.asked, ours.asked[missing:], strict=True)
    return all(sent.is_end_of(held) for sent, held in pairs)


def matched_unfinished(
    branch: ClientBranch, boundary: Boundary, snapshot: Snapshot
) -> LineMatch | None:
    """The same for a version that did not complete, and that the request has without its answer, or with a beginning of
    it. `boundary` ends with the version's question."""
    known = boundary.end
    held = _exchanges_of(snapshot)
    ours = held[-1].exchange.said if held else ""
    following = next((each for each in branch.boundaries if each.end > boundary.end), None)
    if following is not None and following.last.asked == boundary.last.asked:
        if following.last.calls or not ours.startswith(following.last.said):
            return None
        known = following.end
    return LineMatch(version=snapshot.version, known=known)


def _exchanges_of(snapshot: Snapshot) -> list[_Held]:
    """A line at a version, as its clients have seen it."""
    found: list[_Held] = []
    current, text = _Held(), ""
    for position, item in _seen(snapshot):
        exchange = current.exchange
        if isinstance(item, UserMessage):
            question = _question(item.content)
            if question is None:
                continue
            if exchange.is_answered:
                found.append(current)
                current, text = _Held(), ""
            current = _Held(
                exchange=SpokenExchange(asked=(*current.exchange.asked, question)),
                questions=(*current.questions, position),
            )
            continue
        said, calls = exchange.said, exchange.calls
        if isinstance(item, AssistantMessage):
            text += text_of(item.content)
            said = answer_words(text) or said
        elif item.waits_for == "client":
            calls = (*calls, item.call_id)
        else:
            said = said or _ASKED
        current = _Held(
            exchange=SpokenExchange(asked=exchange.asked, said=said, calls=calls),
            questions=current.questions,
            answer=current.answer if exchange.is_answered else position,
        )
    if current != _Held():
        found.append(current)
    return found


def _seen(
    snapshot: Snapshot,
) -> Iterator[tuple[int, UserMessage | AssistantMessage | ToolCall]]:
    """The items that chat clients see, with their positions."""
    hidden = snapshot.notes.hidden_from_people
    for position, each in enumerate(snapshot.items):
        if isinstance(each, Unreadable) or each.path or each.id in hidden:
            continue
        if each.id in snapshot.broken_off:
            continue
        match each:
            case UserMessage():
                yield position, each
            case AssistantMessage() if each.state != "set_aside":
                yield position, each
            case ToolCall() if each.waits_for is not None:
                yield position, each
            case _:
                pass
