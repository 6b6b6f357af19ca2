"""A turn as a task of the protocol: its state, its artifacts, and the events of a stream.

1. Each message that the agent writes is an artifact under the message's own id. The agent's tools, its sub-agents and
   its reasoning are hidden, as in every other API.
2. A stream begins with the task and ends with the status that the turn has in the store. Text that is streamed before
   is a preview; text that was shown and is tried again is taken back, by an empty artifact in its place.
3. The first piece of an artifact replaces what a client has of it, later pieces are appended. So a client that
   subscribes again gets the task from its beginning, and has every text once.
4. A task whose calls wait for a person is `INPUT_REQUIRED`. Another agent cannot decide about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET

from holdfast.core.approval_questions import question_in
from holdfast.core.codec import Value
from holdfast.core.items import AssistantMessage, EndedBy, Items, Refusal, Text, text_of
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.ids import ItemId, TurnId, Version
from holdfast.wire.a2a.forms import Form, TaskEvent
from holdfast.wire.a2a.messages import Blobs, part_object
from holdfast.wire.a2a.objects import (
    A2AArtifact,
    A2AMessage,
    A2APart,
    A2AStatus,
    A2ATask,
    ArtifactUpdate,
    StatusUpdate,
    TaskState,
)
from holdfast.wire.a2a.problems import A2AAnswer, about
from holdfast.wire.json_rpc import RpcId
from holdfast.wire.problems import Problem
from holdfast.wire.sse import data_frame
from holdfast.wire.turn_answers import is_said, unanswered

NO_BLOBS: Blobs = {}


class TaskHead(Value):
    """The parts of a task that do not change."""

    task_id: str
    context_id: str
    created_ms: int
    history: tuple[A2AMessage, ...] = ()


class TaskEnd(Value):
    """How a task stands once its turn has ended."""

    state: TaskState
    at_ms: int
    items: Items = ()
    """The items that its artifacts are made of."""
    text: str = ""
    """What its status says to people."""
    about: dict[str, Any] = msgspec.field(default_factory=dict)
    """What it says to programs."""


def timestamp(at_ms: int) -> str:
    """A time in the protocol's form."""
    moment = datetime.fromtimestamp(at_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ended_task(
    by: EndedBy,
    *,
    items: Items,
    waits: str,
    at_ms: int,
    version: Version | None,
    problem: Problem | None,
) -> TaskEnd:
    """The end of a task, by the end of its turn. `waits` says what the turn waits for; `problem` is the one that another
    API would answer with, None if the turn has an answer."""
    told: dict[str, Any] = {} if version is None else {"version": int(version)}
    if by == "cancelled":
        return TaskEnd(state="TASK_STATE_CANCELED", at_ms=at_ms, items=items, about=told)
    if problem is not None:
        told |= about(problem)
        return TaskEnd(
            state="TASK_STATE_FAILED", at_ms=at_ms, items=items, text=problem.sentence, about=told
        )
    if waits:
        return TaskEnd(
            state="TASK_STATE_INPUT_REQUIRED", at_ms=at_ms, items=items, text=waits, about=told
        )
    text = "the turn reached a limit, and its answer is cut short" if by == "limit" else ""
    return TaskEnd(state="TASK_STATE_COMPLETED", at_ms=at_ms, items=items, text=text, about=told)


def waiting_text(items: Items, turn_id: TurnId) -> str:
    """What a turn waits for, in words; empty if it waits for nothing."""
    found = question_in(items, turn_id)
    if found is not None:
        return found.text
    calls = unanswered(items, "client")
    return f"waits for results of {', '.join(each.name for each in calls)}" if calls else ""


def artifacts_of(items: Items, blobs: Blobs = NO_BLOBS) -> tuple[A2AArtifact, ...]:
    """The artifacts of a turn: the messages that its agent wrote."""
    return tuple(
        A2AArtifact(artifact_id=str(each.id), parts=parts)
        for each in items
        if is_said(each) and (parts := tuple(part_object(part, blobs) for part in each.content))
    )


def task_object(
    head: TaskHead,
    end: TaskEnd | TaskState,
    *,
    blobs: Blobs = NO_BLOBS,
    history_length: int | None = None,
    with_artifacts: bool = True,
) -> A2ATask:
    """A task as it stands: with its end, or with the state of one that has not ended."""
    history = head.history
    if history_length is not None:
        history = history[-history_length:] if history_length > 0 else ()
    if not isinstance(end, TaskEnd):
        status = A2AStatus(state=end, timestamp=timestamp(head.created_ms))
        return A2ATask(id=head.task_id, context_id=head.context_id, status=status, history=history)
    return A2ATask(
        id=head.task_id,
        context_id=head.context_id,
        status=_status(head, end),
        artifacts=artifacts_of(end.items, blobs) if with_artifacts else (),
        history=history,
        metadata={"holdfast": end.about} if end.about else UNSET,
    )


def _status(head: TaskHead, end: TaskEnd) -> A2AStatus:
    if not end.text:
        return A2AStatus(state=end.state, timestamp=timestamp(end.at_ms))
    told = A2AMessage(
        message_id=f"{head.task_id}-status",
        role="ROLE_AGENT",
        parts=(A2APart(text=end.text),),
        context_id=head.context_id,
        task_id=head.task_id,
    )
    return A2AStatus(state=end.state, timestamp=timestamp(end.at_ms), message=told)


# ── as a stream ──────────────────────────────────────────────────────────────────────────────


class EventWriter:
    """Writes events as the frames of a stream, in the form and binding of its request."""

    def __init__(self, form: Form, *, rpc: bool, request_id: RpcId | None = None) -> None:
        self._event = form.event
        self._rpc = rpc
        self._id = request_id

    def frame(self, event: TaskEvent) -> bytes:
        return data_frame(self.encoded(self._event(event)))

    def encoded(self, result: object) -> bytes:
        """A result as the answer to the request."""
        return msgspec.json.encode(A2AAnswer(id=self._id, result=result) if self._rpc else result)


class TaskStream:
    """Turns the events of a turn into frames. Feed it every event once, in order, then the end."""

    def __init__(
        self,
        head: TaskHead,
        writer: EventWriter,
        *,
        begun: bool = True,
        before: Items = (),
        history_length: int | None = None,
    ) -> None:
        """`begun` says whether the turn is played already; `before` are items of earlier turns that it continues: the
        artifacts begin with theirs."""
        self._head = head
        self._writer = writer
        self._begun = begun
        self._shown: dict[ItemId, list[str]] = {}
        """The text of each message that was shown, in pieces."""
        self._whole: set[ItemId] = set()
        """The messages that were shown to their end."""
        self._messages: set[ItemId] = set()
        state: TaskState = "TASK_STATE_WORKING" if begun else "TASK_STATE_SUBMITTED"
        task = task_object(head, state, history_length=history_length)
        self._first = writer.frame(task) + b"".join(map(self._rest, filter(is_said, before)))

    def first(self) -> bytes:
        """The frames that begin every stream: the task."""
        return self._first

    def frames(self, record: Record) -> bytes:
        """The frames that show this event to the client; empty if it shows nothing."""
        event = record.event
        match event:
            case ev.Grew() if event.item in self._messages and event.text:
                return self._grew(event.item, event.text)
            case ev.ItemOpened(kind="message") if not event.path:
                self._messages.add(event.item)
                return b""
            case ev.StepStarted() if not self._begun:
                self._begun = True
                return self._status_frame("TASK_STATE_WORKING", record.at_ms)
            case ev.Answered() if not event.path:
                said = (each for each in event.items if isinstance(each, AssistantMessage))
                return b"".join(map(self._rest, said))
            case ev.StepBroken() if not event.path:
                gone = [each.id for each in event.items if each.state == "set_aside"]
                return b"".join(self._taken_back(each) for each in gone if each in self._shown)
            case _:
                return b""

    def end(self, end: TaskEnd, blobs: Blobs = NO_BLOBS) -> bytes:
        """The frames that end a stream: artifacts that were not shown yet, and the status."""
        said = [each for each in end.items if is_said(each)]
        rest = b"".join(self._rest(each, blobs) for each in said)
        update = StatusUpdate(
            task_id=self._head.task_id,
            context_id=self._head.context_id,
            status=_status(self._head, end),
            metadata={"holdfast": end.about} if end.about else UNSET,
        )
        return rest + self._writer.frame(update)

    def _grew(self, item: ItemId, text: str) -> bytes:
        """A piece of a message. This runs for every token."""
        pieces = self._shown.get(item)
        if pieces is None:
            self._shown[item] = [text]
            return self._artifact(item, (A2APart(text=text),))
        pieces.append(text)
        return self._artifact(item, (A2APart(text=text),), append=True)

    def _rest(self, item: AssistantMessage, blobs: Blobs | None = None) -> bytes:
        """The part of a message that was not shown yet. Without `blobs`, only its text: other parts need the store."""
        if item.id in self._whole:
            return b""
        has_more = not all(isinstance(part, Text | Refusal) for part in item.content)
        if has_more and blobs is None:
            return b""
        shown = "".join(self._shown.get(item.id, ()))
        text = text_of(item.content)
        self._whole.add(item.id)
        if not has_more and shown and text.startswith(shown):
            rest = (A2APart(text=text[len(shown) :]),)
            return self._artifact(item.id, rest, append=True, last=True)
        parts = tuple(part_object(part, blobs or NO_BLOBS) for part in item.content)
        if not parts and not shown:
            return b""
        self._shown[item.id] = [text]
        return self._artifact(item.id, parts or (A2APart(text=""),), last=True)

    def _taken_back(self, item: ItemId) -> bytes:
        """An empty artifact in the place of a message that does not count."""
        self._whole.add(item)
        gone: Mapping[str, Any] = {"holdfast": {"setAside": True}}
        return self._artifact(item, (A2APart(text=""),), last=True, metadata=gone)

    def _artifact(
        self,
        item: ItemId,
        parts: tuple[A2APart, ...],
        *,
        append: bool = False,
        last: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> bytes:
        update = ArtifactUpdate(
            task_id=self._head.task_id,
            context_id=self._head.context_id,
            artifact=A2AArtifact(
                artifact_id=str(item),
                parts=parts,
                metadata=UNSET if metadata is None else metadata,
            ),
            append=append,
            last_chunk=last,
        )
        return self._writer.frame(update)

    def _status_frame(self, state: TaskState, at_ms: int) -> bytes:
        update = StatusUpdate(
            task_id=self._head.task_id,
            context_id=self._head.context_id,
            status=A2AStatus(state=state, timestamp=timestamp(at_ms)),
        )
        return self._writer.frame(update)
