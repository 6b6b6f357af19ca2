"""`GET /openapi.json`: the API, described in OpenAPI 3.1.

It is made of what answers: the table of routes says what there is and who may, the types that bodies are decoded
and encoded by say what they look like, and `openapi_operations.py` has the words. A route that is not described, or
a description of none, is a mistake that a test finds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from holdfast.core import events as ev
from holdfast.ids import Version
from holdfast.server.openapi_errors import ANY_REQUEST, CODES, LET_IN, by_status
from holdfast.server.routing import Call, Route, Routes
from holdfast.version import VERSION
from holdfast.wire.api import Usage
from holdfast.wire.problems import ErrorAnswer

Schema: TypeAlias = dict[str, Any]
Kind: TypeAlias = Any
"""A type, as msgspec knows them."""

REF = "#/components/schemas/{name}"

FILES = frozenset({"GET /", "GET /console/{build}/{file...}"})
"""The console's pages and scripts: for browsers, and no part of the API."""

# ── what is said about a route ───────────────────────────────────────────────────────────────


class Parameter(Struct, frozen=True):
    """A part of a request beside its body."""

    name: str
    words: str
    kind: Kind = str
    where: Literal["query", "header", "path"] = "query"
    example: object = None


class Body(Struct, frozen=True):
    """What a request brings. The example is one that can be sent."""

    kind: Kind
    example: object
    required: bool = True
    media_type: str = "application/json"


class Answer(Struct, frozen=True):
    """One that says yes, or one that says no in its own way."""

    words: str
    kind: Kind = None
    status: int = 200
    media_type: str = "application/json"
    headers: tuple[str, ...] = ()
    events: tuple[Kind, ...] = ()
    """What a stream of events can have in it; empty if this is no stream."""
    done: bool = False
    """The last event of a stream that came to its end is `[DONE]`."""


class Operation(Struct, frozen=True):
    """What a route is for."""

    name: str
    summary: str
    tag: str
    answers: tuple[Answer, ...]
    body: Body | None = None
    parameters: tuple[Parameter, ...] = ()
    codes: tuple[str, ...] = ()
    passes_codes_on: bool = False
    """What the model's server says about a request is told as it says it: 400, and a code of its own."""


class Description(Struct, frozen=True):
    """The words around all of it."""

    title: str
    words: str
    tags: Mapping[str, str]
    operations: Mapping[str, Operation]
    """By the labels of routes."""
    places: Mapping[str, Parameter]
    """What can stand in a path, by the word before it."""
    headers: Mapping[str, str]
    """What the headers of answers say."""


# ── the document ─────────────────────────────────────────────────────────────────────────────


def document(routes: Iterable[Route], told: Description) -> Schema:
    """The whole document. Raises KeyError for a route that is not described."""
    table = [(each, told.operations[each.label]) for each in routes if each.label not in FILES]
    shapes = _Shapes(each for _, operation in table for each in _kinds(operation))
    paths: dict[str, Schema] = {}
    for route, operation in table:
        path = route.pattern.replace("...}", "}")
        made = _operation(route, operation, told, shapes)
        paths.setdefault(path, {})[route.method.lower()] = made
    return {
        "openapi": "3.1.0",
        "info": {
            "title": told.title,
            "version": VERSION,
            "description": told.words,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": words} for name, words in told.tags.items()],
        "paths": paths,
        "components": {
            "schemas": shapes.components,
            "responses": {
                name: _refusal(status, codes, closed=True)
                for name, (status, codes) in SHARED.items()
            },
            "headers": {
                name: {"description": words, "schema": {"type": "string"}}
                for name, words in told.headers.items()
            },
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, made by `holdfast keys create`. A server on loopback "
                    "that has none yet lets everybody in.",
                }
            },
        },
    }


def _operation(route: Route, operation: Operation, told: Description, shapes: _Shapes) -> Schema:
    words = re.findall(r"(\w+)/{", route.pattern)
    parameters = [*(told.places[word] for word in words), *operation.parameters]
    described: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
    }
    if route.scope is None:
        described["security"] = []
    else:
        described["security"] = [{"key": []}]
        described["x-scope"] = route.scope
    if parameters:
        described["parameters"] = [_parameter(each, shapes) for each in parameters]
    if operation.body is not None:
        described["requestBody"] = _body(operation.body, route, shapes)
    described["responses"] = _responses(route, operation, shapes)
    return described


def _parameter(parameter: Parameter, shapes: _Shapes) -> Schema:
    made: Schema = {
        "name": parameter.name,
        "in": parameter.where,
        "description": parameter.words,
        "required": parameter.where == "path",
        "schema": shapes.of(parameter.kind),
    }
    if parameter.example is not None:
        made["example"] = parameter.example
    return made


def _body(body: Body, route: Route, shapes: _Shapes) -> Schema:
    return {
        "required": body.required,
        "description": f"At most {route.body_bytes_max:,} bytes.",
        "content": {body.media_type: {"schema": shapes.of(body.kind), "example": body.example}},
    }


def _responses(route: Route, operation: Operation, shapes: _Shapes) -> Schema:
    codes = [*ANY_REQUEST, *(LET_IN if route.scope is not None else ()), *operation.codes]
    refused = {
        str(status): _shared_or_own(status, those, operation)
        for status, those in by_status(codes).items()
    }
    said: dict[str, Schema] = {}
    for answer in operation.answers:
        found = said.setdefault(str(answer.status), _answer(answer))
        found["content"].update(_content(answer, shapes))
    return {**said, **{status: each for status, each in refused.items() if status not in said}}


def _answer(answer: Answer) -> Schema:
    named = ("x-request-id", *answer.headers)
    return {
        "description": answer.words,
        "headers": {each: {"$ref": f"#/components/headers/{each}"} for each in named},
        "content": {},
    }


def _content(answer: Answer, shapes: _Shapes) -> Schema:
    if not answer.events:
        return {answer.media_type: {"schema": shapes.of(answer.kind)}}
    said: Schema = {
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [shapes.of(each) for each in answer.events]},
    }
    if answer.done:
        said = {"anyOf": [{"const": "[DONE]"}, said]}
    schema = {
        "type": "object",
        "description": "One of the server-sent events that the answer consists of. "
        "A line that begins with a colon is a sign of life.",
        "properties": {"event": {"type": "string"}, "data": {"type": "string", **said}},
        "required": ["data"],
    }
    return {"text/event-stream": {"schema": schema}}


# ── refusals ─────────────────────────────────────────────────────────────────────────────────

SHARED: Mapping[str, tuple[int, tuple[str, ...]]] = {
    f"Refused{status}": (status, codes)
    for status, codes in by_status((*ANY_REQUEST, *LET_IN)).items()
}
"""What can be answered to everybody who has to be let in, by name."""


def _shared_or_own(status: int, codes: tuple[str, ...], operation: Operation) -> Schema:
    name = f"Refused{status}"
    if SHARED.get(name) == (status, codes):
        return {"$ref": f"#/components/responses/{name}"}
    return _refusal(status, codes, closed=not (operation.passes_codes_on and status == 400))


def _refusal(status: int, codes: tuple[str, ...], *, closed: bool) -> Schema:
    """An error, under one of these codes; or under any, if the model's server may have its own."""
    words = "\n".join(f"- `{each}`: {CODES[each].words}" for each in codes)
    schema: Schema = {"$ref": REF.format(name="ErrorAnswer")}
    if closed:
        code = {"properties": {"code": {"enum": list(codes)}}}
        schema = {"allOf": [schema, {"properties": {"error": code}}]}
    else:
        words += "\n- what the model's server says about the request, as it says it"
    headers = ["x-request-id", "x-should-retry"]
    if status in (409, 429, 503):
        headers.append("retry-after")
    return {
        "description": words,
        "headers": {each: {"$ref": f"#/components/headers/{each}"} for each in headers},
        "content": {"application/json": {"schema": schema}},
    }


# ── shapes ───────────────────────────────────────────────────────────────────────────────────


class TurnEvent(Struct):
    """Something that happened in a turn. What an event says beside its type depends on that."""

    n: int
    """Its number in the turn."""
    at_ms: int
    event: dict[str, msgspec.Raw]


def _kinds(operation: Operation) -> Iterable[Kind]:
    yield ErrorAnswer
    if operation.body is not None:
        yield operation.body.kind
    for answer in operation.answers:
        yield from answer.events or (answer.kind,)


class _Shapes:
    """The types of a document: each by its name, and described once."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        named = list(dict.fromkeys(kinds))
        schemas, components = _schemas(named)
        self._known = dict(zip(named, schemas, strict=True))
        self.components = {name: _tidy(each) for name, each in sorted(components.items())}
        usage = self.components[Usage.__name__]
        usage["required"] = list(usage["properties"])  # it says every number
        if TurnEvent.__name__ in self.components:
            tags = [each.__struct_config__.tag for each in get_args(ev.Event)]
            happened = {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"enum": sorted(tags)}},
            }
            self.components[TurnEvent.__name__]["properties"]["event"] = happened

    def of(self, kind: Kind) -> Schema:
        """How a type looks: a reference, or itself if it has no name."""
        if kind not in self._known:
            (self._known[kind],), more = _schemas([kind])
            assert not more, "types with names belong to bodies"
        found: Schema = _tidy(self._known[kind])
        return found


def _schemas(kinds: list[Kind]) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    return msgspec.json.schema_components(kinds, schema_hook=_of_name, ref_template=REF)


def _of_name(kind: type) -> Schema:
    """Names and versions are types of our own."""
    if issubclass(kind, Version):
        return {"type": "integer", "minimum": 0}
    return {"type": "string"}


def _tidy(schema: Any) -> Any:
    """The same, without defaults that say nothing."""
    match schema:
        case dict():
            return {
                name: _tidy(each)
                for name, each in schema.items()
                if not (name == "default" and each is None)
            }
        case list():
            return [_tidy(each) for each in schema]
        case _:
            return schema


# ── the endpoint ─────────────────────────────────────────────────────────────────────────────


class OpenApi:
    """The endpoint. The document is made when somebody first asks for it."""

    def __init__(self, routes: Callable[[], Routes], told: Description) -> None:
        """`routes` are asked for late: this endpoint is one of them."""
        self._routes = routes
        self._told = told
        self._body = b""

    async def show(self, call: Call) -> None:
        if not self._body:
            self._body = rendered(document(self._routes(), self._told))
        await call.exchange.answer(200, self._body)


def rendered(made: Schema) -> bytes:
    """A document as people read it: the same bytes every time."""
    return msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
