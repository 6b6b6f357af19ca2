"""A turn as an editor shows it: updates from the records of its journal, or from the items of a history.

1. Text is shown once: an answer's deltas as they come, and of the whole answer only what no delta has shown.
2. A call is told once as new (`tool_call`), and then as updates under the same id: its own item id, which is the same
   in the journal, in the history and in a question about it.
3. Only the turn's own agent speaks; of its sub-agents the calls are shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.items import (
    AssistantMessage,
    Interruption,
    Item,
    Reasoning,
    ToolCall,
    ToolResult,
    UserMessage,
    text_of,
)
from holdfast.core.turns import events as ev
from holdfast.wire.acp.blocks import AcpText, blocks_of
from holdfast.wire.acp.shown_calls import call_update, kind_of, plan_of, result_update, title_of
from holdfast.wire.acp.updates import (
    AgentMessageChunk,
    AgentThoughtChunk,
    CallStarted,
    CallUpdated,
    Update,
    UserMessageChunk,
)


class TurnUpdates:
    """The updates of one turn after the other in a session, and what the last one left open."""

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd
        self._kinds: dict[str, ev.DraftKind] = {}
        self._shown: dict[str, int] = {}
        """How many characters of an item were shown."""
        self._calls: dict[str, ToolCall] = {}
        self._told: set[str] = set()
        """The calls that the editor has heard of."""
        self._waiting: dict[str, ToolCall] = {}
        self.finish: ev.Finish = "stop"
        """How the model's last answer ended."""

    @property
    def waiting(self) -> tuple[ToolCall, ...]:
        """The calls that wait for a person or for the client."""
        return tuple(self._waiting.values())

    # ── from a journal ──

    def of_event(self, event: ev.Event, *, echo: bool = False) -> Iterator[Update]:
        """The updates for one more event. `echo` shows what the client sent, too: for an editor that did not send
        it."""
        match event:
            case ev.Began(request=request):
                self._waiting.clear()
                for each in request.input:
                    if echo or (isinstance(each, ToolResult) and not each.from_client):
                        yield from self.of_item(each)
            case ev.Steered(items=items):
                for each in items:
                    yield from self.of_item(each)
            case ev.ItemOpened(item=item, kind=kind, path=path, name=name):
                self._kinds[item] = kind
                if kind == "call":
                    yield from self._opened(item, name)
            case ev.Grew(item=item, text=text, path=path):
                yield from self._grew(item, text, is_own=not path)
            case ev.Answered(items=items, path=path, finish=finish):
                if not path:
                    self.finish = finish
                for each in items:
                    yield from self.of_item(each)
            case ev.StepBroken(items=items):
                for each in items:
                    yield from self._broken(each)
            case ev.ToolStarted(call=call):
                yield CallUpdated(tool_call_id=call, status="in_progress")
            case ev.ToolFinished(result=result):
                yield from self.of_item(result)
            case _:
                return

    def _opened(self, item: str, name: str) -> Iterator[Update]:
        if item not in self._told:
            self._told.add(item)
            yield CallStarted(tool_call_id=item, title=name, kind=kind_of(name), status="pending")

    def _grew(self, item: str, text: str, *, is_own: bool) -> Iterator[Update]:
        kind = self._kinds.get(item)
        if not is_own or kind not in ("message", "reasoning"):
            return
        self._shown[item] = self._shown.get(item, 0) + len(text)
        yield _chunk(kind, item, text)

    def _broken(self, item: Item) -> Iterator[Update]:
        if isinstance(item, ToolCall):
            if item.id in self._told:
                yield CallUpdated(tool_call_id=item.id, status="failed")
        else:
            yield from self.of_item(item)

    # ── from a history ──

    def of_item(self, item: Item) -> Iterator[Update]:
        """The updates for a whole item: what of it was not shown yet."""
        match item:
            case UserMessage(path=()):
                for block in blocks_of(item.content):
                    yield UserMessageChunk(content=block, message_id=item.id)
            case AssistantMessage(path=()):
                yield from self._rest("message", item.id, text_of(item.content))
            case Reasoning(path=()):
                yield from self._rest("reasoning", item.id, item.text or "\n".join(item.summary))
            case ToolCall():
                yield from self._call(item)
            case ToolResult():
                yield from self._result(item)
            case Interruption():
                words = (
                    f"\n\n[{item.ended_by}: {item.detail}]"
                    if item.detail
                    else f"\n\n[{item.ended_by}]"
                )
                yield AgentMessageChunk(content=AcpText(text=words), message_id=item.id)
            case _:
                return

    def _rest(self, kind: ev.DraftKind, item: str, text: str) -> Iterator[Update]:
        rest = text[self._shown.get(item, 0) :]
        self._shown[item] = len(text)
        if rest:
            yield _chunk(kind, item, rest)

    def _call(self, call: ToolCall) -> Iterator[Update]:
        if call.state != "complete":
            return
        self._calls[call.id] = call
        if call.waits_for is not None:
            self._waiting[call.id] = call
        if call.id not in self._told:
            self._told.add(call.id)
            title = title_of(call.name, call.arguments)
            yield CallStarted(
                tool_call_id=call.id, title=title, kind=kind_of(call.name), status="pending"
            )
        yield call_update(call, self._cwd)

    def _result(self, result: ToolResult) -> Iterator[Update]:
        self._waiting.pop(result.call, None)
        call = self._calls.get(result.call)
        if call is None:
            return  # of a call before this editor looked
        yield result_update(result)
        plan = plan_of(call.name, result)
        if plan is not None:
            yield plan


def _chunk(kind: ev.DraftKind, item: str, text: str) -> Update:
    block = AcpText(text=text)
    if kind == "reasoning":
        return AgentThoughtChunk(content=block, message_id=item)
    return AgentMessageChunk(content=block, message_id=item)
