"""Requests of the protocol: which method they call, in which version, over which binding.

JSON-RPC names the method in the body, and each version has names of its own; REST has a path for each. A client says
its version in a header or in the query. If it says none, the name or path tells; if both do, they must agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.core.codec import DAMAGE, Value
from holdfast.wire.a2a.forms import VERSION_0_3, VERSION_1, Form, ProtocolVersion
from holdfast.wire.json_rpc import RpcId
from holdfast.wire.problems import Refused, bad_request, not_found

Method: TypeAlias = Literal["send", "stream", "get", "list", "cancel", "subscribe", "card", "push"]

METHODS: Mapping[str, tuple[Method, Form]] = {
    "SendMessage": ("send", VERSION_1),
    "SendStreamingMessage": ("stream", VERSION_1),
    "GetTask": ("get", VERSION_1),
    "ListTasks": ("list", VERSION_1),
    "CancelTask": ("cancel", VERSION_1),
    "SubscribeToTask": ("subscribe", VERSION_1),
    "GetExtendedAgentCard": ("card", VERSION_1),
    "CreateTaskPushNotificationConfig": ("push", VERSION_1),
    "GetTaskPushNotificationConfig": ("push", VERSION_1),
    "ListTaskPushNotificationConfigs": ("push", VERSION_1),
    "DeleteTaskPushNotificationConfig": ("push", VERSION_1),
    "message/send": ("send", VERSION_0_3),
    "message/stream": ("stream", VERSION_0_3),
    "tasks/get": ("get", VERSION_0_3),
    "tasks/cancel": ("cancel", VERSION_0_3),
    "tasks/resubscribe": ("subscribe", VERSION_0_3),
    "agent/getAuthenticatedExtendedCard": ("card", VERSION_0_3),
    "tasks/pushNotificationConfig/set": ("push", VERSION_0_3),
    "tasks/pushNotificationConfig/get": ("push", VERSION_0_3),
    "tasks/pushNotificationConfig/list": ("push", VERSION_0_3),
    "tasks/pushNotificationConfig/delete": ("push", VERSION_0_3),
}
"""The methods of JSON-RPC. Version 0.3 has no list of tasks."""


class RpcBody(msgspec.Struct, frozen=True):
    """A request of JSON-RPC, as the document describes it."""

    method: str
    jsonrpc: Literal["2.0"]
    id: RpcId | None = None
    params: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class RpcEnvelope(Value):
    """A body that is JSON, before anything of it is used."""

    id: RpcId | None
    """Null unless it is one that JSON-RPC allows."""
    version: ProtocolVersion
    """The version that its method has; the current one for an unknown method."""
    members: Any


class RpcCall(Value):
    """A request of JSON-RPC."""

    method: Method
    form: Form
    params: Any


def read_envelope(body: bytes) -> RpcEnvelope:
    """Read a body as far as an error needs it. Raises Refused if it is not JSON."""
    members = read_json(body)
    given = members if isinstance(members, dict) else {}
    request_id = given.get("id")
    valid = isinstance(request_id, str | int) and not isinstance(request_id, bool)
    known = METHODS.get(method) if isinstance(method := given.get("method"), str) else None
    version: ProtocolVersion = known[1].version if known else "1.0"
    return RpcEnvelope(id=request_id if valid else None, version=version, members=members)


def read_json(body: bytes) -> Any:
    """Raises Refused if a body is not JSON."""
    try:
        return msgspec.json.decode(body)
    except DAMAGE as error:
        raise bad_request("invalid_json", f"the body is not valid JSON: {error}") from error


def read_call(envelope: RpcEnvelope) -> RpcCall:
    """The method and the parameters of a request. Raises Refused."""
    given = envelope.members
    if not isinstance(given, dict):
        raise bad_request("invalid_request", "a request is one object; batches are not supported")
    if given.get("jsonrpc") != "2.0":
        raise bad_request("invalid_request", 'jsonrpc is "2.0"', param="jsonrpc")
    if given.get("id") is not None and envelope.id is None:
        raise bad_request("invalid_request", "id is a string or a whole number", param="id")
    method = given.get("method")
    if not isinstance(method, str) or not method:
        raise bad_request("invalid_request", "method is missing", param="method")
    found = METHODS.get(method)
    if found is None:
        known = ", ".join(METHODS)
        raise not_found(
            "unknown_method", f"there is no method {method[:100]!r}; there are: {known}"
        )
    return RpcCall(method=found[0], form=found[1], params=given.get("params", {}))


def check_version(said: str, form: Form) -> None:
    """Raise Refused if a client says another version than the one that it uses."""
    if said and ".".join(said.split(".")[:2]) not in _SPOKEN[form.version]:
        raise bad_request(
            "protocol_version_unsupported",
            f"version {said[:20]!r} of the protocol is not spoken here in this way; there are 1.0 and 0.3, "
            f"and this is a request of {form.version}",
        )


_SPOKEN: Mapping[ProtocolVersion, frozenset[str]] = {
    "1.0": frozenset({"1.0", "1"}),
    "0.3": frozenset({"0.3"}),
}


def unsupported_push() -> Refused:
    """The answer to a request for push notifications, which the card says there are not."""
    return bad_request(
        "push_notifications_unsupported",
        "this server sends no push notifications; subscribe to the task, or get it again",
    )


def check_length(length: int | None) -> None:
    """Raise Refused for a length of a history that is none."""
    if length is not None and length < 0:
        raise bad_request("invalid_value", "historyLength is 0 or more", param="historyLength")
