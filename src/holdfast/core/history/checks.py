"""Checks of a history: the promises that stored turns can show.

Tests run them after every step, stores before a commit, and `holdfast db verify` over a whole store. A check
returns violations with stable codes; it repairs nothing.

For a turn:
  duplicate_id      an id appears twice
  call_unanswered   a call has no result, and does not wait for the client
  answered_twice    a call has more than one result
  result_orphaned   a result has no call before it
  result_misplaced  a result does not lie in its call's branch
  branch_orphaned   a sub-agent's item lies in a branch that no call opened
  wait_misplaced    a call waits in a branch, or in a turn that broke off
  set_aside_used    a call that was set aside has a result
  broken_unmarked   a text is marked interrupted in a turn without an interruption note
  carried_open      a call that the turn before left waiting has still no result
For a history:
  not_dense         versions or positions have a gap or overlap
  link_broken       the hash chain does not match the bytes
  summary_astray    a summary covers part of a turn, or positions that were not there yet
  unreadable        bytes that cannot be decoded
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.core.codec import Unreadable, Value, encode
from holdfast.core.history import chain
from holdfast.core.history.conversation import TurnMark, waiting_calls
from holdfast.core.items import (
    AssistantMessage,
    Interruption,
    Item,
    Reasoning,
    StoredItem,
    Summary,
    ToolCall,
    ToolResult,
    item_decoder,
)
from holdfast.core.turns.events import Change
from holdfast.ids import CallId, ItemId


class Violation(Value):
    """A broken promise. `where` names the turn or item, `what` says what is wrong with it."""

    code: str
    where: str
    what: str


class StoredTurn(Value):
    """A committed turn as a store holds it: its mark, the bytes of its items, its changes."""

    mark: TurnMark
    encoded: tuple[bytes, ...]
    changes: tuple[Change, ...] = ()


def check_turn(
    items: Iterable[StoredItem], *, carried: Iterable[ToolCall] = (), where: str = ""
) -> tuple[Violation, ...]:
    """Whether a kept turn is well formed. `carried` are the calls that the turn before left waiting."""
    readable = tuple(each for each in items if not isinstance(each, Unreadable))
    carried = tuple(carried)
    return (
        *_identity(readable),
        *_answers(readable, carried, where),
        *_branches(readable, carried),
        *_interruption(readable),
    )


def check_history(
    turns: Iterable[StoredTurn],
    *,
    previous: bytes = chain.GENESIS,
    version: int = 0,
    position: int = 0,
    carried: tuple[ToolCall, ...] = (),
) -> Iterator[Violation]:
    """Whether committed turns, in order, are whole and follow each other. Reads each turn once.

    For a fork, the keywords say where its own history begins: the link, version, position and waiting calls
    before it. Turns before that are not checked.
    """
    begins, starts = position, {position}
    for turn in turns:
        mark, where = turn.mark, str(turn.mark.turn_id)
        yield from _density(turn, version=version, position=position)
        items = tuple(map(item_decoder.lenient, turn.encoded))
        for each in items:
            if isinstance(each, Unreadable):
                yield Violation(code="unreadable", where=where, what=each.why)
        yield from check_turn(items, carried=carried, where=where)
        yield from _summaries(items, starts, begins)
        if _link_of(turn, previous) != mark.link:
            yield Violation(
                code="link_broken", where=where, what="its bytes are not what was committed"
            )
        version, position, previous = int(mark.version), mark.end, mark.link
        carried = waiting_calls(items)
        starts.add(position)


def _link_of(turn: StoredTurn, previous: bytes) -> bytes:
    mark = turn.mark
    header = chain.LinkHeader(
        turn_id=mark.turn_id,
        version=mark.version,
        ended_by=mark.ended_by,
        agent=mark.agent,
        continues=mark.continues,
    )
    return chain.link(previous, header, items=turn.encoded, changes=map(encode, turn.changes))


def _density(turn: StoredTurn, *, version: int, position: int) -> Iterator[Violation]:
    mark = turn.mark
    expected = (version + 1, position, position + len(turn.encoded))
    found = (int(mark.version), mark.start, mark.end)
    if found != expected:
        what = f"version, start and end are {found}, but {expected} would follow"
        yield Violation(code="not_dense", where=str(mark.turn_id), what=what)


def _summaries(items: Iterable[StoredItem], starts: set[int], begins: int) -> Iterator[Violation]:
    for each in items:
        if not isinstance(each, Summary) or each.path or each.covers_to < begins:
            continue
        if each.covers_to not in starts:
            what = f"it covers to position {each.covers_to}, where no turn begins"
            yield Violation(code="summary_astray", where=str(each.id), what=what)


def _identity(items: tuple[Item, ...]) -> Iterator[Violation]:
    seen: set[ItemId] = set()
    for each in items:
        if each.id in seen:
            yield Violation(code="duplicate_id", where=str(each.id), what="it appears twice")
        seen.add(each.id)


def _answers(
    items: tuple[Item, ...], carried: tuple[ToolCall, ...], where: str
) -> Iterator[Violation]:
    open_calls: dict[CallId, ToolCall] = {each.id: each for each in carried}
    answered: set[CallId] = set()
    set_aside: set[CallId] = set()
    for each in items:
        if isinstance(each, ToolCall):
            if each.state == "set_aside":
                set_aside.add(each.id)
            else:
                open_calls[each.id] = each
        elif isinstance(each, ToolResult):
            call = open_calls.pop(each.call, None)
            if call is None:
                yield _misfit(each, answered, set_aside)
            elif call.path != each.path:
                yield Violation(
                    code="result_misplaced", where=str(each.id), what=f"its call is {call.id}"
                )
            answered.add(each.call)
    still_waiting = {each.id for each in carried} & open_calls.keys()
    for call in open_calls.values():
        if call.id in still_waiting:
            yield Violation(
                code="carried_open", where=where, what=f"{call.id} of the turn before has no result"
            )
        elif call.waits_for is None:
            yield Violation(code="call_unanswered", where=str(call.id), what="it has no result")


def _misfit(result: ToolResult, answered: set[CallId], set_aside: set[CallId]) -> Violation:
    where = str(result.id)
    if result.call in set_aside:
        return Violation(code="set_aside_used", where=where, what=f"{result.call} was set aside")
    if result.call in answered:
        return Violation(code="answered_twice", where=where, what=f"{result.call} had a result")
    return Violation(code="result_orphaned", where=where, what=f"{result.call} was not made before")


def _branches(items: tuple[Item, ...], carried: tuple[ToolCall, ...]) -> Iterator[Violation]:
    """Whether the path of each item names calls that were made, each in the branch of the call before it.

    A carried call may open a branch too: it was made in the turn before, and approved in this one.
    """
    calls: dict[CallId, ToolCall] = {each.id: each for each in carried}
    for each in items:
        for depth, step in enumerate(each.path):
            call = calls.get(step)
            if call is None or call.path != each.path[:depth]:
                what = f"no call {step} opened its branch"
                yield Violation(code="branch_orphaned", where=str(each.id), what=what)
                break
        if isinstance(each, ToolCall):
            calls[each.id] = each


def _interruption(items: tuple[Item, ...]) -> Iterator[Violation]:
    interrupted = any(isinstance(each, Interruption) for each in items)
    answered = {each.call for each in items if isinstance(each, ToolResult)}
    for each in items:
        broke_off = isinstance(each, AssistantMessage | Reasoning) and each.state == "interrupted"
        if broke_off and not interrupted:
            what = "it is marked interrupted, but the turn is not"
            yield Violation(code="broken_unmarked", where=str(each.id), what=what)
        waits = isinstance(each, ToolCall) and each.waits_for and each.id not in answered
        if waits and (interrupted or each.path):
            what = "it waits where no turn can answer it"
            yield Violation(code="wait_misplaced", where=str(each.id), what=what)
