"""The three forms in which the protocol's objects are written: that of version 1.0, and two of version 0.3.

Version 0.3 says what a JSON object is by a field `kind`, and has names of its own for states and roles; its REST
binding writes a third form, the JSON of another protobuf definition. Requests in any form become the objects of
`objects.py`, so the rest of the server knows one version.

Protobuf's JSON may name a field as its definition does, in snake case, and may have null for an absent field: both are
read in every form.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import UNSET

from holdfast.core.codec import Value
from holdfast.wire.a2a.objects import (
    A2AArtifact,
    A2AMessage,
    A2APart,
    A2AStatus,
    A2ATask,
    ArtifactUpdate,
    ListParams,
    Role,
    SendParams,
    StatusUpdate,
    StreamEvent,
    TaskParams,
    TaskState,
)
from holdfast.wire.problems import bad_request

ProtocolVersion: TypeAlias = Literal["1.0", "0.3"]
TaskEvent: TypeAlias = A2ATask | StatusUpdate | ArtifactUpdate
P = TypeVar("P", SendParams, TaskParams, ListParams)


class Form(Value):
    """One way to read and write the objects."""

    version: ProtocolVersion
    read: Callable[[dict[str, object]], dict[str, object]]
    """Turns a message of a request, or the options beside it, into the JSON of version 1.0."""
    task: Callable[[A2ATask], object]
    event: Callable[[TaskEvent], object]
    """Makes one event of a stream, or the answer to a message."""

    def params(self, kind: type[P], given: object) -> P:
        """The parameters of a request. Raises Refused."""
        if not isinstance(given, dict):
            raise bad_request("invalid_type", "the parameters of a request are an object")
        try:
            return msgspec.convert(self.read(_tidy(given)), kind, strict=False)
        except msgspec.ValidationError as error:
            raise bad_request("invalid_value", str(error)) from error


# ── what all forms share ─────────────────────────────────────────────────────────────────────

_OPEN = frozenset({"metadata", "data"})
"""Fields whose content is the client's own."""

_SNAKE = re.compile(r"_([a-z0-9])")


def _tidy(given: Any, depth: int = 0) -> Any:
    """The same JSON with names in camel case, and without null."""
    if depth > 16:  # no object of the protocol is half as deep
        return given
    if isinstance(given, dict):
        return {
            _camel(name): each if _camel(name) in _OPEN else _tidy(each, depth + 1)
            for name, each in given.items()
            if each is not None
        }
    if isinstance(given, list):
        return [_tidy(each, depth + 1) for each in given]
    return given


def _camel(name: str) -> str:
    return _SNAKE.sub(lambda found: found[1].upper(), name) if "_" in name else name


def _plain(made: object) -> Any:
    return msgspec.to_builtins(made)


# ── version 1.0 ──────────────────────────────────────────────────────────────────────────────

_STATES: tuple[TaskState, ...] = get_args(TaskState)
_ROLES: tuple[Role, ...] = get_args(Role)


def _same(given: dict[str, object]) -> dict[str, object]:
    """Protobuf's JSON may have the number of an enum's value in place of its name."""
    if isinstance(number := given.get("status"), int) and 0 <= number < len(_STATES):
        given["status"] = _STATES[number]
    message = given.get("message")
    if isinstance(message, dict) and isinstance(number := message.get("role"), int):
        message["role"] = _ROLES[number] if 0 <= number < len(_ROLES) else number
    return given


def _event(event: TaskEvent) -> StreamEvent:
    match event:
        case A2ATask():
            return StreamEvent(task=event)
        case StatusUpdate():
            return StreamEvent(status_update=event)
        case ArtifactUpdate():
            return StreamEvent(artifact_update=event)


VERSION_1 = Form(version="1.0", read=_same, task=lambda task: task, event=_event)

# ── version 0.3 over JSON-RPC ────────────────────────────────────────────────────────────────

_OLD_STATES: Mapping[TaskState, str] = {
    each: each.removeprefix("TASK_STATE_").lower().replace("_", "-") for each in _STATES
} | {"TASK_STATE_UNSPECIFIED": "unknown"}
_OLD_ROLES = {"user": "ROLE_USER", "agent": "ROLE_AGENT"}


def _read_old(given: dict[str, object]) -> dict[str, object]:
    message = given.get("message")
    if isinstance(message, dict):
        role = message.get("role")
        parts = message.get("parts")
        made = {**message, "role": _OLD_ROLES.get(role, role) if isinstance(role, str) else role}
        if isinstance(parts, list):
            made["parts"] = [_read_old_part(each) for each in parts]
        given = {**given, "message": made}
    return _with_new_options(given)


def _read_old_part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    made = {"metadata": part["metadata"]} if "metadata" in part else {}
    match part:
        case {"kind": "file", "file": {"bytes": data, **about}}:
            return {**made, "raw": data, **_file_names(about)}
        case {"kind": "file", "file": {"uri": url, **about}}:
            return {**made, "url": url, **_file_names(about)}
        case _:
            return {**made, **{name: part[name] for name in ("text", "data") if name in part}}


def _file_names(about: Mapping[Any, Any]) -> dict[str, object]:
    names = {"mimeType": "mediaType", "name": "filename"}
    return {new: about[old] for old, new in names.items() if old in about}


def _with_new_options(given: dict[str, object]) -> dict[str, object]:
    """The options of 0.3 under their new names. There, no history length and 0 mean all of it."""
    options = given.get("configuration")
    if given.get("historyLength") == 0:
        given = {name: each for name, each in given.items() if name != "historyLength"}
    if not isinstance(options, dict):
        return given
    made = dict(options)
    if not made.get("historyLength"):
        made.pop("historyLength", None)
    if "blocking" in made:
        made["returnImmediately"] = made.pop("blocking") is False
    for old in ("pushNotificationConfig", "pushNotification"):
        if old in made:
            made["taskPushNotificationConfig"] = made.pop(old)
    return {**given, "configuration": made}


def _old_part(part: A2APart) -> dict[str, object]:
    made: dict[str, object] = {} if part.metadata is UNSET else {"metadata": part.metadata}
    if part.text is not UNSET:
        return {"kind": "text", "text": part.text, **made}
    if part.data is not UNSET:
        data = part.data if isinstance(part.data, dict) else {"value": part.data}
        return {"kind": "data", "data": data, **made}
    where = {"uri": part.url} if part.raw is UNSET else {"bytes": part.raw}
    return {"kind": "file", "file": {**where, **_old_file_names(part)}, **made}


def _old_file_names(part: A2APart) -> dict[str, str]:
    about = {"mimeType": part.media_type, "name": part.filename}
    return {name: each for name, each in about.items() if each}


def _old_message(message: A2AMessage) -> dict[str, object]:
    parts = [_old_part(each) for each in message.parts]
    role = "agent" if message.role == "ROLE_AGENT" else "user"
    return {**_plain(message), "kind": "message", "role": role, "parts": parts}


def ends_stream(event: StatusUpdate) -> bool:
    """Whether this is the last event of a stream: the task has ended, or waits."""
    return event.status.state not in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")


class _OldWriter(Value):
    """What both ways to write version 0.3 do alike. They differ in parts, messages and the names of states."""

    part: Callable[[A2APart], dict[str, object]]
    message: Callable[[A2AMessage], dict[str, object]]
    states: Mapping[TaskState, str]
    """The states that have another name."""

    def written(self, event: TaskEvent, **kind: str) -> dict[str, object]:
        """A task or an event, with a member that says what it is, where the form has one."""
        made: dict[str, object] = {**_plain(event), **kind}
        match event:
            case ArtifactUpdate():
                return {**made, "artifact": self._artifact(event.artifact)}
            case StatusUpdate():
                return {**made, "status": self._status(event.status), "final": ends_stream(event)}
            case A2ATask():
                made["status"] = self._status(event.status)
                if event.artifacts:
                    made["artifacts"] = [*map(self._artifact, event.artifacts)]
                if event.history:
                    made["history"] = [*map(self.message, event.history)]
                return made

    def _status(self, status: A2AStatus) -> dict[str, object]:
        made = {**_plain(status), "state": self.states.get(status.state, status.state)}
        if status.message is not UNSET:
            made["message"] = self.message(status.message)
        return made

    def _artifact(self, artifact: A2AArtifact) -> dict[str, object]:
        return {**_plain(artifact), "parts": [*map(self.part, artifact.parts)]}


_OLD = _OldWriter(part=_old_part, message=_old_message, states=_OLD_STATES)
_KINDS = {A2ATask: "task", StatusUpdate: "status-update", ArtifactUpdate: "artifact-update"}


def _old_event(event: TaskEvent) -> dict[str, object]:
    return _OLD.written(event, kind=_KINDS[type(event)])


VERSION_0_3 = Form(version="0.3", read=_read_old, task=_old_event, event=_old_event)

# ── version 0.3 over REST ────────────────────────────────────────────────────────────────────


def _read_old_proto(given: dict[str, object]) -> dict[str, object]:
    message = given.get("message", given.get("request"))
    if isinstance(message, dict):
        made = {name: each for name, each in message.items() if name != "content"}
        parts = message.get("content", message.get("parts"))
        if isinstance(parts, list):
            made["parts"] = [_read_proto_part(each) for each in parts]
        given = {**{n: each for n, each in given.items() if n != "request"}, "message": made}
    if isinstance(options := given.get("configuration"), dict):
        # Protobuf's JSON leaves false out, so options without it do not wait.
        given = {**given, "configuration": {"blocking": False, **options}}
    return _with_new_options(_same(given))


def _read_proto_part(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    made = {"metadata": part["metadata"]} if "metadata" in part else {}
    match part:
        case {"file": {"fileWithBytes": data, **about}}:
            return {**made, "raw": _once_encoded(data), **_file_names(about)}
        case {"file": {"fileWithUri": url, **about}}:
            return {**made, "url": url, **_file_names(about)}
        case {"data": {"data": data}}:
            return {**made, "data": data}
        case _:
            return {**made, **{name: part[name] for name in ("text", "data") if name in part}}


def _once_encoded(data: object) -> object:
    """The field holds bytes, and the SDK puts the base64 of a file there: in JSON it is encoded twice. Other clients may
    encode it once."""
    if not isinstance(data, str):
        return data
    try:
        inner = b64decode(data, validate=True)
        b64decode(inner, validate=True)
        return inner.decode()
    except (binascii.Error, ValueError):
        return data


def _proto_part(part: A2APart) -> dict[str, object]:
    made = {name: each for name, each in _old_part(part).items() if name != "kind"}
    if "data" in made:
        made["data"] = {"data": made["data"]}
    if "file" in made:
        where: dict[str, object] = {"fileWithUri": part.url}
        if part.raw is not UNSET:
            where = {"fileWithBytes": b64encode(part.raw.encode()).decode()}
        made["file"] = {**where, **_old_file_names(part)}
    return made


def _proto_message(message: A2AMessage) -> dict[str, object]:
    made = _plain(message)
    for unknown in ("parts", "referenceTaskIds"):
        made.pop(unknown, None)
    return {**made, "content": [_proto_part(each) for each in message.parts]}


_PROTO = _OldWriter(
    part=_proto_part,
    message=_proto_message,
    states={"TASK_STATE_CANCELED": "TASK_STATE_CANCELLED"},
)
_NAMES = {A2ATask: "task", StatusUpdate: "statusUpdate", ArtifactUpdate: "artifactUpdate"}


def _proto_event(event: TaskEvent) -> dict[str, object]:
    return {_NAMES[type(event)]: _PROTO.written(event)}


VERSION_0_3_REST = Form(
    version="0.3", read=_read_old_proto, task=_PROTO.written, event=_proto_event
)
