"""The `api` toolset: one request to an HTTP API, which an agent file declares, as a tool.

The address is the author's: arguments fill in places of it, quoted, and can lead to no other server or path segment.
GET counts as reading; every other method needs a permission, and is sent with the call's stable key as
`Idempotency-Key`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.tools.built_in_tools import BuiltInTool, BuiltInToolset, parameters
from holdfast.tools.schema import InvalidTool
from holdfast.tools.tool import Json, ToolOutput, ToolRun, ToolSpec
from holdfast.tools.toolsets.fetch import told
from holdfast.tools.web.address_guard import AddressGuard, FetchFailed, shown
from holdfast.tools.web.server_answers import not_asked
from holdfast.tools.web.web_client import WebClient
from holdfast.wire.headers import IDEMPOTENCY_KEY

_PLACE = re.compile(r"\$\{\s*(?:encodeURIComponent\(\s*(\w+)\s*\)|(\w+))\s*\}", re.ASCII)


class ApiRequest(Value):
    """A declared request."""

    name: str
    endpoint: str
    """`${argument}` stands for an argument."""
    method: str = "GET"
    description: str = ""
    args: Mapping[str, Json] = {}
    required: tuple[str, ...] = ()
    headers: Mapping[str, str] = {}
    """With variables filled in: never shown."""
    timeout_s: float = 30.0
    allow_private: bool = False

    @property
    def only_reads(self) -> bool:
        return self.method == "GET"

    @property
    def places(self) -> frozenset[str]:
        """The arguments that are part of the address."""
        return frozenset(found[1] or found[2] for found in _PLACE.finditer(self.endpoint))

    def url(self, arguments: Mapping[str, Json]) -> str:
        """The address for these arguments; one that is not given leaves its place empty. Raises ValueError."""
        return _PLACE.sub(lambda found: _quoted(arguments.get(found[1] or found[2])), self.endpoint)


class ApiToolset(BuiltInToolset):
    """One tool. Raises InvalidTool for a request that cannot be one."""

    def __init__(self, request: ApiRequest, *, guard: AddressGuard | None = None) -> None:
        if left := re.search(r"\$\{[^}]*\}?", _PLACE.sub("", request.endpoint)):
            raise InvalidTool(
                f"only the names of arguments can stand in the address, not {left[0]}"
            )
        if unknown := sorted(request.places - request.args.keys()):
            raise InvalidTool(f"{', '.join(unknown)} in the address is not under 'args'")
        if _PLACE.search(urlsplit(request.endpoint).netloc):
            raise InvalidTool("no argument can stand in the name of the server")
        self._request = request
        self._web = WebClient(
            guard or AddressGuard(allow_private=request.allow_private),
            bytes_max=limits.web_body_bytes_max,
            timeout_s=request.timeout_s,
            cuts=True,
            quoted=True,
        )
        spec = ToolSpec(
            name=request.name,
            description=request.description or f"{request.method} {shown(request.endpoint)}",
            parameters=parameters(request.required, **request.args),
            read_only=request.only_reads,
            idempotent=request.only_reads,
            timeout_s=request.timeout_s + 5,
        )
        super().__init__(BuiltInTool(spec, self._call))

    async def _call(self, run: ToolRun) -> ToolOutput:
        request = self._request
        headers = {"Accept": "application/json, text/*;q=0.9, */*;q=0.5", "User-Agent": "holdfast"}
        body: bytes | None = None
        if not request.only_reads:
            headers |= {"Content-Type": "application/json", IDEMPOTENCY_KEY.title: run.call_key}
            body = msgspec.json.encode(dict(run.arguments))
        own = {name.lower() for name in request.headers}
        try:
            answer = await self._web.ask(
                request.url(run.arguments),
                method=request.method,
                headers={name: each for name, each in headers.items() if name.lower() not in own},
                credentials=request.headers,
                body=body,
            )
        except (FetchFailed, ValueError) as error:
            return not_asked(request.name, error)
        return await told(answer)


def _quoted(value: Json) -> str:
    match value:
        case None:
            return ""
        case str():
            if value in (".", ".."):
                raise ValueError("an argument cannot climb in the path")
            return quote(value, safe="")
        case _:
            return quote(msgspec.json.encode(value).decode(), safe="")
