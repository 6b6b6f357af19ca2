"""The objects of the Agent2Agent protocol, as version 1.0 writes them in JSON.

A field that has its default is not written, as in the JSON of protobuf, which the protocol is defined in.
`forms.py` has the two other ways to write the same objects, those of version 0.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

TaskState: TypeAlias = Literal[
    "TASK_STATE_UNSPECIFIED",
    "TASK_STATE_SUBMITTED",
    "TASK_STATE_WORKING",
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELED",
    "TASK_STATE_INPUT_REQUIRED",
    "TASK_STATE_REJECTED",
    "TASK_STATE_AUTH_REQUIRED",
]

TERMINAL: frozenset[TaskState] = frozenset(
    ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")
)
"""The states that a task does not leave."""

Role: TypeAlias = Literal["ROLE_UNSPECIFIED", "ROLE_USER", "ROLE_AGENT"]

Metadata: TypeAlias = Mapping[str, Any]


class A2AObject(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The base of all objects."""


class A2APart(A2AObject, frozen=True):
    """A part of a message or artifact: it has one of `text`, `raw`, `url` and `data`."""

    text: str | UnsetType = UNSET
    raw: str | UnsetType = UNSET
    """Bytes, in base64."""
    url: str | UnsetType = UNSET
    data: Any = UNSET
    """Any JSON."""
    metadata: Metadata | UnsetType = UNSET
    filename: str = ""
    media_type: str = ""


class A2AMessage(A2AObject, frozen=True):
    message_id: str
    role: Role
    parts: tuple[A2APart, ...]
    context_id: str = ""
    task_id: str = ""
    metadata: Metadata | UnsetType = UNSET
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class A2AStatus(A2AObject, frozen=True):
    state: TaskState
    timestamp: str = ""
    message: A2AMessage | UnsetType = UNSET


class A2AArtifact(A2AObject, frozen=True):
    artifact_id: str
    parts: tuple[A2APart, ...]
    name: str = ""
    metadata: Metadata | UnsetType = UNSET


class A2ATask(A2AObject, frozen=True):
    id: str
    context_id: str
    status: A2AStatus
    artifacts: tuple[A2AArtifact, ...] = ()
    history: tuple[A2AMessage, ...] = ()
    metadata: Metadata | UnsetType = UNSET


class StatusUpdate(A2AObject, frozen=True):
    """An event of a stream: the task has another status."""

    task_id: str
    context_id: str
    status: A2AStatus
    metadata: Metadata | UnsetType = UNSET


class ArtifactUpdate(A2AObject, frozen=True):
    """An event of a stream: an artifact is there, or has grown. Without `append` it replaces what was sent of it."""

    task_id: str
    context_id: str
    artifact: A2AArtifact
    append: bool = False
    last_chunk: bool = False
    metadata: Metadata | UnsetType = UNSET


class StreamEvent(A2AObject, frozen=True):
    """One event of a stream, and the answer to a message: it has one of these."""

    task: A2ATask | UnsetType = UNSET
    status_update: StatusUpdate | UnsetType = UNSET
    artifact_update: ArtifactUpdate | UnsetType = UNSET


class TaskPage(A2AObject, frozen=True, omit_defaults=False):
    """A page of a list of tasks."""

    tasks: tuple[A2ATask, ...]
    next_page_token: str
    page_size: int
    total_size: int


# ── requests ─────────────────────────────────────────────────────────────────────────────────


class SendOptions(A2AObject, frozen=True):
    """How a client wants a message to be answered."""

    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: Metadata | UnsetType = UNSET
    history_length: int | None = None
    return_immediately: bool = False


class SendParams(A2AObject, frozen=True):
    """The request `SendMessage`, streamed or not."""

    message: A2AMessage
    configuration: SendOptions = SendOptions()
    metadata: Metadata | UnsetType = UNSET
    tenant: str = ""


class OldSendParams(A2AObject, frozen=True):
    """The same in the REST binding of version 0.3, as far as the document describes it."""

    message: Metadata
    configuration: Metadata | UnsetType = UNSET


class TaskParams(A2AObject, frozen=True):
    """The requests about one task: `GetTask`, `CancelTask` and `SubscribeToTask`."""

    id: str
    history_length: int | None = None
    metadata: Metadata | UnsetType = UNSET
    tenant: str = ""


class ListParams(A2AObject, frozen=True):
    """The request `ListTasks`."""

    context_id: str = ""
    status: TaskState = "TASK_STATE_UNSPECIFIED"
    page_size: int | None = None
    page_token: str = ""
    history_length: int | None = None
    status_timestamp_after: str = ""
    include_artifacts: bool = False
    tenant: str = ""
