"""Routes: the description of each handler, and the table that finds the handler for a request.

1. A `Route` stands above its handler and describes it completely. Dispatch, the OpenAPI document, the page
   docs/reference/http.md, the names in `/metrics` and the tests of tenants and of answers are made from it.
2. A path that is not in the table is a 404.

A pattern is a path with places in it: `/api/sessions/{name}/items`. A place matches one step of the path or, written
`{name...}`, all the steps that are left; `{name}:verb` matches a step that ends with `:verb`. The path is split before its steps are decoded, so a name may have a slash in
it (`%2F`). Words are tried before places: `POST /api/sessions/import` is an import, though a session may be called
`import`; if the word has no route for the method, the place is tried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from inspect import cleandoc
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import parse_qs, unquote

from msgspec import Struct, field
from msgspec.structs import replace

from holdfast import limits
from holdfast.core.codec import Value, encode
from holdfast.ids import KeyId, Tenant
from holdfast.server.http.exchange import Exchange
from holdfast.server.http.parameters import Kind, Parameter
from holdfast.wire.body_parser import unknown_parameter
from holdfast.wire.headers import ETAG
from holdfast.wire.problems import (
    OPENAI_PROBLEMS,
    Problem,
    ProblemForm,
    Refused,
    bad_request,
    not_found,
    permanent,
)

Scope: TypeAlias = Literal["chat", "read", "admin", "metrics"]
"""What an API key allows: `chat` runs turns, `read` looks, `admin` does all, and deletes, exports and imports.
All of that among the conversations of its own tenant; only `metrics` is about the whole server, in numbers.
"""


class Caller(Value):
    """The tenant and the API key that a request comes from."""

    tenant: Tenant
    key_id: KeyId | None = None
    """The API key of the request; None if none was needed."""
    scopes: tuple[str, ...] = ("admin", "metrics")
    """What the caller may do; everything, where no key is needed."""
    conversation_from: str | None = None
    """The part of its requests that names a conversation where no header does."""


Load: TypeAlias = Literal["turns", "streams", "watchers"]
"""What a request may occupy until it ends, and quotas bound."""


def _occupy_nothing(load: Load) -> None:
    """Occupy nothing: there are no quotas."""


class HttpCall(Struct, frozen=True):
    """One authenticated request with its body, as a handler gets it."""

    exchange: Exchange
    caller: Caller
    names: tuple[str, ...] = ()
    """The values of the pattern's places, in order."""
    body: bytes = b""
    occupy: Callable[[Load], None] = _occupy_nothing
    """Count this request as a turn, stream or watcher until it ends. Raises Refused (429) if the quota is used up."""

    @property
    def tenant(self) -> Tenant:
        return self.caller.tenant

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the query; the last value of one that is repeated."""
        found = parse_qs(self.exchange.query.decode("utf-8", "replace"))
        return {name: values[-1] for name, values in found.items()}

    async def say(self, body: Struct, *, status: int = 200, etag: str = "") -> None:
        """Answer with an object of `/api`, as JSON."""
        headers = {ETAG.name: etag} if etag else None
        await self.exchange.answer(status, encode(body), headers=headers)


def refuse_nul(exchange: Exchange) -> None:
    """Raise Refused (400) for an address with a NUL character in it: in a name of its path, or in its query.

    No name or value of ours has one, and stores differ in how they treat it. The check comes before any part of the
    address is used, but for finding the route.
    """
    for where, text in (("path", exchange.raw_path), ("query", exchange.query.decode("latin-1"))):
        if "%00" in text or "\0" in text:
            raise bad_request("invalid_value", f"the {where} of the address has a NUL character")


def refuse_unknown_parameters(call: HttpCall, route: Route) -> None:
    """Raise Refused (400) for a query of `/api` with a parameter that the route does not have, as for a field.

    A misspelt filter would otherwise show everything. OpenAI's clients add parameters of their own: `/v1` ignores them.
    """
    if not call.exchange.query or not route.is_strict:
        return
    known = [each.name for each in route.parameters if each.where == "query"]
    for name in parse_qs(call.exchange.query.decode("utf-8", "replace"), keep_blank_values=True):
        if name not in known:
            raise unknown_parameter(name[:100], known)


Handler: TypeAlias = Callable[[HttpCall], Awaitable[None]]
F = TypeVar("F", bound=Callable[..., Awaitable[None]])


class BodyDescription(Struct, frozen=True):
    """The body of a request. Its example can be sent as it is."""

    kind: Kind
    example: object
    required: bool = True
    media_type: str = "application/json"


class AnswerDescription(Struct, frozen=True):
    """An answer of a route, other than a plain error."""

    words: str
    kind: Kind = None
    status: int = 200
    media_type: str = "application/json"
    headers: tuple[str, ...] = ()
    events: tuple[Kind, ...] = ()
    """The types of a stream's events; empty if this is no stream."""
    done: bool = False
    """A stream that completes ends with `[DONE]`."""


async def _unbound(call: HttpCall) -> None:
    raise NotImplementedError("this route belongs to a class, and no instance of it answers")


class Route(Struct, frozen=True):
    """A route, declared above the method that answers it; that method's docstring is its description.

        @Route("GET /api/me", "read", "retrieveMe", AnswerDescription("You.", Me))
        async def me(self, call: HttpCall) -> None:
            \"""The caller, and what it may do.\"""

    Errors that follow from the scope, from the places of the pattern and from the body are not named.
    """

    label: str
    """Its method and pattern. Logs and metrics use it as the route's name, since it has no id in it."""
    scope: Scope | None
    """The scope that the API key must have. None: open to every client that can reach the server; no body is read."""
    name: str = ""
    """Its id in the OpenAPI document. Empty: the document leaves it out."""
    answer: AnswerDescription | None = None
    other: AnswerDescription | None = None
    """A second form of the answer: a stream, or another status."""
    third: AnswerDescription | None = None
    body: BodyDescription | None = None
    parameters: tuple[Parameter, ...] = ()
    """Parameters of its query and headers. Those of its path follow from the words before the places."""
    codes: tuple[str, ...] = ()
    """Errors of this route's own."""
    passes_codes_on: bool = False
    """If the model's server refuses the request, the client gets a 400 with that server's own code."""
    body_bytes_max: int = limits.api_body_bytes_max
    load: Load | None = None
    """What each request occupies from its start, by its route alone."""
    audit: str = ""
    """Its name in the audit log; empty if it does not belong there."""
    problems: ProblemForm = OPENAI_PROBLEMS
    """The form in which its API answers problems."""
    handler: Handler = _unbound

    def __call__(self, handler: F) -> F:
        """Declare that this method of an endpoint answers the route; a method may answer several."""
        handler.__dict__.setdefault("routes", []).insert(0, self)
        return handler

    @property
    def method(self) -> str:
        return self.label.partition(" ")[0]

    @property
    def pattern(self) -> str:
        return self.label.partition(" ")[2]

    @property
    def is_strict(self) -> bool:
        """Whether a query with a parameter that the route does not have is refused."""
        return self.pattern.startswith("/api/")

    @property
    def answers(self) -> tuple[AnswerDescription, ...]:
        return tuple(each for each in (self.answer, self.other, self.third) if each is not None)

    @property
    def words(self) -> tuple[str, str]:
        """Its summary, without the dot at the end, and the rest of its description, in Markdown."""
        summary, _, more = cleandoc(self.handler.__doc__ or "").partition("\n\n")
        if self.method == "HEAD":
            return f"{summary.rstrip('.')}, without a body", ""
        return summary.rstrip("."), " ".join(more.split())


def routes_of(*endpoints: object) -> Iterator[Route]:
    """The routes above the methods of these endpoints, in the order of the source, each with its handler."""
    for endpoint in endpoints:
        for name, method in vars(type(endpoint)).items():
            for route in getattr(method, "routes", ()):
                yield replace(route, handler=getattr(endpoint, name))


class RouteMatch(Struct, frozen=True):
    """A route, and the values of its places in one request."""

    route: Route
    names: tuple[str, ...]


class _Node(Struct):
    """The continuations of one beginning of a path."""

    words: dict[str, _Node] = field(default_factory=dict)
    place: _Node | None = None
    verbs: dict[str, _Node] = field(default_factory=dict)
    """Places that end with a word, by that word and its colon."""
    rest: _Node | None = None
    routes: dict[str, Route] = field(default_factory=dict)
    """The routes of the path that ends here, by method."""


class Routes:
    """The table of routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Raises ValueError if two routes would answer the same requests."""
        self._root = _Node()
        self._plain: dict[str, _Node] = {}
        """The places of the paths that name nothing: no other match is more specific."""
        self._all = tuple(routes)
        for route in self._all:
            self._add(route)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._all)

    def find(self, method: str, raw_path: str) -> RouteMatch:
        """The route that answers. Raises Refused: 404 if the path has none, 405 if it has only other methods."""
        plain = self._plain.get(raw_path)
        if plain is not None and (answering := plain.routes.get(method)) is not None:
            return RouteMatch(answering, ())
        steps = _steps(raw_path)
        others: dict[str, None] = {}
        for node, names in _matches(self._root, steps, 0, ()):
            route = node.routes.get(method)
            if route is not None:
                return RouteMatch(route, names)
            others.update(dict.fromkeys(node.routes))
        if others:
            raise Refused(_wrong_method(method, tuple(others)))
        raise not_found(
            "unknown_url",
            f"there is nothing at {raw_path[:200]}; see /v1/models, /v1/chat/completions and /api/sessions",
        )

    def methods(self, raw_path: str) -> tuple[str, ...]:
        """The methods of a path; none if no route has it."""
        steps = _steps(raw_path)
        nodes = [node for node, _ in _matches(self._root, steps, 0, ())]
        return tuple(dict.fromkeys(method for node in nodes for method in node.routes))

    def _add(self, route: Route) -> None:
        node = self._root
        for step in route.pattern.strip("/").split("/"):
            if not step.startswith("{"):
                node = node.words.setdefault(step, _Node())
            elif step.endswith("...}"):
                node.rest = node = node.rest or _Node()
            elif verb := step.partition("}")[2]:
                node = node.verbs.setdefault(verb, _Node())
            else:
                node.place = node = node.place or _Node()
        if route.method in node.routes:
            raise ValueError(f"{route.label} is in the table twice")
        node.routes[route.method] = route
        if "{" not in route.pattern:
            self._plain[route.pattern] = node


def _steps(raw_path: str) -> list[str]:
    """The steps of a path. Clients join a base URL that ends with a slash to `/chat/completions`, too."""
    if raw_path.startswith("/v1//"):
        raw_path = "/v1/" + raw_path[len("/v1") :].lstrip("/")
    return raw_path.strip("/").split("/")


def _matches(
    node: _Node, steps: list[str], at: int, names: tuple[str, ...]
) -> Iterator[tuple[_Node, tuple[str, ...]]]:
    """The nodes at which this path ends, the most specific one first."""
    if at == len(steps):
        if node.routes:
            yield node, names
        return
    step = unquote(steps[at])
    if step in node.words:
        yield from _matches(node.words[step], steps, at + 1, names)
    for verb, following in node.verbs.items():
        if step.endswith(verb) and step != verb:
            yield from _matches(following, steps, at + 1, (*names, step.removesuffix(verb)))
    if node.place is not None and step:
        yield from _matches(node.place, steps, at + 1, (*names, step))
    if node.rest is not None and step:
        yield node.rest, (*names, "/".join(map(unquote, steps[at:])))


def _wrong_method(method: str, allowed: tuple[str, ...]) -> Problem:
    return permanent(
        405,
        "method_not_allowed",
        f"{method[:20]} is not possible here; use {' or '.join(allowed)}",
        more_headers=(("allow", ", ".join(allowed)),),
    )
