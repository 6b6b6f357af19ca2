"""`GET /openapi.json`: the API, described in OpenAPI 3.1.

It is made from the code that answers: each route says what it is for and which scope it needs, and the types that
decode and encode bodies give the schemas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, get_args

import msgspec

from holdfast.core.turns import events as ev
from holdfast.ids import Version
from holdfast.server.http.parameters import ANSWER_HEADERS, PLACES, Kind, Parameter
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route, Routes
from holdfast.server.openapi.error_codes import (
    ANY_REQUEST,
    BODY,
    CODES,
    LET_IN,
    STRICT_BODY,
    by_status,
)
from holdfast.version import VERSION
from holdfast.wire.api.objects import TurnEvent, UsageObject
from holdfast.wire.headers import API_KEY, REQUEST_ID, RETRY_AFTER, SHOULD_RETRY
from holdfast.wire.problems import OPENAI_PROBLEMS, ErrorAnswer, ProblemForm

Schema: TypeAlias = dict[str, Any]

REF = "#/components/schemas/{name}"

TITLE = "Holdfast"
WORDS = (
    "AI agents over the OpenAI API, with conversations that hold: every turn is a transaction. "
    "`/v1` is OpenAI's API and Anthropic's, `/api` is our own; all work on the same sessions. "
    "Every error has its API's envelope and a stable `code`."
)

TAGS: Mapping[str, str] = {
    "chat": "OpenAI's Chat Completions.",
    "messages": "Anthropic's Messages.",
    "responses": "OpenAI's Responses.",
    "conversations": "OpenAI's Conversations.",
    "mcp": "The Model Context Protocol: agents as tools.",
    "agents": "The agents that can be asked.",
    "sessions": "Conversations, for operators and for tools.",
    "turns": "What requests have added to conversations, or add now.",
    "operations": "For the operator of the server.",
}
"""The parts of the API. A route belongs to the part that its path names, or that `_TAGS_OF` gives, or to the last."""

_TAGS_OF = {"models": "chat", "grants": "turns"}

# ── the document ─────────────────────────────────────────────────────────────────────────────


def document(routes: Iterable[Route]) -> Schema:
    """The whole document."""
    table = [each for each in routes if each.name]
    shapes = _Shapes(kind for route in table for kind in _kinds(route))
    told = {each for route in table for answer in route.answers for each in answer.headers}
    told |= {REQUEST_ID.name, SHOULD_RETRY.name, RETRY_AFTER.name}
    paths: dict[str, Schema] = {}
    for route in table:
        path = route.pattern.replace("...}", "}")
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, shapes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": TITLE,
            "version": VERSION,
            "description": WORDS,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": words} for name, words in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": shapes.components,
            "responses": {
                name: _refusal(status, codes, closed=True)
                for name, (status, codes) in SHARED.items()
            },
            "headers": {
                name: {"description": words, "schema": {"type": "string"}}
                for name, words in ANSWER_HEADERS.items()
                if name in told
            },
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, made by `holdfast keys create`. A server on loopback "
                    "that has no key yet needs none.",
                },
                API_KEY.name: {
                    "type": "apiKey",
                    "in": "header",
                    "name": API_KEY.name,
                    "description": "The same key, as Anthropic's clients send it.",
                },
            },
        },
    }


def _operation(route: Route, shapes: _Shapes) -> Schema:
    described: Schema = {
        "operationId": route.name,
        "summary": route.words[0],
        "tags": [_tag(route)],
    }
    if route.scope is None:
        described["security"] = []
    else:
        described["security"] = [{"key": []}, {API_KEY.name: []}]
        described["x-scope"] = route.scope
    if parameters := [*_places(route), *route.parameters]:
        described["parameters"] = [_parameter(each, shapes) for each in parameters]
    if route.body is not None:
        described["requestBody"] = _body(route.body, route, shapes)
    described["responses"] = _responses(route, shapes)
    return described


def _tag(route: Route) -> str:
    _, first, *words = route.pattern.split("/")
    word = words[0] if words else first
    tag = _TAGS_OF.get(word, word)
    return tag if tag in TAGS else "operations"


def _places(route: Route) -> list[Parameter]:
    return [PLACES[word] for word in re.findall(r"(\w+)/{", route.pattern)]


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


def _body(body: BodyDescription, route: Route, shapes: _Shapes) -> Schema:
    return {
        "required": body.required,
        "description": f"At most {route.body_bytes_max:,} bytes.",
        "content": {body.media_type: {"schema": shapes.of(body.kind), "example": body.example}},
    }


def _responses(route: Route, shapes: _Shapes) -> Schema:
    refused = {
        str(status): _shared_or_own(status, codes, route)
        for status, codes in by_status(_codes(route), route.problems.statuses).items()
    }
    said: dict[str, Schema] = {}
    for answer in route.answers:
        found = said.setdefault(str(answer.status), _answer(answer))
        for media_type, shown in _content(answer, shapes).items():
            before = found["content"].get(media_type)
            if before is not None:  # the same route answers in the forms of two APIs
                shown = {"schema": {"anyOf": [before["schema"], shown["schema"]]}}
            found["content"][media_type] = shown
    return {**said, **{status: each for status, each in refused.items() if status not in said}}


def _codes(route: Route) -> Iterable[str]:
    """Every error that a route can answer with."""
    yield from ANY_REQUEST
    if route.scope is not None:
        yield from LET_IN
        if route.is_strict:
            yield "unknown_parameter"
    for place in _places(route):
        yield from place.codes
    if route.body is not None and route.body.media_type == "application/json":
        strict = route.body.kind.__struct_config__.forbid_unknown_fields
        yield from STRICT_BODY if strict else BODY
    yield from route.codes


def _answer(answer: AnswerDescription) -> Schema:
    named = (REQUEST_ID.name, *answer.headers)
    return {
        "description": answer.words,
        "headers": {each: {"$ref": f"#/components/headers/{each}"} for each in named},
        "content": {},
    }


def _content(answer: AnswerDescription, shapes: _Shapes) -> Schema:
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
        "A line that begins with a colon is a heartbeat.",
        "properties": {"event": {"type": "string"}, "data": {"type": "string", **said}},
        "required": ["data"],
    }
    return {"text/event-stream": {"schema": schema}}


# ── refusals ─────────────────────────────────────────────────────────────────────────────────

SHARED: Mapping[str, tuple[int, tuple[str, ...]]] = {
    f"Refused{status}": (status, codes)
    for status, codes in by_status((*ANY_REQUEST, *LET_IN)).items()
}
"""The errors, by name, that every route with a scope can answer with."""


def _shared_or_own(status: int, codes: tuple[str, ...], route: Route) -> Schema:
    name = f"Refused{status}"
    if SHARED.get(name) == (status, codes) and route.problems is OPENAI_PROBLEMS:
        return {"$ref": f"#/components/responses/{name}"}
    closed = not (route.passes_codes_on and status == 400)
    return _refusal(status, codes, closed=closed, form=route.problems)


def _refusal(
    status: int, codes: tuple[str, ...], *, closed: bool, form: ProblemForm = OPENAI_PROBLEMS
) -> Schema:
    """An error with one of these codes; unless `closed`, the model's server may add codes of its own."""
    words = "\n".join(f"- `{each}`: {CODES[each].words}" for each in codes)
    schema: Schema = {"$ref": REF.format(name=form.kind.__name__)}
    if closed and form is OPENAI_PROBLEMS:  # other APIs have no place for a code of ours
        code = {"properties": {"code": {"enum": list(codes)}}}
        schema = {"allOf": [schema, {"properties": {"error": code}}]}
    else:
        words += "" if closed else "\n- the code with which the model's server refuses the request"
    headers = [REQUEST_ID.name, SHOULD_RETRY.name]
    if status in (409, 429, 503, 529):
        headers.append(RETRY_AFTER.name)
    return {
        "description": words,
        "headers": {each: {"$ref": f"#/components/headers/{each}"} for each in headers},
        "content": {"application/json": {"schema": schema}},
    }


# ── shapes ───────────────────────────────────────────────────────────────────────────────────


def _kinds(route: Route) -> Iterable[Kind]:
    yield ErrorAnswer
    yield route.problems.kind
    if route.body is not None:
        yield route.body.kind
    for answer in route.answers:
        yield from answer.events or (answer.kind,)


class _Shapes:
    """The schemas of a document's types: each type is described once, under its name."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        named = list(dict.fromkeys(kinds))
        schemas, components = _schemas(named)
        self._known = dict(zip(named, schemas, strict=True))
        self.components = {name: _tidy(each) for name, each in sorted(components.items())}
        usage = self.components[UsageObject.__name__]
        usage["required"] = list(usage["properties"])  # an answer always has every number
        if TurnEvent.__name__ in self.components:
            tags = [each.__struct_config__.tag for each in get_args(ev.Event)]
            happened = {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"enum": sorted(tags)}},
            }
            self.components[TurnEvent.__name__]["properties"]["event"] = happened

    def of(self, kind: Kind) -> Schema:
        """The schema of a type: a reference, or the schema itself if the type has no name."""
        if kind not in self._known:
            (self._known[kind],), more = _schemas([kind])
            assert not more, "types with names belong to bodies"
        found: Schema = _tidy(self._known[kind])
        return found


def _schemas(kinds: list[Kind]) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    return msgspec.json.schema_components(kinds, schema_hook=_of_name, ref_template=REF)


def _of_name(kind: type) -> Schema:
    """The schema of our own types: ids and keys are strings, versions are numbers."""
    if issubclass(kind, Version):
        return {"type": "integer", "minimum": 0}
    return {"type": "string"}


def _tidy(schema: Any) -> Any:
    """The same schema, without defaults that are null."""
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
    """The endpoint. The document is made with the first request for it."""

    def __init__(self, routes: Callable[[], Routes]) -> None:
        """`routes` is called with the first request: this endpoint is itself one of the routes."""
        self._routes = routes
        self._body = b""

    @Route(
        "GET /openapi.json",
        None,
        "readDescription",
        AnswerDescription("An OpenAPI document.", dict[str, msgspec.Raw]),
    )
    async def show(self, call: HttpCall) -> None:
        """This API, as an OpenAPI document."""
        if not self._body:
            self._body = rendered(document(self._routes()))
        await call.exchange.answer(200, self._body)


def rendered(made: Schema) -> bytes:
    """A document as indented JSON: the same bytes every time."""
    return msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n"
