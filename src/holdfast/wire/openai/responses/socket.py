"""The Responses API over a WebSocket: a client's messages, and our messages besides the events of a stream.

Events are those of the streamed form, byte for byte, one message each; if the request had a `stream_id`, they have it
too. A failure that is no event of a Response is an `error` event with the status and the envelope that HTTP would have.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from holdfast import limits
from holdfast.core.codec import DAMAGE
from holdfast.wire.body_parser import BodyDecoder, read_body, unsupported
from holdfast.wire.headers import CONVERSATION_VERSION, RETRY_AFTER, RETRY_AFTER_MS, SHOULD_RETRY
from holdfast.wire.problems import Problem, bad_request

CREATE = "response.create"


class SocketMessage(Struct, frozen=True):
    """The members of a message besides those of a request."""

    type: str = ""
    stream_id: str | None = None
    generate: bool | None = None
    background: bool | None = None


_decoder: BodyDecoder[SocketMessage] = BodyDecoder(SocketMessage)
_stream_id_max = 256


def read_message(body: bytes) -> SocketMessage:
    """Parse a message. Raises Refused."""
    said = read_body(_decoder, body)
    if said.type != CREATE:
        raise bad_request(
            "unknown_event",
            f"a message of type {said.type[:100]!r} is not understood; send {CREATE!r}",
            param="type",
        )
    if said.stream_id is not None and not 0 < len(said.stream_id) <= _stream_id_max:
        raise bad_request(
            "invalid_value",
            f"stream_id has 1 to {_stream_id_max} characters",
            param="stream_id",
        )
    if said.background:
        raise unsupported(
            "background",
            "a socket waits for its answers; ask for one in the background by POST /v1/responses",
        )
    return said


def lane_of(body: bytes) -> str | None:
    """The `stream_id` of a message, even if the message is otherwise invalid: the error event repeats it."""
    try:
        said = msgspec.json.decode(body, type=_Lane).stream_id
    except DAMAGE:
        return None
    return said if said and len(said) <= _stream_id_max else None


class _Lane(Struct, frozen=True):
    stream_id: str | None = None


def with_lane(event: bytes, lane: str | None) -> bytes:
    """An event with the `stream_id` of its lane."""
    if lane is None:
        return event
    return b'{"stream_id":' + msgspec.json.encode(lane) + b"," + event[1:]


_HEADERS_SENT = tuple(
    each.name for each in (RETRY_AFTER, RETRY_AFTER_MS, SHOULD_RETRY, CONVERSATION_VERSION)
)


def error_event(status: int, envelope: bytes, headers: Mapping[str, str]) -> bytes:
    """A refusal as an event: with the status, and with the headers that say whether to retry."""
    error = msgspec.json.decode(envelope, type=_Envelope).error
    sent = {name: headers[name] for name in _HEADERS_SENT if name in headers}
    if sent:
        error["headers"] = Raw(msgspec.json.encode(sent))
    return msgspec.json.encode({"type": "error", "status": status, "error": error})


class _Envelope(Struct, frozen=True):
    error: dict[str, Raw]


def too_old() -> Problem:
    """The problem that ends a socket after its longest allowed time."""
    minutes = round(limits.socket_lifetime_s / 60)
    return Problem(
        status=400,
        code="websocket_connection_limit_reached",
        message=f"a connection lasts {minutes} minutes at most; make a new one, and go on there",
    )


def too_many_waiting() -> Problem:
    """The problem for a message that arrives while too many others wait."""
    return Problem(
        status=429,
        code="too_many_messages_waiting",
        message=f"{limits.socket_waiting_max} messages of this connection wait for their answers already; "
        "send the next one when one of them is there",
        kind="requests",
        should_retry=True,
    )
