"""Moves a queued request from the version that it was made for to its session's present head.

The client's messages stay as they are. What was decided about them on top of the older version is decided again:

1. Calls that wait at the head are answered by this turn: a message closes them, as it would have closed the calls that
   waited before.
2. Results stay results for the same calls. If those calls do not wait any more, another request has answered them, and
   this one is stale.
3. Messages that a turn has brought since the request arrived are dropped, if something new follows them
   (`history/resends.py`). If a later request has brought all of them, it has overtaken this one. A dropped call is not
   closed again; but a call that this client has answered is stored together with its result.
4. A request that named the session's agent of that time gets the agent that the session has now.
5. The session's own limits count as they are now.
6. A request from before its session was moved to the agents of another source is stale: it was checked against the
   former agents.
"""

from __future__ import annotations

import msgspec

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import unanswered
from holdfast.core.history.resends import Arrival, Overtaken, still_new
from holdfast.core.identity import portable_key
from holdfast.core.items import Items, ToolCall, ToolResult, UserMessage
from holdfast.core.turns.events import TurnRequest
from holdfast.ids import Minter


class StaleRequest(Value):
    """The session has moved on so that the request cannot become a turn any more."""

    code: str
    why: str


def rebased(request: TurnRequest, head: Snapshot, mint: Minter) -> TurnRequest | StaleRequest:
    """The request as it begins from `head`: the version that it was made for, or a later one."""
    if head.source_key and not request.base and head.source_key != request.source_key:
        # The first turn has set the session's source; requests that came after it were checked on arrival.
        return StaleRequest(
            code="agent_mismatch",
            why=f"the conversation was begun by an agent of {portable_key(head.source_key)} while this waited",
        )
    rebound = head.notes.rebound
    if rebound is not None and request.base_rev < rebound.rev:
        return StaleRequest(
            code="agent_mismatch",
            why=f"the conversation was moved to the agents of {head.source_name or portable_key(head.source_key)} "
            "while this waited; send it again",
        )
    new = _input_at(request, head, mint)
    if isinstance(new, StaleRequest):
        return new
    return msgspec.structs.replace(
        request,
        base=head.version,
        base_rev=head.notes.rev,
        base_length=len(head.items),
        agent=_agent(request, head),
        input=new,
        carried=head.waiting,
        limits=request.limits.within(head.notes.settings.limits),
    )


def _input_at(request: TurnRequest, head: Snapshot, mint: Minter) -> Items | StaleRequest:
    before, now = ({each.id for each in calls} for calls in (request.carried, head.waiting))
    if before == now:
        return _still_new(request, head, request.input)
    results = [
        each for each in request.input if isinstance(each, ToolResult) and each.call in before
    ]
    messages = tuple(each for each in request.input if each not in results)
    answers = any(each.outcome not in ("not_answered", "refused") for each in results)
    if answers:
        return StaleRequest(
            code="unknown_tool_call", why="the calls that it answers were answered while it waited"
        )
    if request.approved or not any(isinstance(each, UserMessage) for each in messages):
        return StaleRequest(
            code="approval_closed", why="the calls that it decides on were closed while it waited"
        )
    new = _still_new(request, head, messages)
    if isinstance(new, StaleRequest):
        return new
    return (*(unanswered(each, mint) for each in head.waiting), *new)


def _still_new(request: TurnRequest, head: Snapshot, items: Items) -> Items | StaleRequest:
    """The items that no turn has brought since the request arrived."""
    arrived = Arrival(version=request.base, at_ms=request.came_ms)
    new = still_new(head, items, since=arrived)
    if isinstance(new, Overtaken):
        return StaleRequest(
            code="no_new_user_message",
            why="a later request has brought the same message along with a newer one: it is answered there",
        )
    return _with_their_calls(items, known=len(items) - len(new))


def _with_their_calls(items: Items, *, known: int) -> Items:
    """The items without the first `known` ones, such that every result follows its call or is left out with it."""
    calls = {each.id: n for n, each in enumerate(items[:known]) if isinstance(each, ToolCall)}
    apart = [each for each in items[known:] if isinstance(each, ToolResult) and each.call in calls]
    answered = [calls[each.call] for each in apart if each.outcome != "not_answered"]
    since = min(answered, default=known)
    return tuple(each for each in items[since:] if each not in apart or calls[each.call] >= since)


def _agent(request: TurnRequest, head: Snapshot) -> str:
    """The agent of the turn: if the request named the session's agent, the one that the session has now."""
    if not head.version:
        return request.agent
    before = head.marks[request.base - 1].agent if request.base else head.entry_agent
    return head.agent if request.agent == before else request.agent
