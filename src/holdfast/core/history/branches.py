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
   Pictures are in no digest, since they come as data and later as addresses: a request with pictures is compared.
4. The match that covers most of a request wins; the rest of the request is new, answers of other models included.
5. A turn that did not complete also matches without its answer, or with a beginning of it.
6. A version whose calls wait for the client is found by the id of its last call. Which results are new is decided then
   (`core/history/reconciliation.py`), wherever they stand: clients group the rounds of an answer as they like.
7. What a request may cost is bounded (`ComparisonBudget`): a chat of equal answers could be compared with itself in each
   of its places. A request that has spent all begins a line of its own, as one does that agrees with nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from unicodedata import normalize

from holdfast import limits
from holdfast.core.approval_questions import without_question
from holdfast.core.codec import Unreadable, Value
from holdfast.core.exchanges import WHOLE, Followed, ShownPast, SpokenExchange, UserWords
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.log import Log
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.history.seen_messages import media
from holdfast.core.items import AssistantMessage, Item, Parts, ToolCall, UserMessage, text_of
from holdfast.ids import Version

DIGEST_BYTES = 16
RECENT = 8
"""How many of a request's last exchanges are looked up first: most requests go on from the last one."""
PLACES = 16
"""How many places of one exchange a version may end at, the last ones: each round of tools makes another one."""

# ── what is compared ─────────────────────────────────────────────────────────────────────────

_OPENING = re.compile(r"<(?:(think|thinking|thought|reasoning)|(details)\b[^<>]*)>", re.IGNORECASE)
_TYPED = re.compile(r'\btype="[^"]*"', re.IGNORECASE)
_CLOSING = {
    name: re.compile(f"</{name}>", re.IGNORECASE)
    for name in ("think", "thinking", "thought", "reasoning", "details")
}
_ASKED = "\x01"
"""Stands for an answer in which only the server spoke: a question about calls that wait for an approval."""


def answer_words(text: str) -> str:
    """An answer as it is compared: without reasoning, white space, and questions of the server."""
    shown = _without_reasoning(normalize("NFC", text))
    spoken = without_question(shown)
    return "".join(spoken.split()) or (_ASKED if spoken != shown else "")


def _without_reasoning(text: str) -> str:
    """The text without elements of reasoning. Takes time in proportion to its length, however many tags it opens."""
    kept: list[str] = []
    end = 0
    unclosed: set[str] = set()
    for opening in _OPENING.finditer(text) if "<" in text else ():
        name = (opening[1] or opening[2]).lower()
        if opening.start() < end or name in unclosed:
            continue
        if name == "details" and not _TYPED.search(opening[0]):
            continue
        closing = _CLOSING[name].search(text, opening.end())
        if closing is None:
            unclosed.add(name)
            continue
        kept.append(text[end : opening.start()])
        end = closing.end()
    return "".join((*kept, text[end:]))


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
    """How many messages the request has, up to its last one that is no instruction."""
    has_media: bool = False
    """It has pictures or files: equal digests do not tell that it is the same conversation."""

    def digests(self, *, recent: int | None = RECENT) -> frozenset[bytes]:
        """The digests that versions are looked up by, of its last boundaries or of all of them."""
        chosen = self.boundaries if recent is None else self.boundaries[-2 * recent :]
        return self.prefixes(recent=recent).union(*(each.answers for each in chosen))

    def prefixes(self, *, recent: int | None = RECENT) -> frozenset[bytes]:
        """Those of them that few versions have: of prefixes, and of the calls that it answers."""
        chosen = self.boundaries if recent is None else self.boundaries[-2 * recent :]
        calls = (call_digest(call) for _, call in self.results)
        return frozenset((*(each.prefix for each in chosen), *calls))

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
    """A request's messages, to be compared. Takes time in proportion to their length, however they are divided."""
    reading = _BranchReading()
    for n, message in enumerate(messages):
        reading.take(n, message)
    return reading.branch()


class _BranchReading:
    """Reads a request's messages as exchanges."""

    def __init__(self) -> None:
        self._exchanges: list[SpokenExchange] = []
        self._boundaries: list[Boundary] = []
        self._past = b""
        self._results: list[tuple[int, str]] = []
        self._length = 0
        self._begin()

    def _begin(self) -> None:
        """Begin an exchange."""
        self._asked: list[UserWords] = []
        self._texts: list[str] = []
        self._calls: list[str] = []
        self._told, self._given = Counter[str](), Counter[str]()
        """How many calls and results have an id."""
        self._places: deque[tuple[int, int, int, int]] = deque(maxlen=PLACES)
        """Where a version may end: how many messages, questions, texts and calls come before it."""
        self._is_answering = False

    def take(self, n: int, message: Incoming) -> None:
        if message.role != "system":
            self._length = n + 1
        if message.role == "user":
            question = _question(message.content)
            if question is not None:
                self._ask(n, question)
        elif message.role == "assistant":
            if self._is_answering:
                self._places.pop()  # neighbouring answers are one
            elif self._asked and not (self._texts or self._calls):
                self._note(n)
            self._texts.append(text_of(message.content))
            self._calls += (each.call_id for each in message.calls)
            self._told.update(each.call_id for each in message.calls)
            self._note(n + 1)
            self._is_answering = True
        elif message.role == "tool":
            self._is_answering = False
            self._given[message.call_id] += 1
            told = self._told[message.call_id]
            if not told or self._given[message.call_id] <= told:  # else it repeats another one
                self._results.append((n, message.call_id))

    def _ask(self, n: int, question: UserWords) -> None:
        said = self._said(len(self._texts))
        if said or self._calls:
            self._close(said)
        else:
            self._forget_empty_answers()
            if self._asked:
                self._note(n)
        self._asked.append(question)
        self._results = []
        self._is_answering = False

    def _forget_empty_answers(self) -> None:
        self._texts = []
        while self._places and self._places[-1][2]:
            self._places.pop()
        if self._places and self._places[-1][1] == len(self._asked):
            self._places.pop()

    def _note(self, end: int) -> None:
        self._places.append((end, len(self._asked), len(self._texts), len(self._calls)))

    def _said(self, texts: int) -> str:
        return answer_words("".join(self._texts[:texts])) if texts else ""

    def _close(self, said: str) -> None:
        """End the exchange."""
        for end, asked, texts, calls in self._places:
            last = SpokenExchange(
                asked=tuple(self._asked[:asked]),
                said=said if texts == len(self._texts) else self._said(texts),
                calls=tuple(self._calls[:calls]),
            )
            if last.is_answered or not texts:
                count = len(self._exchanges) + 1
                self._boundaries.append(
                    Boundary(end=end, exchanges=count, last=last, past=self._past)
                )
        whole = SpokenExchange(asked=tuple(self._asked), said=said, calls=tuple(self._calls))
        self._exchanges.append(whole)
        self._past = prefix_digest(self._past, whole)
        self._begin()

    def branch(self) -> ClientBranch:
        """All that has been read."""
        said = self._said(len(self._texts))
        if self._asked or said or self._calls:
            self._close(said)
        answered = (each.end for each in self._boundaries[-1:] if each.last.is_answered)
        since = next(answered, 0)
        return ClientBranch(
            exchanges=tuple(self._exchanges),
            boundaries=tuple(self._boundaries),
            results=tuple(each for each in self._results if each[0] >= since),
            length=self._length,
            has_media=any(question.parts for each in self._exchanges for question in each.asked),
        )


def _question(content: Parts) -> UserWords | None:
    """A user's message to be compared; None if nothing is in it."""
    words, others = text_of(content).strip(), media(content)
    return UserWords(words=words, parts=len(others), media=others) if words or others else None


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
        last = SpokenExchange(
            asked=tuple(each.without_media() for each in last.asked),
            said=last.said,
            calls=last.calls,
        )
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


class ComparisonBudget:
    """How much may still be compared for one request: a number of exchanges and items."""

    def __init__(self, left: int = limits.family_comparisons_max) -> None:
        self._left = left

    @property
    def is_spent(self) -> bool:
        return self._left <= 0

    def spend(self, count: int = 1) -> None:
        self._left -= count


class _Held(Value):
    """An exchange of a line, and the positions of its questions and of the beginning of its answer."""

    exchange: SpokenExchange = SpokenExchange()
    questions: tuple[int, ...] = ()
    answer: int = 0


class HeldLine(Value):
    """A line at a version, in exchanges. The versions of a line share all but the last exchange of each."""

    version: Version
    before: Log[_Held] = Log()
    last: _Held = _Held()

    def __len__(self) -> int:
        return len(self.before) + (self.last != _Held())

    def at(self, n: int) -> _Held:
        return self.before[n] if n < len(self.before) else self.last


def matched(
    branch: ClientBranch, boundary: Boundary, held: HeldLine, budget: ComparisonBudget
) -> LineMatch | None:
    """Compare a request up to a boundary with a line at a version. None if they differ.

    The request may begin later than the line, and may have only the end of a question.
    """
    assert boundary.last.is_answered, "a question alone anchors nothing"
    count, skipped = boundary.exchanges, len(held) - boundary.exchanges
    if skipped < 0:
        return None

    def pair(n: int) -> tuple[SpokenExchange, _Held]:
        theirs = boundary.last if n == count - 1 else branch.exchanges[n]
        return theirs, held.at(skipped + n)

    for n in (0, *range(count - 1, 0, -1)):  # the first one first: most that differ, differ there
        budget.spend()
        theirs, ours = pair(n)
        if budget.is_spent or not _agrees(theirs, ours.exchange, is_cut=n == 0):
            return None
    first, ours = pair(0)
    missing = len(ours.exchange.asked) - len(first.asked)
    since = 0 if not skipped and not missing else (*ours.questions, ours.answer)[missing]
    shown = ShownPast(since=since, ends=tuple(_ends(map(pair, range(count)))))
    return LineMatch(version=held.version, known=boundary.end, shown=shown)


def begun_after(snapshot: Snapshot) -> LineMatch:
    """The match of a request that begins right after a line's head: its model is shown nothing of the line."""
    shown = ShownPast(since=len(snapshot.items))
    return LineMatch(version=snapshot.version, known=0, shown=shown)


def matched_anywhere(
    branch: ClientBranch, snapshot: Snapshot, budget: ComparisonBudget
) -> LineMatch | None:
    """The version of a line that covers most of a request. For lines whose versions have no digests: they are older, or
    other requests have appended to them."""
    alike: defaultdict[str, list[HeldLine]] = defaultdict(list)
    for held in held_versions(snapshot, budget):
        alike[held.last.exchange.said].append(held)
    for boundary in reversed(branch.boundaries):
        if not boundary.last.is_answered:
            continue
        for held in reversed(alike[boundary.last.said]):
            if budget.is_spent:
                return None
            found = matched(branch, boundary, held, budget)
            if found is not None:
                return found
    return None


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
    branch: ClientBranch, boundary: Boundary, held: HeldLine
) -> LineMatch | None:
    """The same for a version that did not complete, and that the request has without its answer, or with a beginning of
    it. `boundary` ends with the version's question."""
    known = boundary.end
    following = next((each for each in branch.boundaries if each.end > boundary.end), None)
    if following is not None and following.last.asked == boundary.last.asked:
        said = held.last.exchange.said
        if following.last.calls or not said.startswith(following.last.said):
            return None
        known = following.end
    for n in range(min(boundary.exchanges, len(held)) if branch.has_media else 0):
        asked = zip(branch.exchanges[n].asked, held.at(n).exchange.asked, strict=False)
        if any(sent.shows_other_media(ours) for sent, ours in asked):
            return None
    return LineMatch(version=held.version, known=known)


def held_line(snapshot: Snapshot) -> HeldLine:
    """A line at its head, as its clients have seen it."""
    reading = _LineReading()
    for position, item in _seen(snapshot):
        reading.take(position, item)
    return reading.line(snapshot.version)


def held_versions(snapshot: Snapshot, budget: ComparisonBudget) -> Iterator[HeldLine]:
    """Each version of a line, as its clients see it now, as far as the budget goes."""
    reading, seen = _LineReading(), list(_seen(snapshot))
    budget.spend(len(seen))
    seen.reverse()
    for mark in snapshot.marks:
        while seen and seen[-1][0] < mark.end:
            reading.take(*seen.pop())
        budget.spend(reading.open_length)
        if budget.is_spent:
            return
        yield reading.line(mark.version)


class _LineReading:
    """Reads the items of a line as exchanges."""

    def __init__(self) -> None:
        self._before = Log[_Held]()
        self._begin()

    def _begin(self) -> None:
        """Begin an exchange."""
        self._asked: list[tuple[int, UserWords]] = []
        self._texts: list[str] = []
        self._calls: list[str] = []
        self._answer: int | None = None
        self._asks_approval = False

    @property
    def open_length(self) -> int:
        """How many pieces the last exchange has so far."""
        return len(self._asked) + len(self._texts) + len(self._calls)

    def take(self, position: int, item: UserMessage | AssistantMessage | ToolCall) -> None:
        if isinstance(item, UserMessage):
            question = _question(item.content)
            if question is not None:
                self._ask(position, question)
            return
        if isinstance(item, AssistantMessage):
            text = text_of(item.content)
            if not text.strip():
                return
            self._texts.append(text)
        elif item.waits_for == "client":
            self._calls.append(item.call_id)
        else:
            self._asks_approval = True
        if self._answer is None:
            self._answer = position

    def _ask(self, position: int, question: UserWords) -> None:
        said = self._said()
        if said or self._calls:
            self._before = self._before.appended(self._current(said))
            self._begin()
        self._texts, self._answer = [], None
        self._asked.append((position, question))

    def _said(self) -> str:
        said = answer_words("".join(self._texts)) if self._texts else ""
        return said or (_ASKED if self._asks_approval else "")

    def _current(self, said: str) -> _Held:
        return _Held(
            exchange=SpokenExchange(
                asked=tuple(each for _, each in self._asked),
                said=said,
                calls=tuple(self._calls),
            ),
            questions=tuple(position for position, _ in self._asked),
            answer=self._answer or 0,
        )

    def line(self, version: Version) -> HeldLine:
        """What has been read, as a line at a version."""
        return HeldLine(version=version, before=self._before, last=self._current(self._said()))


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
