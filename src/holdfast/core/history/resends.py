"""Which part of a request is a resend: messages that its client knows to be in the conversation already.

A client compares with nothing; it sends what it has seen. So a request is compared with what its client could have
seen when it sent it, and that is decided anew whenever the conversation has moved:

1. What the client could have seen whole: the history as it stood when the request arrived. It has to be told from its
   first message to its last, or it is not a resend. An answer that broke off may be told in part or left out. So may
   every answer after the last one that is told: the client sent its message before it had that answer. What broke off
   in a turn that was continued since may be told as well: a retry is not answered with it, and others have seen it.
2. What the client could have seen in part: the turns since then, and the turn that is open. Their messages are known
   again where the client tells them, in their order. The others came from other clients, and are not missed. A turn
   that was discarded is not among them, so what it brought is new again.
3. The last message of a request is never taken for a resend of one of those: it was sent to be answered. But if a
   later request has overtaken this one, and has brought that message along with a newer one, then it is answered
   there (`Overtaken`). What was said before this request came has not overtaken it.
4. A telling without any answer whose messages are all there asks its last one again. What is stored of that question
   each time is the question alone, so it may be in the history any number of times in a row.
5. A telling that parts from the history is anchored by the last answer that it tells, or without any answer by the two
   or more messages that the history begins with as well: what follows is new, but for the messages that follow there in
   the history too. One such message is no anchor: nothing tells a client that has missed the rest from one that says
   the first message of a conversation again. It is stored, and the request has diverged.

White space is nothing, and neighbouring answers are one: a chat client has heard one answer, however many steps it took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain, combinations, pairwise
from operator import or_
from typing import NamedTuple, TypeAlias, TypeVar, assert_never

from holdfast.core.codec import Unreadable, Value
from holdfast.core.history.conversation import Snapshot, seen_by_people
from holdfast.core.items import (
    AssistantMessage,
    Blob,
    Inline,
    Item,
    Link,
    Parts,
    Refusal,
    Source,
    StoredItem,
    SystemMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    item_id,
    text_of,
)
from holdfast.ids import ItemId, TurnId, Version

Seen: TypeAlias = tuple[str, str, tuple[str, ...]]
"""What a client sees of a message: role, trimmed text, and what else identifies it: calls, or other parts."""

Told: TypeAlias = list[tuple[Seen, int]]
"""The messages of a request, each with the number of those that come up to it, itself included."""


class Arrival(Value):
    """A session as it stood when a request came, and when that was: 0 if nothing was said before."""

    version: Version
    at_ms: int = 0


def arrival(
    snapshot: Snapshot, *, at_ms: int, known: Version | None = None, least: int = 0
) -> Arrival:
    """A session as it stood when a request came at this time; `known`: no further than this version. The server
    had `least` in mind by then, so that was there, whatever the clocks say.

    What a turn said last was said before its end, so a turn that has said something since has ended since.
    """
    version = snapshot.version if known is None else min(snapshot.version, known)
    while version > least and _last_said_ms(snapshot, version) >= at_ms:
        version = Version(version - 1)
    return Arrival(version=version, at_ms=at_ms)


def _last_said_ms(snapshot: Snapshot, version: Version) -> int:
    mark = snapshot.marks[version - 1]
    last = item_id(snapshot.items[mark.end - 1]) if mark.end > mark.start else None
    begun_ms = mark.turn_id.minted_at_ms
    return begun_ms if last is None else max(begun_ms, last.minted_at_ms)


class Resend(Value):
    """How many of a request's messages are known already; `diverged` if it tells another history than ours."""

    dropped: int
    diverged: bool = False


class Overtaken(Value):
    """All that the request says was brought by a later one, together with something newer, and is answered there."""

    turn_id: TurnId | None
    """The turn that a later request has begun; None: the one that is open."""


def find_resend(
    snapshot: Snapshot, told: Told, *, answers_end: int, since: Arrival, running: Sequence[Item]
) -> Resend | Overtaken:
    """What of a request its client has sent before.

    `answers_end` is how many of its messages come up to its last answer. `since` is what the session was when the
    request arrived, `running` what was said to the turn that is open, if the request is for that one.
    """
    past = _Past(snapshot, without=snapshot.broken_off)
    found = _find_in(past, told, answers_end, since, running)
    if not past.without or isinstance(found, Overtaken):
        return found
    if not found.diverged and found.dropped >= answers_end:
        return found
    # It tells an answer that is none of ours, unless the words that broke off are part of it.
    other = _find_in(_Past(snapshot), told, answers_end, since, running)
    if isinstance(other, Overtaken) or not other.diverged or other.dropped > found.dropped:
        return other
    return found


def _find_in(
    past: _Past, told: Told, answers_end: int, since: Arrival, running: Sequence[Item]
) -> Resend | Overtaken:
    later = past.later(since.version, running)
    found = _whole_history(past.held_at(since.version), told)
    if found is None:
        return _anchored(past, told, answers_end, later, since)
    whole, asked_again = found
    if 0 < whole < len(told) and past.has_answered(since.version, told[whole][0]):
        whole += 1
    at, last = _known_again(told, whole, later)
    known = told[at - 1][1] if at else 0
    overtaken = _overtaking(told, at, later[last:], since)
    if at > whole and not overtaken and answers_end > (told[whole - 1][1] if whole else 0):
        # It tells another answer than the one that was given meanwhile, or had that one when it came: then all that
        # the turn was told is part of what its client has seen, in whatever order.
        other = _anchored(past, told, answers_end, later, since)
        if isinstance(other, Overtaken) or answers_end > known or other.dropped > known:
            return other
    return overtaken or Resend(dropped=known, diverged=asked_again and at > 0)


def still_new(
    head: Snapshot, items: Sequence[Item], *, since: Arrival
) -> tuple[Item, ...] | Overtaken:
    """What is new on top of `head` of items that were taken in as new on top of another version, which is `since`."""
    told = list(merged((seen, n + 1) for n, each in enumerate(items) if (seen := held(each))))
    later = _Past(head, without=head.broken_off).later(since.version)
    at, last = _known_again(told, 0, later)
    overtaken = _overtaking(told, at, later[last:], since)
    return overtaken or tuple(items[told[at - 1][1] if at else 0 :])


def was_heard(snapshot: Snapshot, told: Sequence[Seen]) -> bool:
    """Whether a request tells nothing but what was said already, up to a message that the last turn has heard after its
    first one. Answers may be left out."""
    return any(
        _was_heard(_Past(snapshot, without=without), snapshot.version, told)
        for without in {snapshot.broken_off, frozenset[ItemId]()}
    )


def _was_heard(past: _Past, version: Version, told: Sequence[Seen]) -> bool:
    turn = merged(past.shown(chain.from_iterable(next(past.turns_back()))))
    steers = [seen for seen, _ in turn if seen[0] == "user"][1:]
    if not told or told[-1] not in steers:
        return False
    history = [seen for seen, _ in past.held_at(version)]
    ends = [n for n, (role, *_) in enumerate(history, 1) if role == "user"][-len(steers) :]
    return any(history[n - 1] == told[-1] and _is_end_of(told, history[:n]) for n in ends)


def _is_end_of(told: Sequence[Seen], history: Sequence[Seen]) -> bool:
    left = len(told)
    for ours in reversed(history):
        if left and (ours == told[left - 1] or _is_answered_by(told[left - 1], ours)):
            left -= 1
        elif left and ours[0] != "assistant":
            return False
    return not left


# ── comparing ────────────────────────────────────────────────────────────────────────────────


class _Said(NamedTuple):
    """Where something was said."""

    turn_id: TurnId | None
    """None: to the turn that is open."""
    item: ItemId | None


_Later: TypeAlias = list[tuple[Seen, _Said]]
"""What was said since a request arrived."""


def _whole_history(history: Iterable[tuple[Seen, bool]], told: Told) -> tuple[int, bool] | None:
    """How many of these messages are the whole history, or None if they do not begin with it; and whether one of them is
    asked again, now or in the history. Only a telling without any answer can mean that.

    Stops at the first difference, so a request with only new messages costs one comparison.
    """
    answers = max((n + 1 for n, (seen, _) in enumerate(told) if seen[0] == "assistant"), default=0)
    at, left_out, asked_again = 0, False, False
    for ours, broke_off in history:
        theirs = told[at][0] if at < len(told) else None
        if theirs is not None and (ours == theirs or (broke_off and _is_part_of(theirs, ours))):
            at += 1
        elif (
            ours[0] == "assistant"
            and (broke_off or at >= answers)
            and (theirs is None or theirs[0] != "assistant")
        ):
            left_out = True
        elif at and not answers and ours == told[at - 1][0]:
            asked_again = True
        else:
            return None
    if at < len(told):
        return at, asked_again
    if not answers:
        return max(0, at - 1), True  # the last of them is asked again
    # Nothing follows what was left out: it is said again.
    return None if left_out else (at, False)


def _known_again(told: Told, at: int, later: _Later) -> tuple[int, int]:
    """How many of these messages are known if those before `at` are, and how many of the later ones come up to them.
    The last one is never known."""
    last = 0
    for n, (ours, _) in enumerate(later):
        if at >= len(told) - 1:
            break
        theirs = told[at][0]
        if ours == theirs or _is_answered_by(theirs, ours):
            at, last = at + 1, n + 1
    return at, last


def _overtaking(told: Told, at: int, later: _Later, since: Arrival) -> Overtaken | None:
    """The turn that has brought the last of these messages together with a newer one, if there is such a turn."""
    if at != len(told) - 1:
        return None
    for (ours, where), (newer, its_where) in pairwise(later):
        both_asked = newer[0] == ours[0] == "user" and where.turn_id == its_where.turn_id
        if both_asked and ours == told[at][0] != newer:  # what follows its like was said again
            if where.item is not None and where.item.minted_at_ms >= since.at_ms:
                return Overtaken(turn_id=where.turn_id)
    return None


def _anchored(
    past: _Past, told: Told, answers_end: int, later: _Later, since: Arrival
) -> Resend | Overtaken:
    """What is known of a request that tells another history than ours: what comes up to its anchor, and after it what
    follows that with us."""
    at = sum(end <= answers_end for _, end in told)
    after, diverged = later, answers_end > 0
    if not at:
        at, after, diverged = _begun_alike(past, told, later, since.version)
    elif at < len(told) - 1:
        # Only then can one of the messages that follow be known: the last one never is.
        asked = told[at - 2][0] if at > 1 else None
        followed = _following(past, told[at - 1][0], asked)
        if followed is not None:
            after = [*followed, *(each for each in later if each[1].turn_id is None)]
    known, last = _known_again(told, at, after)
    overtaken = _overtaking(told, known, [each for each in after[last:] if each in later], since)
    dropped = max(answers_end, told[known - 1][1] if known else 0)
    return overtaken or Resend(dropped=dropped, diverged=diverged)


def _begun_alike(
    past: _Past, told: Told, later: _Later, since: Version
) -> tuple[int, _Later, bool]:
    """How many messages of a telling without any answer the history begins with, if that is an anchor, and what follows
    them there; else what was said later. And whether there are any: then the telling has parted from the history."""
    at = alike = 0
    questions = (seen for seen, _ in past.held_at(since) if seen[0] != "assistant")
    for (
        ours
    ) in questions:  # pragma: no branch — it parts somewhere, or it would be the whole history
        if at < len(told) and ours == told[at][0]:
            at += 1
        elif not at or ours != told[at - 1][0]:  # what was asked again is there more than once
            break
        alike += 1
    asked = sum(seen[0] == "user" for seen, _ in told[:at])
    if asked < 2:
        return 0, later, asked > 0
    history = past.later(Version(0))
    ends = [n for n, (seen, _) in enumerate(history, 1) if seen[0] != "assistant"]
    running = (each for each in later if each[1].turn_id is None)
    return min(at, len(told) - 1), [*history[ends[alike - 1] :], *running], True


def _following(past: _Past, answer: Seen, asked: Seen | None) -> _Later | None:
    """What follows an answer to what was `asked`; if it was never given to that, the last one that is like it. None if
    there is none.

    A turn may have been told more than one request brought, and all of them were answered with all that it said. So the
    messages that it was told after this one follow it as well.
    """
    followed: list[_Later] = []
    likely: list[_Later] | None = None
    for links in past.turns_back():
        turn = list(merged(past.shown(chain.from_iterable(links))))
        said = [seen for seen, _ in turn]
        given = (*said, *past.answers_of(links))
        if asked in said and any(_is_part_of(answer, each) for each in given):
            likely = [*followed, turn[len(said) - said[::-1].index(asked) :]]
            break
        if likely is None and answer in given:
            after = len(said) - said[::-1].index(answer) if answer in said else len(said)
            likely = [*followed, turn[after:]]
        followed.append(turn)
    return None if likely is None else [each for turn in reversed(likely) for each in turn]


def _is_answered_by(told: Seen, answer: Seen) -> bool:
    return answer[0] == "assistant" and _is_part_of(told, answer)


def _is_part_of(told: Seen, whole: Seen) -> bool:
    (role, text, marks), (its_role, its_text, its_marks) = told, whole
    return role == its_role and its_text.startswith(text) and its_marks[: len(marks)] == marks


# ── what clients see ─────────────────────────────────────────────────────────────────────────


class _Past:
    """A conversation as clients have seen it, but for some items: what broke off in turns that were continued."""

    def __init__(self, snapshot: Snapshot, *, without: frozenset[ItemId] = frozenset()) -> None:
        self._snapshot = snapshot
        self.without = without

    def held_at(self, version: Version) -> Iterator[tuple[Seen, bool]]:
        """The history at a version, each message with whether it broke off, in the end or before it was continued. The
        last turn was not continued by then."""
        snapshot, upto = self._snapshot, None
        if version < snapshot.version:
            upto = snapshot.marks[version - 1].end if version else 0
        last = snapshot.marks[version - 1].start if version else 0
        items = chain(self._seen(0, last), _Past(snapshot)._seen(last, upto))
        return merged(((seen, _broke_off(each)) for seen, each in items), joined=or_)

    def later(self, since: Version, running: Sequence[Item] = ()) -> _Later:
        """What was said since a version, also to the turn that is open."""
        back = [self.shown(chain.from_iterable(links)) for links in self.turns_back(since)]
        said = merged(
            (seen, _Said(None, item_id(each))) for each in running if (seen := held(each))
        )
        return [*chain.from_iterable(map(merged, reversed(back))), *said]

    def has_answered(self, version: Version, told: Seen) -> bool:
        """Whether the turn that made a version has said this, all in all: what it was told last is answered with it as
        well, though it has said nothing since."""
        if told[0] != "assistant":
            return False
        links = next(self.turns_back(upto=version))
        return any(_is_part_of(told, each) for each in self.answers_of(links))

    def turns_back(self, since: int = 0, *, upto: Version | None = None) -> Iterator[list[_Later]]:
        """What was said in each turn since a version, and in each of its continuations, the last turn first, also what
        broke off. A turn that was continued is answered by its last continuation."""
        links: list[_Later] = []
        answered_by: TurnId | None = None
        for mark in reversed(self._snapshot.marks.since(since)):
            if upto is not None and mark.version > upto:
                continue
            answered_by = answered_by or mark.turn_id
            items = seen_by_people(self._snapshot, since=mark.start, upto=mark.end)
            said = ((held(each), _Said(answered_by, item_id(each))) for each in items)
            links.insert(0, [(seen, where) for seen, where in said if seen is not None])
            if mark.continues is None or mark.version == since + 1:
                yield links
                links, answered_by = [], None

    def answers_of(self, links: Sequence[_Later]) -> Iterator[Seen]:
        """What a turn and its continuations may be heard to answer: a retry is answered with all of them up to its own, a
        person who has a turn continued, and a message to an open one, with what comes from there on. What broke off
        before is told by those who read along, and what breaks off last by everybody."""
        for first, last in combinations(range(len(links) + 1), 2):
            before, own = [*chain.from_iterable(links[first : last - 1])], links[last - 1]
            whole = [*_shown(before, self._snapshot.broken_off), *own]
            for said in (_shown(whole, self._snapshot.broken_off), whole, [*before, *own]):
                yield from (seen for seen, _ in merged(_answers(said)))

    def shown(self, said: Iterable[tuple[Seen, _Said]]) -> Iterator[tuple[Seen, _Said]]:
        return _shown(said, self.without)

    def _seen(self, since: int, upto: int | None) -> Iterator[tuple[Seen, StoredItem]]:
        for each in seen_by_people(self._snapshot, since=since, upto=upto):
            if (seen := held(each)) and item_id(each) not in self.without:
                yield seen, each


def _shown(
    said: Iterable[tuple[Seen, _Said]], without: frozenset[ItemId]
) -> Iterator[tuple[Seen, _Said]]:
    return (each for each in said if each[1].item not in without)


def _answers(said: Iterable[tuple[Seen, _Said]]) -> Iterator[tuple[Seen, _Said]]:
    return (each for each in said if each[0][0] == "assistant")


def _broke_off(item: StoredItem) -> bool:
    return isinstance(item, AssistantMessage) and item.state == "interrupted"


def held(item: Item | Unreadable) -> Seen | None:
    """An item as a client has seen it, or None if clients do not see such items."""
    if isinstance(item, Unreadable) or item.path:
        return None
    match item:
        case UserMessage():
            return "user", text_of(item.content), media(item.content)
        case SystemMessage():
            return "system", text_of(item.content), media(item.content)
        case AssistantMessage() if item.state != "set_aside":
            return "assistant", text_of(item.content), ()
        case ToolCall() if item.waits_for == "client":
            return "assistant", "", (item.call_id,)
        case ToolResult() if item.from_client and item.outcome != "not_answered":
            return "tool", "", (item.call_id,)
        case _:
            return None


def media(parts: Parts) -> tuple[str, ...]:
    """What identifies the parts of a message that are not text."""
    return tuple(_mark(part.source) for part in parts if not isinstance(part, Text | Refusal))


def _mark(source: Source) -> str:
    match source:
        case Blob():
            return source.digest
        case Inline():
            return f"sha256:{sha256(source.data).hexdigest()}"
        case Link():
            return source.url
        case _:  # pragma: no cover
            assert_never(source)


T = TypeVar("T")


def _last(_: T, last: T) -> T:
    return last


def merged(
    said: Iterable[tuple[Seen, T]], *, joined: Callable[[T, T], T] = _last
) -> Iterator[tuple[Seen, T]]:
    """Neighbouring answers as one, with what belongs to the last of them, or to all as it is `joined`. What says nothing is
    left out."""
    before: tuple[Seen, T] | None = None
    for (role, text, marks), of_it in said:
        if before is not None and role == before[0][0] == "assistant":
            (_, so_far, earlier), of_both = before
            before = (("assistant", so_far + text, earlier + marks), joined(of_both, of_it))
            continue
        if before is not None:
            yield from _stripped(before)
        before = ((role, text, marks), of_it)
    if before is not None:
        yield from _stripped(before)


def _stripped(said: tuple[Seen, T]) -> Iterator[tuple[Seen, T]]:
    """Trimmed, and an answer without any white space: clients put it between its steps as they like."""
    (role, text, marks), of_it = said
    text = "".join(text.split()) if role == "assistant" else text.strip()
    if text or marks:
        yield (role, text, marks), of_it
