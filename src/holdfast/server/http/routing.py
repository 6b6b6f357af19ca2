"""Routes: what a handler says about itself, and the table by which a request finds it.

1. A `Route` stands above its handler and says all that there is to say. Dispatch, the OpenAPI document, the page
   docs/reference/http.md, the names in `/metrics` and the tests of tenants and of answers are made from it.
2. What is not in the table does not exist.

A pattern is a path with places in it: `/api/sessions/{name}/items`. A place stands for one step of the path, or,
written `{name...}`, for all that is left of it. Steps are cut before they are decoded, so a name may have a slash in
it (`%2F`). Words beat places: `POST /api/sessions/import` is an import, though a session may be called so; and
where a word has no such method, the place is asked.
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
from holdfast.wire.headers import ETAG
from holdfast.wire.problems import Problem, Refused, bad_request

Scope: TypeAlias = Literal["chat", "read", "admin", "metrics"]
"""What a key may do: `chat` talks, `read` looks, `admin` does both and removes, takes out and takes in.

All of that among the conversations of its own tenant; `metrics` alone is about the whole server.
"""


class Caller(Value):
    """Who asks."""

    tenant: Tenant
    key_id: KeyId | None = None
    """The key that was shown; None if none was needed."""
    scopes: tuple[str, ...] = ("admin", "metrics")
    """What they may; everything, where no key is needed."""


Load: TypeAlias = Literal["turns", "streams", "watchers"]
"""What a request may occupy while it lasts."""


def _freely(load: Load) -> None:
    """Where nobody counts."""


class HttpCall(Struct, frozen=True):
    """One request, let in and read: what a handler is given."""

    exchange: Exchange
    caller: Caller
    names: tuple[str, ...] = ()
    """What the places of the pattern stand for, in order."""
    body: bytes = b""
    occupy: Callable[[Load], None] = _freely
    """Take a place among those who do the same, until the request ends. Raises Refused (429) if none is left."""

    @property
    def tenant(self) -> Tenant:
        return self.caller.tenant

    @property
    def query(self) -> dict[str, str]:
        """The query of the request; of what is there twice, the last."""
        found = parse_qs(self.exchange.query.decode("utf-8", "replace"))
        return {name: values[-1] for name, values in found.items()}

    async def say(self, body: Struct, *, status: int = 200, etag: str = "") -> None:
        """Answer with a value of `/api`, as JSON."""
        headers = {ETAG.name: etag} if etag else None
        await self.exchange.answer(status, encode(body), headers=headers)


def refuse_nul(exchange: Exchange) -> None:
    """Raise Refused (400) for an address with a NUL character in it: in a name of its path, or in its query.

    No name or value of ours has one, and stores differ in what they make of it. Whatever is read of an address is
    held to this here, before anything is.
    """
    for where, text in (("path", exchange.raw_path), ("query", exchange.query.decode("latin-1"))):
        if "%00" in text or "\0" in text:
            raise bad_request("invalid_value", f"the {where} of the address has a NUL character")


Handler: TypeAlias = Callable[[HttpCall], Awaitable[None]]
F = TypeVar("F", bound=Callable[..., Awaitable[None]])


class BodyDescription(Struct, frozen=True):
    """What a request brings. The example is one that can be sent."""

    kind: Kind
    example: object
    required: bool = True
    media_type: str = "application/json"


class AnswerDescription(Struct, frozen=True):
    """An answer that is no plain error."""

    words: str
    kind: Kind = None
    status: int = 200
    media_type: str = "application/json"
    headers: tuple[str, ...] = ()
    events: tuple[Kind, ...] = ()
    """What a stream of events can have in it; empty if this is no stream."""
    done: bool = False
    """The last event of a stream that came to its end is `[DONE]`."""


async def _unbound(call: HttpCall) -> None:
    raise NotImplementedError("this route belongs to a class, and no instance of it answers")


class Route(Struct, frozen=True):
    """A route, declared above the method that answers it; the words about it are that method's docstring.

        @Route("GET /api/me", "read", "retrieveMe", Answer("You.", Me))
        async def me(self, call: Call) -> None:
            \"""Who asks, and what they may.\"""

    Errors that follow from the scope, from the places of the pattern and from the body are not named.
    """

    label: str
    """Its method and pattern; a name for lists and gauges, with no id in it."""
    scope: Scope | None
    """What a key must allow. None: open to every client that can reach the server, and its body is not read."""
    name: str = ""
    """Its id in the OpenAPI document. Empty: no part of the API."""
    answer: AnswerDescription | None = None
    other: AnswerDescription | None = None
    """What it answers as well: a stream, or another status."""
    body: BodyDescription | None = None
    parameters: tuple[Parameter, ...] = ()
    """Of its query, and headers. The places of the pattern are known by the words before them."""
    codes: tuple[str, ...] = ()
    """Errors of this route's own."""
    passes_codes_on: bool = False
    """What the model's server says about a request is told as it says it: 400, and a code of its own."""
    body_bytes_max: int = limits.api_body_bytes_max
    load: Load | None = None
    """What each request occupies, however it turns out."""
    audit: str = ""
    """What it is called in the audit log, if it belongs there."""
    handler: Handler = _unbound

    def __call__(self, handler: F) -> F:
        """Declare that this method of an endpoint answers; it may answer several routes."""
        handler.__dict__.setdefault("routes", []).insert(0, self)
        return handler

    @property
    def method(self) -> str:
        return self.label.partition(" ")[0]

    @property
    def pattern(self) -> str:
        return self.label.partition(" ")[2]

    @property
    def answers(self) -> tuple[AnswerDescription, ...]:
        return tuple(each for each in (self.answer, self.other) if each is not None)

    @property
    def words(self) -> tuple[str, str]:
        """What it does, without the dot at the end; and what there is to say besides, in Markdown."""
        summary, _, more = cleandoc(self.handler.__doc__ or "").partition("\n\n")
        if self.method == "HEAD":
            return f"{summary.rstrip('.')}, without a body", ""
        return summary.rstrip("."), " ".join(more.split())


def routes_of(*endpoints: object) -> Iterator[Route]:
    """The routes above the methods of these endpoints, in the order of their text, each with its handler."""
    for endpoint in endpoints:
        for name, method in vars(type(endpoint)).items():
            for route in getattr(method, "routes", ()):
                yield replace(route, handler=getattr(endpoint, name))


class RouteMatch(Struct, frozen=True):
    """A route, and what its places stand for in one request."""

    route: Route
    names: tuple[str, ...]


class _Node(Struct):
    """What may follow a beginning of a path."""

    words: dict[str, _Node] = field(default_factory=dict)
    place: _Node | None = None
    rest: _Node | None = None
    routes: dict[str, Route] = field(default_factory=dict)
    """By method, if a path may end here."""


class Routes:
    """The table, and a way to look things up in it."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Raises ValueError if two routes would answer the same requests."""
        self._root = _Node()
        self._all = tuple(routes)
        for route in self._all:
            self._add(route)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._all)

    def find(self, method: str, raw_path: str) -> RouteMatch:
        """Who answers. Raises Refused: 404 if nobody does, 405 if only to other methods."""
        steps = raw_path.strip("/").split("/")
        others: dict[str, None] = {}
        for node, names in _matches(self._root, steps, 0, ()):
            route = node.routes.get(method)
            if route is not None:
                return RouteMatch(route, names)
            others.update(dict.fromkeys(node.routes))
        if others:
            raise Refused(_wrong_method(method, tuple(others)))
        raise Refused(_not_found(raw_path))

    def methods(self, raw_path: str) -> tuple[str, ...]:
        """What may be done with a path; nothing, if there is none."""
        steps = raw_path.strip("/").split("/")
        nodes = [node for node, _ in _matches(self._root, steps, 0, ())]
        return tuple(dict.fromkeys(method for node in nodes for method in node.routes))

    def _add(self, route: Route) -> None:
        node = self._root
        for step in route.pattern.strip("/").split("/"):
            if not step.startswith("{"):
                node = node.words.setdefault(step, _Node())
            elif step.endswith("...}"):
                node.rest = node = node.rest or _Node()
            else:
                node.place = node = node.place or _Node()
        if route.method in node.routes:
            raise ValueError(f"{route.label} is in the table twice")
        node.routes[route.method] = route


def _matches(
    node: _Node, steps: list[str], at: int, names: tuple[str, ...]
) -> Iterator[tuple[_Node, tuple[str, ...]]]:
    """The nodes at which this path ends, the most particular one first."""
    if at == len(steps):
        if node.routes:
            yield node, names
        return
    step = unquote(steps[at])
    if step in node.words:
        yield from _matches(node.words[step], steps, at + 1, names)
    if node.place is not None and step:
        yield from _matches(node.place, steps, at + 1, (*names, step))
    if node.rest is not None and step:
        yield node.rest, (*names, "/".join(map(unquote, steps[at:])))


def _wrong_method(method: str, allowed: tuple[str, ...]) -> Problem:
    return Problem(
        status=405,
        code="method_not_allowed",
        message=f"{method[:20]} is not possible here; use {' or '.join(allowed)}",
        should_retry=False,
        more_headers=(("allow", ", ".join(allowed)),),
    )


def _not_found(raw_path: str) -> Problem:
    return Problem(
        status=404,
        code="unknown_url",
        message=f"there is nothing at {raw_path[:200]}; see /v1/models, /v1/chat/completions and /api/sessions",
        should_retry=False,
    )
