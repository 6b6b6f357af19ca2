"""Which part of a request is a resend: messages that are in the conversation already.

A client sends the conversation as it has seen it. So a request is compared with what its client could have seen when
it sent the request, and compared again whenever the conversation has moved:

1. The history as it stood when the request arrived: the client could have seen all of it. A resend contains it from the
   first message to the last. An answer that broke off may be sent in part or left out. So may every answer after the
   last one that is sent: the client sent its message before it had that answer. The interrupted text of a turn that was
   continued since may be sent as well: the answer to a retry does not contain it, but other clients have seen it.
2. The turns since then, and the open turn: the client could have seen a part of them. Messages of theirs that the
   client sends, in their order, are known; the others came from other clients, and are not missed. Discarded turns do
   not count, so their messages are new again.
3. The last message of a request is never taken for a message of 2: the client sent it to be answered. But if a later
   request has overtaken this one, and has brought that message together with a newer one, then it is answered there
   (`Overtaken`). Messages from before this request arrived have not overtaken it.
4. A request without any answer whose messages are all in the history asks its last message again. Each time, only that
   message is stored, so it may be in the history any number of times in a row.
5. A request that differs from the history is anchored by the last answer that it contains; without any answer, by two
   or more first messages that it shares with the history. Messages after the anchor are new, except those that follow
   the anchor in the history too. One shared first message is no anchor: the client may have missed the rest, or may be
   beginning the same conversation again. All its messages are stored, and the request has diverged.

White space is nothing, and neighbouring answers are one: a chat client has seen one answer, however many steps it took.
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
"""A message as a client sees it: role, trimmed text, and the ids of its calls or digests of its other parts."""

SentMessages: TypeAlias = list[tuple[Seen, int]]
"""The messages of a request, each with how many of the request's messages end with it: neighbours may be merged."""


class Arrival(Value):
    """The version that a session had when a request arrived, and the time of that; 0 if the request has not waited."""

    version: Version
    at_ms: int = 0


def arrival(
    snapshot: Snapshot, *, at_ms: int, known: Version | None = None, least: int = 0
) -> Arrival:
    """The version that a session had when a request arrived at `at_ms`: at most `known`, and at least `least`, which
    this server had cached by then, even if the clocks disagree.

    A turn's last item is older than its end, so a turn with an item from after the arrival has ended after it.
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
    """How many of a request's messages are known already; `diverged` if its history differs from ours."""

    dropped: int
    diverged: bool = False


class Overtaken(Value):
    """A later request has brought all messages of this one, together with a newer one: they are answered there."""

    turn_id: TurnId | None
    """The turn that answers; None: the open turn."""


def find_resend(
    snapshot: Snapshot,
    sent: SentMessages,
    *,
    answers_end: int,
    since: Arrival,
    running: Sequence[Item],
) -> Resend | Overtaken:
    """How many of a request's messages are a resend.

    `answers_end` is how many of its messages end with its last answer. `since` is the session as it stood when the
    request arrived, `running` the messages of the open turn, if the request is to be steered into it.
    """
    past = _Past(snapshot, without=snapshot.broken_off)
    found = _find_in(past, sent, answers_end, since, running)
    if not past.without or isinstance(found, Overtaken):
        return found
    if not found.diverged and found.dropped >= answers_end:
        return found
    # The request has an answer that is not ours, unless interrupted texts are part of it.
    other = _find_in(_Past(snapshot), sent, answers_end, since, running)
    if isinstance(other, Overtaken) or not other.diverged or other.dropped > found.dropped:
        return other
    return found


def _find_in(
    past: _Past, sent: SentMessages, answers_end: int, since: Arrival, running: Sequence[Item]
) -> Resend | Overtaken:
    later = past.later(since.version, running)
    found = _whole_history(past.held_at(since.version), sent)
    if found is None:
        return _anchored(past, sent, answers_end, later, since)
    whole, asked_again = found
    if 0 < whole < len(sent) and past.has_answered(since.version, sent[whole][0]):
        whole += 1
    at, last = _known_again(sent, whole, later)
    known = sent[at - 1][1] if at else 0
    overtaken = _overtaking(sent, at, later[last:], since)
    if at > whole and not overtaken and answers_end > (sent[whole - 1][1] if whole else 0):
        # The request has another answer than the one given meanwhile, or had that one when it arrived: then its client
        # has seen all messages of that turn, in any order.
        other = _anchored(past, sent, answers_end, later, since)
        if isinstance(other, Overtaken) or answers_end > known or other.dropped > known:
            return other
    return overtaken or Resend(dropped=known, diverged=asked_again and at > 0)


def still_new(
    head: Snapshot, items: Sequence[Item], *, since: Arrival
) -> tuple[Item, ...] | Overtaken:
    """The items that are still new on top of `head`, of items that were new on top of the version `since`."""
    sent = list(merged((seen, n + 1) for n, each in enumerate(items) if (seen := seen_of(each))))
    later = _Past(head, without=head.broken_off).later(since.version)
    at, last = _known_again(sent, 0, later)
    overtaken = _overtaking(sent, at, later[last:], since)
    return overtaken or tuple(items[sent[at - 1][1] if at else 0 :])


def repeats_steered(snapshot: Snapshot, sent: Sequence[Seen]) -> bool:
    """Whether all messages of a request are known, and the last one was steered into the last turn. Answers may be left
    out."""
    return any(
        _repeats_steered(_Past(snapshot, without=without), snapshot.version, sent)
        for without in {snapshot.broken_off, frozenset[ItemId]()}
    )


def _repeats_steered(past: _Past, version: Version, sent: Sequence[Seen]) -> bool:
    turn = merged(past.shown(chain.from_iterable(next(past.turns_back()))))
    steers = [seen for seen, _ in turn if seen[0] == "user"][1:]
    if not sent or sent[-1] not in steers:
        return False
    history = [seen for seen, _ in past.held_at(version)]
    ends = [n for n, (role, *_) in enumerate(history, 1) if role == "user"][-len(steers) :]
    return any(history[n - 1] == sent[-1] and _is_end_of(sent, history[:n]) for n in ends)


def _is_end_of(sent: Sequence[Seen], history: Sequence[Seen]) -> bool:
    left = len(sent)
    for ours in reversed(history):
        if left and (ours == sent[left - 1] or _is_answered_by(sent[left - 1], ours)):
            left -= 1
        elif left and ours[0] != "assistant":
            return False
    return not left


# ── comparing ────────────────────────────────────────────────────────────────────────────────


class _Said(NamedTuple):
    """The turn and the item of a message."""

    turn_id: TurnId | None
    """None: the open turn."""
    item: ItemId | None


_Later: TypeAlias = list[tuple[Seen, _Said]]
"""The messages since a request arrived."""


def _whole_history(
    history: Iterable[tuple[Seen, bool]], sent: SentMessages
) -> tuple[int, bool] | None:
    """How many messages of a request are the whole history, or None if it does not begin with it; and whether a message
    is asked again, now or in the history, which only a request without any answer can mean.

    Stops at the first difference, so a request with only new messages costs one comparison.
    """
    answers = max((n + 1 for n, (seen, _) in enumerate(sent) if seen[0] == "assistant"), default=0)
    at, left_out, asked_again = 0, False, False
    for ours, broke_off in history:
        theirs = sent[at][0] if at < len(sent) else None
        if theirs is not None and (ours == theirs or (broke_off and _is_part_of(theirs, ours))):
            at += 1
        elif (
            ours[0] == "assistant"
            and (broke_off or at >= answers)
            and (theirs is None or theirs[0] != "assistant")
        ):
            left_out = True
        elif at and not answers and ours == sent[at - 1][0]:
            asked_again = True
        else:
            return None
    if at < len(sent):
        return at, asked_again
    if not answers:
        return max(0, at - 1), True  # the last of them is asked again
    # No message follows the answer that was left out: the request says its last message again.
    return None if left_out else (at, False)


def _known_again(sent: SentMessages, at: int, later: _Later) -> tuple[int, int]:
    """How many messages of a request are known if the first `at` are, and how many of `later` they reach. The last
    message is never known."""
    last = 0
    for n, (ours, _) in enumerate(later):
        if at >= len(sent) - 1:
            break
        theirs = sent[at][0]
        if ours == theirs or _is_answered_by(theirs, ours):
            at, last = at + 1, n + 1
    return at, last


def _overtaking(sent: SentMessages, at: int, later: _Later, since: Arrival) -> Overtaken | None:
    """The turn that has brought the last message of a request together with a newer one, if there is such a turn."""
    if at != len(sent) - 1:
        return None
    for (ours, where), (newer, its_where) in pairwise(later):
        both_asked = newer[0] == ours[0] == "user" and where.turn_id == its_where.turn_id
        if both_asked and ours == sent[at][0] != newer:  # the same message twice is not a newer one
            if where.item is not None and where.item.minted_at_ms >= since.at_ms:
                return Overtaken(turn_id=where.turn_id)
    return None


def _anchored(
    past: _Past, sent: SentMessages, answers_end: int, later: _Later, since: Arrival
) -> Resend | Overtaken:
    """What is known of a request whose history differs from ours: its messages up to the anchor, and after it the
    messages that follow the anchor in our history."""
    at = sum(end <= answers_end for _, end in sent)
    after, diverged = later, answers_end > 0
    if not at:
        at, after, diverged = _begun_alike(past, sent, later, since.version)
    elif at < len(sent) - 1:
        # Only then can a message after the anchor be known: the last one never is.
        asked = sent[at - 2][0] if at > 1 else None
        followed = _following(past, sent[at - 1][0], asked)
        if followed is not None:
            after = [*followed, *(each for each in later if each[1].turn_id is None)]
    known, last = _known_again(sent, at, after)
    overtaken = _overtaking(sent, known, [each for each in after[last:] if each in later], since)
    dropped = max(answers_end, sent[known - 1][1] if known else 0)
    return overtaken or Resend(dropped=dropped, diverged=diverged)


def _begun_alike(
    past: _Past, sent: SentMessages, later: _Later, since: Version
) -> tuple[int, _Later, bool]:
    """For a request without any answer: how many first messages it shares with the history, if they are an anchor; the
    messages after them in the history, or `later` without an anchor; and whether it shares any, so has diverged."""
    at = alike = 0
    questions = (seen for seen, _ in past.held_at(since) if seen[0] != "assistant")
    for (
        ours
    ) in questions:  # pragma: no branch — they differ somewhere, or it would be the whole history
        if at < len(sent) and ours == sent[at][0]:
            at += 1
        elif not at or ours != sent[at - 1][0]:  # a message asked again is there more than once
            break
        alike += 1
    asked = sum(seen[0] == "user" for seen, _ in sent[:at])
    if asked < 2:
        return 0, later, asked > 0
    history = past.later(Version(0))
    ends = [n for n, (seen, _) in enumerate(history, 1) if seen[0] != "assistant"]
    running = (each for each in later if each[1].turn_id is None)
    return min(at, len(sent) - 1), [*history[ends[alike - 1] :], *running], True


def _following(past: _Past, answer: Seen, asked: Seen | None) -> _Later | None:
    """The messages after an answer to `asked`; if there is no such answer, after the last answer with the same text.
    None if there is none.

    A turn may have taken messages of several requests, and all of them were answered with its whole answer. So messages
    that were steered into the turn after `asked` follow the answer as well.
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


def _is_answered_by(sent: Seen, answer: Seen) -> bool:
    return answer[0] == "assistant" and _is_part_of(sent, answer)


def _is_part_of(sent: Seen, whole: Seen) -> bool:
    (role, text, marks), (its_role, its_text, its_marks) = sent, whole
    return role == its_role and its_text.startswith(text) and its_marks[: len(marks)] == marks


# ── messages as clients see them ─────────────────────────────────────────────────────────────


class _Past:
    """A conversation as clients have seen it, `without` some items: interrupted texts of turns that were continued."""

    def __init__(self, snapshot: Snapshot, *, without: frozenset[ItemId] = frozenset()) -> None:
        self._snapshot = snapshot
        self.without = without

    def held_at(self, version: Version) -> Iterator[tuple[Seen, bool]]:
        """The history at a version, each message with whether it was interrupted. The last turn is included with its
        interrupted texts: it was not continued by then."""
        snapshot, upto = self._snapshot, None
        if version < snapshot.version:
            upto = snapshot.marks[version - 1].end if version else 0
        last = snapshot.marks[version - 1].start if version else 0
        items = chain(self._seen(0, last), _Past(snapshot)._seen(last, upto))
        return merged(((seen, _broke_off(each)) for seen, each in items), joined=or_)

    def later(self, since: Version, running: Sequence[Item] = ()) -> _Later:
        """The messages since a version, those of the open turn included."""
        back = [self.shown(chain.from_iterable(links)) for links in self.turns_back(since)]
        said = merged(
            (seen, _Said(None, item_id(each))) for each in running if (seen := seen_of(each))
        )
        return [*chain.from_iterable(map(merged, reversed(back))), *said]

    def has_answered(self, version: Version, sent: Seen) -> bool:
        """Whether this is the whole answer of the turn that made a version. It answers the turn's last steered message
        too, although the turn may have said nothing after that message."""
        if sent[0] != "assistant":
            return False
        links = next(self.turns_back(upto=version))
        return any(_is_part_of(sent, each) for each in self.answers_of(links))

    def turns_back(self, since: int = 0, *, upto: Version | None = None) -> Iterator[list[_Later]]:
        """The messages of each turn since a version, with those of its continuations, the last turn first, interrupted
        texts included. A turn that was continued is answered by its last continuation."""
        links: list[_Later] = []
        answered_by: TurnId | None = None
        for mark in reversed(self._snapshot.marks.since(since)):
            if upto is not None and mark.version > upto:
                continue
            answered_by = answered_by or mark.turn_id
            items = seen_by_people(self._snapshot, since=mark.start, upto=mark.end)
            said = ((seen_of(each), _Said(answered_by, item_id(each))) for each in items)
            links.insert(0, [(seen, where) for seen, where in said if seen is not None])
            if mark.continues is None or mark.version == since + 1:
                yield links
                links, answered_by = [], None

    def answers_of(self, links: Sequence[_Later]) -> Iterator[Seen]:
        """The answers of a turn and its continuations that clients may have seen. A retry is answered with all of them
        up to its own; a person who continues a turn, and a steered message, with those from there on. A client that
        watched has seen earlier interrupted texts too, and every client has seen the last one."""
        for first, last in combinations(range(len(links) + 1), 2):
            before, own = [*chain.from_iterable(links[first : last - 1])], links[last - 1]
            whole = [*_shown(before, self._snapshot.broken_off), *own]
            for said in (_shown(whole, self._snapshot.broken_off), whole, [*before, *own]):
                yield from (seen for seen, _ in merged(_answers(said)))

    def shown(self, said: Iterable[tuple[Seen, _Said]]) -> Iterator[tuple[Seen, _Said]]:
        return _shown(said, self.without)

    def _seen(self, since: int, upto: int | None) -> Iterator[tuple[Seen, StoredItem]]:
        for each in seen_by_people(self._snapshot, since=since, upto=upto):
            if (seen := seen_of(each)) and item_id(each) not in self.without:
                yield seen, each


def _shown(
    said: Iterable[tuple[Seen, _Said]], without: frozenset[ItemId]
) -> Iterator[tuple[Seen, _Said]]:
    return (each for each in said if each[1].item not in without)


def _answers(said: Iterable[tuple[Seen, _Said]]) -> Iterator[tuple[Seen, _Said]]:
    return (each for each in said if each[0][0] == "assistant")


def _broke_off(item: StoredItem) -> bool:
    return isinstance(item, AssistantMessage) and item.state == "interrupted"


def seen_of(item: Item | Unreadable) -> Seen | None:
    """An item as a client sees it; None if clients do not see such items."""
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
    """A digest or address for each part of a message that is not text."""
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
    """The messages with neighbouring answers merged into one; its second value is the last one's, or as `joined` makes
    it. Empty messages are left out."""
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
    """The message, trimmed; an answer without any white space, since clients join its steps as they like."""
    (role, text, marks), of_it = said
    text = "".join(text.split()) if role == "assistant" else text.strip()
    if text or marks:
        yield (role, text, marks), of_it
