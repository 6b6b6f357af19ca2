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

6. How a client groups an answer means nothing: between two messages of a user, its texts are one text, its calls are
   compared by their ids, and results may come in any order (`history/seen_messages.py`). Calls may be left out if their
   results are sent. A request that answers a call which waits may begin with any message of the history: its client
   has seen the history up to that call.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, combinations, pairwise
from operator import or_
from typing import NamedTuple, TypeAlias

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot, seen_by_people
from holdfast.core.history.seen_messages import (
    Seen,
    SentMessages,
    Telling,
    ToldAnswer,
    is_given,
    merged,
    seen_of,
    without_results,
)
from holdfast.core.items import AssistantMessage, Item, StoredItem, ToolResult, item_id
from holdfast.ids import ItemId, TurnId, Version


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
    """The messages of a request that are known already; `diverged` if its history differs from ours."""

    dropped: int
    """How many first messages of the request are known, but for results that answer calls which wait."""
    given: frozenset[int] = frozenset()
    """The positions of the results that are known, also after the first messages."""
    answers: frozenset[int] = frozenset()
    """The positions of the results that answer calls which wait, also among the first messages."""
    diverged: bool = False

    def knows(self, position: int) -> bool:
        """Whether the message at this position is known."""
        return position in self.given or (position < self.dropped and position not in self.answers)


class Overtaken(Value):
    """A later request has brought all messages of this one, together with a newer one: they are answered there."""

    turn_id: TurnId | None
    """The turn that answers; None: the open turn."""


def find_resend(
    snapshot: Snapshot, telling: Telling, *, since: Arrival, running: Sequence[Item]
) -> Resend | Overtaken:
    """Which of a request's messages are a resend.

    `since` is the session as it stood when the request arrived, `running` the messages of the open turn, if the request
    is to be steered into it.
    """
    past = _Past(snapshot, without=snapshot.broken_off)
    found = _find_in(past, telling, since, running)
    if not past.without or isinstance(found, Overtaken):
        return found
    if not found.diverged and found.dropped >= telling.answers_end:
        return found
    # The request has an answer that is not ours, unless interrupted texts are part of it.
    other = _find_in(_Past(snapshot), telling, since, running)
    if isinstance(other, Overtaken) or not other.diverged or other.dropped > found.dropped:
        return other
    return found


def _find_in(
    past: _Past, telling: Telling, since: Arrival, running: Sequence[Item]
) -> Resend | Overtaken:
    later = past.later(since.version, running)
    found = _whole_history(past.held_at(since.version), telling, past.waiting)
    if found is None or found.asked_again:
        recent = _recent_history(past, telling)
        if recent is not None:
            found, later = recent, past.later(past.version, running)
    if found is None:
        return _anchored(past, telling, later, since)
    whole, rest = found.end, list(merged(telling.said[found.at :]))
    at = 0
    if found.at and rest and past.has_answered(since.version, rest[0][0]):
        at, whole = 1, rest[0][1]
    again, last = _known_again(rest, at, later, all_of_it=telling.ends_with_result)
    known = rest[again - 1][1] if again else whole
    overtaken = _overtaking(rest, again, later[last:], since)
    if again > at and not overtaken and telling.answers_end > whole:
        # The request has another answer than the one given meanwhile, or had that one when it arrived: then its client
        # has seen all messages of that turn, in any order.
        other = _anchored(past, telling, later, since)
        if isinstance(other, Overtaken) or telling.answers_end > known or other.dropped > known:
            return other
    return overtaken or Resend(
        dropped=known,
        given=found.given,
        answers=found.answers,
        diverged=found.asked_again and known > 0,
    )


def still_new(
    head: Snapshot, items: Sequence[Item], *, since: Arrival
) -> tuple[Item, ...] | Overtaken:
    """The items that are still new on top of `head`, of items that were new on top of the version `since`."""
    sent = list(merged((seen, n + 1) for n, each in enumerate(items) if (seen := seen_of(each))))
    later = _Past(head, without=head.broken_off).later(since.version, with_results=True)
    at, last = _known_again(sent, 0, later)
    overtaken = _overtaking(sent, at, later[last:], since)
    return overtaken or tuple(items[sent[at - 1][1] if at else 0 :])


def held_results(
    snapshot: Snapshot, wanted: Container[str], running: Iterable[Item] = ()
) -> Iterator[ToolResult]:
    """The results that clients have given to calls with the `wanted` ids, newest first."""
    for each in chain(reversed(tuple(running)), reversed(snapshot.items)):
        if isinstance(each, ToolResult) and each.call_id in wanted and is_given(each):
            yield each


def repeats_steered(snapshot: Snapshot, sent: Sequence[Seen]) -> bool:
    """Whether all messages of a request are known, and the last one was steered into the last turn. Answers may be left
    out."""
    return any(
        _repeats_steered(_Past(snapshot, without=without), snapshot.version, sent)
        for without in {snapshot.broken_off, frozenset[ItemId]()}
    )


def _repeats_steered(past: _Past, version: Version, sent: Sequence[Seen]) -> bool:
    turn = without_results(past.shown(chain.from_iterable(next(past.turns_back()))))
    steers = [seen for seen, _ in turn if seen[0] == "user"][1:]
    if not sent or sent[-1] not in steers:
        return False
    history = [seen for seen, _ in without_results(past.held_at(version))]
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


class _Match(NamedTuple):
    """The part of a request that is the history."""

    at: int
    """How many messages of `Telling.said`."""
    end: int
    """How many messages of the request end with them."""
    given: frozenset[int]
    """The positions of the results that the history has."""
    answers: frozenset[int]
    """The positions of the results for calls that wait."""
    asked_again: bool
    """Whether a message is asked again, now or in the history, which only a request without any answer can mean."""


def _whole_history(
    history: Iterable[tuple[Seen, bool]], telling: Telling, waiting: Container[str]
) -> _Match | None:
    """The part of a request that is the whole history, or None if the request does not contain it. `waiting` are the ids
    of calls that wait for the client.

    Stops at the first difference, so a request with only new messages costs one comparison.
    """
    said, results = telling.said, _ResultsSent(telling)
    answers = max((n + 1 for n, (seen, _) in enumerate(said) if seen[0] == "assistant"), default=0)
    at, left_out, asked_again = 0, False, False
    answer: ToldAnswer | None = None
    for ours, broke_off in history:
        if ours[0] == "tool":
            if not results.have(ours[2][0]):
                return None
        elif ours[0] == "assistant":
            if answer is None and at < len(said) and said[at][0][0] == "assistant":
                answer = ToldAnswer(said, at)
            if answer is not None and answer.goes_on_with(ours, answered=results.call_ids):
                continue
            if answer is not None and broke_off and answer.ends_within(ours):
                continue
            may_miss = broke_off or (at if answer is None else answer.end) >= answers
            if not may_miss or (answer is not None and not answer.is_known):
                return None
            left_out = True
        else:
            if answer is not None:
                if not answer.is_known:
                    return None
                at, answer = answer.end, None
            if at < len(said) and ours == said[at][0]:
                at += 1
            elif at and not answers and ours == said[at - 1][0]:
                asked_again = True
            else:
                return None
    known_to = at if answer is None else answer.known_to()
    if known_to is None:
        return None
    is_all = known_to == len(said) and not results.left
    if is_all and not answers:  # the last message is asked again
        known_to, asked_again = max(0, known_to - 1), True
    elif is_all and left_out:
        # No message follows the answer that was left out: the request says its last message again.
        return None
    end = said[known_to - 1][1] if known_to else 0
    stray = [(call_id, each) for call_id, each in results.left if each < end]
    if any(not (call_id in waiting or results.has_had(call_id)) for call_id, _ in stray):
        return None  # a result for a call that has no result of its client, and waits for none
    twice = (each for call_id, each in stray if call_id not in waiting)
    given = frozenset((*results.known, *twice))
    opened = frozenset(each for call_id, each in results.left if call_id in waiting)
    return _Match(known_to, end, given, opened, asked_again)


class _ResultsSent:
    """The results of a request, of which the history has some. Calls may share an id: then their results are in order."""

    def __init__(self, telling: Telling) -> None:
        self.call_ids = frozenset(call_id for call_id, _ in telling.results)
        self._positions = defaultdict[str, deque[int]](deque)
        for call_id, position in telling.results:
            self._positions[call_id].append(position)
        self.known: list[int] = []
        """The positions of the results that the history has."""
        self._had: set[str] = set()

    def have(self, call_id: str) -> bool:
        """Take the next result for this call for known. False if there is none."""
        if not self._positions[call_id]:
            return False
        self.known.append(self._positions[call_id].popleft())
        self._had.add(call_id)
        return True

    def has_had(self, call_id: str) -> bool:
        """Whether a result for this call is known: another one repeats it."""
        return call_id in self._had

    @property
    def left(self) -> list[tuple[str, int]]:
        """The results that are not known, by call id and position."""
        return [(call_id, each) for call_id, left in self._positions.items() for each in left]


def _recent_history(past: _Past, telling: Telling) -> _Match | None:
    """The part of a request that is the end of the history, for a request that answers a call that waits: its client has
    seen the history up to that call, and sends the messages since some message of it, and no other answers. None if the
    request does not contain such an end."""
    if not telling.said or not any(call_id in past.waiting for call_id, _ in telling.results):
        return None
    (begins, *_), *_ = telling.said
    asked = sum(role != "assistant" for (role, *_), _ in telling.said)
    answers_end = max((end for (role, *_), end in telling.said if role == "assistant"), default=0)
    recent = deque[tuple[Seen, bool]]()
    for turn in past.held_back():
        for each in reversed(turn):
            recent.appendleft(each)
            asked -= each[0][0] in ("user", "system")
            if asked < 0:
                return None
            if each[0] == begins or each[0][0] == begins[0] == "assistant":
                found = _whole_history(recent, telling, past.waiting)
                if found is not None and found.end >= answers_end:
                    return found
    return None


def _known_again(
    sent: SentMessages, at: int, later: _Later, *, all_of_it: bool = False
) -> tuple[int, int]:
    """How many messages of a request are known if the first `at` are, and how many of `later` they reach. The last
    message is not known, unless `all_of_it`: the request goes on with results."""
    last = 0
    for n, (ours, _) in enumerate(later):
        if at >= len(sent) - (not all_of_it):
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


def _anchored(past: _Past, telling: Telling, later: _Later, since: Arrival) -> Resend | Overtaken:
    """What is known of a request whose history differs from ours: its messages up to the anchor, and after it the
    messages that follow the anchor in our history."""
    sent, answers_end = list(merged(telling.said)), telling.answers_end
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
    known, last = _known_again(sent, at, after, all_of_it=telling.ends_with_result)
    overtaken = _overtaking(sent, known, [each for each in after[last:] if each in later], since)
    dropped = max(answers_end, sent[known - 1][1] if known else 0)
    return overtaken or Resend(dropped=dropped, diverged=diverged)


def _begun_alike(
    past: _Past, sent: SentMessages, later: _Later, since: Version
) -> tuple[int, _Later, bool]:
    """For a request without any answer: how many first messages it shares with the history, if they are an anchor; the
    messages after them in the history, or `later` without an anchor; and whether it shares any, so has diverged."""
    at = alike = 0
    questions = (seen for seen, _ in past.held_at(since) if seen[0] in ("user", "system"))
    for ours in questions:
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
    for turns in past.exchanges_back():
        turn = list(without_results(past.shown(chain.from_iterable(chain.from_iterable(turns)))))
        said = [seen for seen, _ in turn]
        given = (*said, *chain.from_iterable(map(past.answers_of, turns)))
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
        self.version = snapshot.version
        self.waiting = frozenset(
            each.call_id for each in snapshot.waiting if each.waits_for == "client"
        )
        """The ids of the calls that wait for the client."""

    def held_at(self, version: Version) -> Iterator[tuple[Seen, bool]]:
        """The history at a version, each message with whether it was interrupted. The last turn is included with its
        interrupted texts: it was not continued by then."""
        snapshot, upto = self._snapshot, None
        if version < snapshot.version:
            upto = snapshot.marks[version - 1].end if version else 0
        last = snapshot.marks[version - 1].start if version else 0
        items = chain(self._seen(0, last), _Past(snapshot)._seen(last, upto))
        return merged(((seen, _broke_off(each)) for seen, each in items), joined=or_)

    def held_back(self) -> Iterator[list[tuple[Seen, bool]]]:
        """The history as `held_at` tells it, turn by turn, the last turn first."""
        for mark in reversed(self._snapshot.marks):
            past = _Past(self._snapshot) if mark.version == self.version else self
            items = past._seen(mark.start, mark.end)
            yield list(merged(((seen, _broke_off(each)) for seen, each in items), joined=or_))

    def later(
        self, since: Version, running: Sequence[Item] = (), *, with_results: bool = False
    ) -> _Later:
        """The messages since a version, those of the open turn included."""
        back = [self.shown(chain.from_iterable(links)) for links in self.turns_back(since)]
        said = ((seen, _Said(None, item_id(each))) for each in running if (seen := seen_of(each)))
        turns = map(merged, (*reversed(back), said))
        later = chain.from_iterable(turns)
        return list(later if with_results else without_results(later))

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

    def exchanges_back(self) -> Iterator[list[list[_Later]]]:
        """The turns of each message of a user, with the turns that only have results after it; the last turn first, and
        each as `turns_back` gives it."""
        turns: list[list[_Later]] = []
        for links in self.turns_back():
            turns.insert(0, links)
            if any(seen[0] == "user" for seen, _ in chain.from_iterable(links)):
                yield turns
                turns = []
        if turns:
            yield turns

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
