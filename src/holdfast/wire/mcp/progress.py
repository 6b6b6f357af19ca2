"""How far a turn is, for a client that gave a token for it: a notification for each step."""

from __future__ import annotations

from msgspec import UnsetType

from holdfast.core.items import ToolCall
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.ids import CallId
from holdfast.wire.json_rpc import RpcId
from holdfast.wire.mcp.messages import notification_frame


class ProgressNotices:
    """Turns the events of a turn, and of turns that go on with it, into frames; into none without a token."""

    def __init__(self, token: RpcId | UnsetType) -> None:
        self._token = token
        self._steps = 0
        self._names: dict[CallId, str] = {}

    def first(self) -> bytes:
        """No frame begins every stream."""
        return b""

    def frames(self, record: Record) -> bytes:
        """The notification that tells of this event; empty if none does."""
        words = "" if isinstance(self._token, UnsetType) else self._words(record.event)
        if not words:
            return b""
        said = {"progressToken": self._token, "progress": self._steps, "message": words}
        self._steps += 1
        return notification_frame("notifications/progress", said)

    def _words(self, event: ev.Event) -> str:
        match event:
            case ev.Began(request=request):  # calls that were approved run first
                self._names |= {each.id: each.name for each in request.carried}
                return ""
            case ev.StepStarted(path=()):
                return "asking the model"
            case ev.Answered(items=items, path=()):
                calls = [each for each in items if isinstance(each, ToolCall)]
                self._names |= {each.id: each.name for each in calls}
                return "the model wants to use tools" if calls else "the model has answered"
            case ev.ToolStarted(call=call) if call in self._names:
                return f"running {self._names[call]}"
            case ev.ToolFinished(result=result) if result.call in self._names:
                return f"{self._names[result.call]}: {result.outcome}"
            case _:
                return ""
