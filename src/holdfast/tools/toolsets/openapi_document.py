"""Parses an OpenAPI 3 document into operations, without any I/O.

A document is foreign text. Only references inside it are followed, and each schema is taken once. An operation that
cannot be understood is left out, with a reason; the others stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.tools.tool import Json

Method: TypeAlias = Literal["get", "head", "put", "post", "patch", "delete"]
Object: TypeAlias = dict[str, Json]

Reader: TypeAlias = Callable[[bytes], Json]
"""Parses a document in another format, such as YAML. Raises Unusable."""

METHODS: tuple[Method, ...] = ("get", "head", "put", "post", "patch", "delete")
_VARIABLE = re.compile(r"\{([^{}]*)\}")
_DOTS = re.compile(r"[\s\0]*\.[\s\0.]*(;.*)?", re.DOTALL)
_SCHEMAS = "#/components/schemas/"
_NOT_A_MODELS_BUSINESS = frozenset(
    "accept content-type authorization host cookie content-length transfer-encoding connection".split()
)
"""Headers that an operation's parameters must not set: we set them, or no client may."""


class Unusable(Exception):
    """The document, or an operation, cannot be used; the message says why."""


class ApiParameter(Value):
    """A parameter of a request, and where it goes."""

    argument: str
    """The name of the model's argument."""
    name: str
    place: Literal["path", "query", "header"]


class ApiOperation(Value):
    """One operation of the API."""

    name: str
    """The document's name for it; not yet a valid tool name."""
    method: Method
    path: str
    base: str
    """The URL that the path is appended to."""
    description: str
    schema: str
    """The schema of the arguments; `body` is the JSON body."""
    parameters: tuple[ApiParameter, ...] = ()
    has_body: bool = False

    @property
    def only_reads(self) -> bool:
        return self.method in ("get", "head")


def read(data: bytes, otherwise: Reader | None = None) -> Object:
    """A document's content: JSON, or the result of `otherwise`. Raises Unusable."""
    try:
        document: Json = msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        if otherwise is None:
            raise Unusable("it is not JSON") from error
        document = otherwise(data)
    if not isinstance(document, dict) or not str(document.get("openapi", "")).startswith("3."):
        raise Unusable("it is not an OpenAPI 3 document")
    return document


def operations(document: Object, *, at: str = "") -> Iterator[ApiOperation | Unusable]:
    """A document's operations, in order. `at`: the document's URL, which relative URLs in it start from."""
    paths = document.get("paths")
    for path, item in (paths if isinstance(paths, dict) else {}).items():
        try:
            item = _resolved(document, item)
        except Unusable as error:
            yield Unusable(f"{path}: {error}")
            continue
        for method in METHODS:
            if isinstance(found := item.get(method), dict):
                try:
                    yield _operation(document, path, item, method, found, at)
                except Unusable as error:
                    yield Unusable(f"{method.upper()} {path}: {error}")


def _operation(
    document: Object, path: str, item: Object, method: Method, found: Object, at: str
) -> ApiOperation:
    parameters, properties, required = _parameters(document, item, found)
    body = _body_schema(document, found)
    if body is not None:
        properties["body"] = body[0]
        required += ["body"] if body[1] else []
    missing = set(_VARIABLE.findall(path)) - {
        each.name for each in parameters if each.place == "path"
    }
    if missing:
        raise Unusable(f"the path's {min(missing)!r} is not among its parameters")
    schema: Object = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return ApiOperation(
        name=_text(found.get("operationId")) or f"{method}{path}",
        method=method,
        path=path,
        base=_base(found, item, document, at=at),
        description=_description(found),
        schema=msgspec.json.encode(_with_definitions(document, schema)).decode(),
        parameters=tuple(parameters),
        has_body=body is not None,
    )


def _description(found: Object) -> str:
    said = [_text(found.get(name)) for name in ("summary", "description")]
    return "\n".join(filter(None, said))[: limits.mcp_text_chars_max]


def _parameters(
    document: Object, item: Object, found: Object
) -> tuple[list[ApiParameter], Object, list[Json]]:
    declared: dict[tuple[str, str], Object] = {}
    for each in (*_list(item.get("parameters")), *_list(found.get("parameters"))):
        parameter = _resolved(document, each)
        declared[_text(parameter.get("name")), _text(parameter.get("in"))] = parameter
    made: list[ApiParameter] = []
    properties: Object = {}
    required: list[Json] = []
    for (name, place), parameter in declared.items():
        needed = parameter.get("required") is True or place == "path"
        if place not in ("path", "query", "header") or name.lower() in _NOT_A_MODELS_BUSINESS:
            if needed and place == "cookie":
                raise Unusable(f"it needs the cookie {name!r}")
            continue
        argument = name if name not in properties and name != "body" else f"{place}_{name}"
        schema = parameter.get("schema")
        properties[argument] = {
            **(schema if isinstance(schema, dict) else {}),
            **({"description": said} if (said := _text(parameter.get("description"))) else {}),
        }
        required += [argument] if needed else []
        made.append(ApiParameter(argument=argument, name=name, place=place))  # type: ignore[arg-type]
    return made, properties, required


def _body_schema(document: Object, found: Object) -> tuple[Json, bool] | None:
    """The schema of the JSON body, and whether the body is required."""
    if "requestBody" not in found:
        return None
    body = _resolved(document, found["requestBody"])
    content = body.get("content")
    for kind, media in (content if isinstance(content, dict) else {}).items():
        if re.match(r"application/(.*\+)?json\b", kind) and isinstance(media, dict):
            return media.get("schema", {}), body.get("required") is True
    if body.get("required") is True:
        raise Unusable("it takes something else than JSON")
    return None


# ── references ───────────────────────────────────────────────────────────────────────────────


def _resolved(document: Object, value: Json, depth: int = 0) -> Object:
    """An object, or the object that its reference points to."""
    if not isinstance(value, dict):
        raise Unusable("something in it is not an object")
    reference = value.get("$ref")
    if reference is None:
        return value
    if depth > 8:
        raise Unusable("its references go in circles")
    return _resolved(document, _pointed(document, _text(reference)), depth + 1)


def _pointed(document: Object, reference: str) -> Json:
    if not reference.startswith("#/"):
        raise Unusable("it refers to another document")
    there: Json = document
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(there, dict) or name not in there:
            raise Unusable(f"it refers to {reference[:100]!r}, which is not there")
        there = there[name]
    return there


def _with_definitions(document: Object, schema: Object) -> Object:
    """The schema, with every schema that it refers to under `$defs`."""
    definitions: Object = {}
    wanted: list[str] = []
    moved = _moved(schema, wanted)
    while wanted:
        name = wanted.pop()
        if name in definitions:
            continue
        if len(definitions) == limits.api_schemas_max:
            raise Unusable(f"it refers to more than {limits.api_schemas_max} schemas")
        definitions[name] = _moved(_pointed(document, f"{_SCHEMAS}{name}"), wanted)
    assert isinstance(moved, dict)
    return {**moved, "$defs": definitions} if definitions else moved


def _moved(value: Json, wanted: list[str]) -> Json:
    """The value with its references pointing into `$defs`; the referenced names are added to `wanted`."""
    match value:
        case {"$ref": str(reference)}:
            if not reference.startswith(_SCHEMAS) or "/" in reference[len(_SCHEMAS) :]:
                raise Unusable(f"it refers to {reference[:100]!r}")
            wanted.append(reference[len(_SCHEMAS) :])
            return {"$ref": f"#/$defs/{reference[len(_SCHEMAS) :]}"}
        case dict():
            return {name: _moved(each, wanted) for name, each in value.items()}
        case list():
            return [_moved(each, wanted) for each in value]
        case _:
            return value


# ── addresses ────────────────────────────────────────────────────────────────────────────────


def _base(*places: Object, at: str) -> str:
    """The first server that the operation, its path or the document names."""
    for place in places:
        for server in _list(place.get("servers"))[:1]:
            if isinstance(server, dict):
                return urljoin(at, _VARIABLE.sub(_default_of(server), _text(server.get("url"))))
    return urljoin(at, "/")


def _default_of(server: Object) -> Callable[[re.Match[str]], str]:
    """Replaces a variable in a server's URL by its default."""
    given = server.get("variables")
    variables = given if isinstance(given, dict) else {}

    def default(found: re.Match[str]) -> str:
        variable = variables.get(found[1])
        return _text(variable.get("default")) if isinstance(variable, dict) else ""

    return default


def request_url(operation: ApiOperation, arguments: Mapping[str, Json]) -> str:
    """The URL of a call. Raises Unusable for a value that would change the path's meaning."""
    path = operation.path
    query: list[tuple[str, str]] = []
    for each in operation.parameters:
        value = arguments.get(each.argument)
        if value is None:
            continue
        if each.place == "path":
            text = plain(value)
            path = path.replace(f"{{{each.name}}}", quote(text, safe=""))
            if not text or _leads_elsewhere(path):
                raise Unusable(f"{each.argument!r} cannot be {text[:100]!r}")
        elif each.place == "query":
            values = value if isinstance(value, list) else [value]
            query += [(each.name, plain(one)) for one in values]
    url = f"{operation.base.rstrip('/')}/{path.lstrip('/')}"
    return f"{url}?{urlencode(query)}" if query else url


def _leads_elsewhere(path: str) -> bool:
    """Whether a server could take a segment for `.` or `..`: by unquoting twice, taking `\\` for `/`, or ignoring all
    after a `;`."""
    for _ in range(4):
        path = unquote(path)
    if unquote(path) != path:
        return True  # no client means that
    return any(_DOTS.fullmatch(each) for each in re.split(r"[/\\]", path))


def request_headers(operation: ApiOperation, arguments: Mapping[str, Json]) -> dict[str, str]:
    """The headers that the model's arguments set."""
    return {
        each.name: plain(value)
        for each in operation.parameters
        if each.place == "header" and (value := arguments.get(each.argument)) is not None
    }


def plain(value: Json) -> str:
    """A value as text for a URL or a header."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def same_server(url: str, document: str) -> bool:
    """Whether a URL is on the document's server, and not over a less safe scheme."""
    here, there = urlsplit(url), urlsplit(document)
    is_safe = here.scheme == "https" or here.scheme == there.scheme
    return is_safe and here.netloc.lower() == there.netloc.lower()


def _list(value: Json) -> Sequence[Json]:
    return value if isinstance(value, list) else ()


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
