"""Judges answers by the document that describes them. Every answer that a test of the server gets is judged.

An answer conforms if its status is one that the document has for the route, its media type one of that status, and
its body of the shape that is said there: a JSON body as a whole, a stream event by event, an error by its code, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import jsonschema_rs
import msgspec

from holdfast.server.http.routing import Routes
from holdfast.server.openapi.document import Schema, document
from holdfast.wire.conversation_names import named_path
from holdfast.wire.problems import Refused

_made: dict[str, Schema] = {}


def described(routes: Routes) -> Schema:
    """The document of a server. All of them have the same table."""
    if not _made:
        _made.update(document(routes))
    return _made


def demand_described(
    routes: Routes, method: str, raw_path: str, status: int, headers: Mapping[str, str], body: bytes
) -> None:
    """Raise AssertionError for an answer that is not as the document has it."""
    try:
        path = raw_path.partition("?")[0]
        named = named_path(path)
        route = routes.find(method, named.path if named else path).route
    except Refused:
        return  # there is nothing here, so nothing is said about it
    if not route.name:
        return
    path = route.pattern.replace("...}", "}")
    operation = described(routes)["paths"][path][method.lower()]
    assert str(status) in operation["responses"], (
        f"{route.label} may answer {status}: {body[:300]!r}"
    )
    said = _resolved(operation["responses"][str(status)])
    media_type = headers["content-type"].partition(";")[0]
    assert media_type in said["content"], f"{route.label} may answer {media_type}"
    if method == "HEAD":
        return
    content = said["content"][media_type]
    if media_type == "text/event-stream":
        said = content["schema"]["properties"]["data"]
        said = said["anyOf"][-1] if "anyOf" in said else said
        for data in _frames(body):
            _demand_valid(msgspec.json.encode(said["contentSchema"]), data, route.label)
        demand_one_item_at_a_time(map(msgspec.json.decode, _frames(body)))
    elif media_type.endswith("json"):
        _demand_valid(msgspec.json.encode(content["schema"]), body, route.label)


def demand_one_item_at_a_time(events: Iterable[Any]) -> None:
    """Raise AssertionError if an item of a response begins before the item before it is done. The events of other
    streams do not matter."""
    growing: int | None = None
    for event in events:
        index = event.get("output_index") if isinstance(event, dict) else None
        match index is not None and event["type"]:
            case "response.output_item.added":
                assert growing is None, f"item {index} begins inside item {growing}"
                growing = index
            case "response.output_item.done":
                assert growing in (index, None), f"item {index} ends inside item {growing}"
                growing = None
            case str(name):
                assert growing in (index, None), f"{name} of item {index} inside item {growing}"


def _resolved(said: Schema) -> Schema:
    if "$ref" in said:
        found: Schema = _made["components"]["responses"][said["$ref"].rpartition("/")[2]]
        return found
    return said


def _frames(body: bytes) -> Iterator[bytes]:
    """The data of a stream's events. One that broke off may have half a frame at its end."""
    for frame in body.split(b"\n\n")[:-1]:
        for line in frame.split(b"\n"):
            if line.startswith(b"data: ") and line != b"data: [DONE]":
                yield line.removeprefix(b"data: ")


def _demand_valid(schema: bytes, body: bytes, label: str) -> None:
    value: Any = msgspec.json.decode(body)
    for error in _validator(schema).iter_errors(value):
        at = "/".join(map(str, error.instance_path))
        raise AssertionError(
            f"{label} answers {at or 'a body'} otherwise than it says: {error.message[:500]}"
        )


@cache
def _validator(schema: bytes) -> jsonschema_rs.Draft202012Validator:
    components = {"components": {"schemas": _made["components"]["schemas"]}}
    return jsonschema_rs.Draft202012Validator(
        {**msgspec.json.decode(schema, type=dict[str, Any]), **components}
    )
