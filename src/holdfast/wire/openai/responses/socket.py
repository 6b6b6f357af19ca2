"""The Responses API over a WebSocket: what a client's messages say, and what it is told besides a stream's events.

Events are those of the streamed form, byte for byte, one message each; if the request had a `stream_id`, they have it
too. A failure that is no event of a Response is an `error` event with the status and the envelope that HTTP would have.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from holdfast import limits
from holdfast.wire.body_parser import read_body, unsupported
from holdfast.wire.headers import (
    CONVERSATION_VERSION,
    RETRY_AFTER,
    RETRY_AFTER_MS,
    SHOULD_RETRY,
)
from holdfast.wire.problems import Problem, bad_request

CREATE = "response.create"


class SocketMessage(Struct, frozen=True):
    """What a message says besides the members of a request."""

    type: str = ""
    stream_id: str | None = None
    generate: bool | None = None
    background: bool | None = None


_decoder = msgspec.json.Decoder(SocketMessage)
_stream_id_max = 256


def read_message(body: bytes) -> SocketMessage:
    """What a message is about. Raises Refused."""
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
    """The `stream_id` of a message, whatever else is wrong with it: an answer that says so names it."""
    try:
        said = msgspec.json.decode(body, type=_Lane).stream_id
    except msgspec.DecodeError:
        return None
    return said if said and len(said) <= _stream_id_max else None


class _Lane(Struct, frozen=True):
    stream_id: str | None = None


def with_lane(event: bytes, lane: str | None) -> bytes:
    """An event, with the name of the lane that it belongs to."""
    if lane is None:
        return event
    return b'{"stream_id":' + msgspec.json.encode(lane) + b"," + event[1:]


_TOLD = tuple(
    each.name for each in (RETRY_AFTER, RETRY_AFTER_MS, SHOULD_RETRY, CONVERSATION_VERSION)
)


def error_event(status: int, envelope: bytes, headers: Mapping[str, str]) -> bytes:
    """A refusal, as an event: with the status and the headers that tell whether to come back."""
    error = msgspec.json.decode(envelope, type=_Envelope).error
    told = {name: headers[name] for name in _TOLD if name in headers}
    if told:
        error["headers"] = Raw(msgspec.json.encode(told))
    return msgspec.json.encode({"type": "error", "status": status, "error": error})


class _Envelope(Struct, frozen=True):
    error: dict[str, Raw]


def too_old() -> Problem:
    """Why a socket ends that has been there for as long as one may."""
    minutes = round(limits.socket_lifetime_s / 60)
    return Problem(
        status=400,
        code="websocket_connection_limit_reached",
        message=f"a connection lasts {minutes} minutes at most; make a new one, and go on there",
    )


def too_many_waiting() -> Problem:
    """Why a message is not taken while others wait."""
    return Problem(
        status=429,
        code="too_many_messages_waiting",
        message=f"{limits.socket_waiting_max} messages of this connection wait for their answers already; "
        "send the next one when one of them is there",
        kind="requests",
        should_retry=True,
    )
