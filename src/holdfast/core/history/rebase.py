"""A request that has waited for its session, on top of what the session has become meanwhile.

What the client said stays as it was taken in. What was decided about it on top of another version is decided anew:

1. Calls that wait now are answered by this turn. A message closes them, as it would have closed those of then.
2. Answers to calls stay answers to these very calls. If others wait now, or none, somebody else has answered them.
3. Messages that a turn has brought since the request came are known, if something new follows them (`history/resends.py`).
   A later request may have brought all of them: then that one has overtaken this one. A call that is known is not
   closed once more; but one that this client has answered comes along with its answer.
4. Whoever went on with the session's agent goes on with the agent that the session has now.
5. Limits of the session's own count as they are now.
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
    """The session has moved on, and the request means nothing any more."""

    code: str
    why: str


def rebased(request: TurnRequest, head: Snapshot, mint: Minter) -> TurnRequest | StaleRequest:
    """The request as a turn that begins from `head`, which is the version it was made for or a later one."""
    if head.source_key and not request.base and head.source_key != request.source_key:
        # Whoever came first has said whose session this is; later ones were asked when they came.
        return StaleRequest(
            code="agent_mismatch",
            why=f"the conversation was begun by an agent of {portable_key(head.source_key)} while this waited",
        )
    said = _said(request, head, mint)
    if isinstance(said, StaleRequest):
        return said
    return msgspec.structs.replace(
        request,
        base=head.version,
        base_rev=head.notes.rev,
        base_length=len(head.items),
        agent=_agent(request, head),
        input=said,
        carried=head.waiting,
        limits=request.limits.within(head.notes.settings.limits),
    )


def _said(request: TurnRequest, head: Snapshot, mint: Minter) -> Items | StaleRequest:
    then, now = ({each.id for each in calls} for calls in (request.carried, head.waiting))
    if then == now:
        return _unsaid(request, head, request.input)
    results = [each for each in request.input if isinstance(each, ToolResult) and each.call in then]
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
    new = _unsaid(request, head, messages)
    if isinstance(new, StaleRequest):
        return new
    return (*(unanswered(each, mint) for each in head.waiting), *new)


def _unsaid(request: TurnRequest, head: Snapshot, items: Items) -> Items | StaleRequest:
    """What of these items no turn has brought since the request came."""
    came = Arrival(version=request.base, at_ms=request.came_ms)
    new = still_new(head, items, since=came)
    if isinstance(new, Overtaken):
        return StaleRequest(
            code="no_new_user_message",
            why="a later request has brought the same message along with a newer one: it is answered there",
        )
    return _with_their_calls(items, known=len(items) - len(new))


def _with_their_calls(items: Items, *, known: int) -> Items:
    """Items without the first ones, which are known, such that every result follows its call or is left out with it."""
    calls = {each.id: n for n, each in enumerate(items[:known]) if isinstance(each, ToolCall)}
    apart = [each for each in items[known:] if isinstance(each, ToolResult) and each.call in calls]
    answered = [calls[each.call] for each in apart if each.outcome != "not_answered"]
    since = min(answered, default=known)
    return tuple(each for each in items[since:] if each not in apart or calls[each.call] >= since)


def _agent(request: TurnRequest, head: Snapshot) -> str:
    """Naming the session's agent goes on with it, wherever it has been handed to since."""
    if not head.version:
        return request.agent
    then = head.marks[request.base - 1].agent if request.base else head.entry_agent
    return head.agent if request.agent == then else request.agent
