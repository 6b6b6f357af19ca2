"""The `openapi` toolset: the operations of an HTTP API as tools.

The document is read when its tools are first needed. GET and HEAD count as reading; every other method needs a
permission, and is sent with the call's stable key as `Idempotency-Key`.
Credentials go only to the server that the operator named: the document's own, or `base_url`. A document that points
to another server does not get them sent there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.tools.built_in_tools import BuiltInTool
from holdfast.tools.execution import failure
from holdfast.tools.names import valid_names
from holdfast.tools.schema import InvalidTool
from holdfast.tools.threads import in_thread
from holdfast.tools.tool import Tool, ToolOutput, ToolRun, ToolSpec
from holdfast.tools.toolsets.fetch import told
from holdfast.tools.toolsets.openapi_document import (
    ApiOperation,
    Reader,
    Unusable,
    operations,
    read,
    request_headers,
    request_url,
    same_server,
)
from holdfast.tools.toolsets.server_tools import ServerToolset
from holdfast.tools.web.address_guard import AddressGuard, FetchFailed, shown
from holdfast.tools.web.server_answers import not_asked
from holdfast.tools.web.web_client import WebClient
from holdfast.wire.headers import IDEMPOTENCY_KEY


class HttpApi(Value):
    """An API's document, address and credentials."""

    document: str
    """A path or a URL."""
    base_url: str = ""
    """Where requests go, in place of the document's servers."""
    headers: Mapping[str, str] = {}
    """Credentials, with variables filled in: never shown."""
    allow_private: bool = False
    timeout_s: float = 30.0
    required: bool = False
    """A turn without its tools fails."""

    @property
    def is_remote(self) -> bool:
        return "://" in self.document

    @property
    def shown(self) -> str:
        return shown(self.document) if self.is_remote else self.document


class OpenApiToolset(ServerToolset):
    """One tool for each operation of an API."""

    def __init__(
        self,
        api: HttpApi,
        *,
        guard: AddressGuard | None = None,
        reader: Reader | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`reader`: parses documents that are not JSON."""
        super().__init__(f"the API at {api.shown}", required=api.required, now_s=now_s)
        guard = guard or AddressGuard(allow_private=api.allow_private)
        self._api = api
        self._reader = reader
        self._reading = WebClient(
            guard, bytes_max=limits.api_document_bytes_max, timeout_s=api.timeout_s
        )
        self._web = WebClient(
            guard,
            bytes_max=limits.web_body_bytes_max,
            timeout_s=api.timeout_s,
            cuts=True,
            quoted=True,
        )
        self.left_out: tuple[str, ...] = ()
        """Operations that are not offered, each with the reason."""

    async def _load(self) -> tuple[Tool, ...]:
        document = read(await self._document(), self._reader)
        at = self._api.document if self._api.is_remote else ""
        found = list(operations(document, at=self._api.base_url or at))[: limits.api_operations_max]
        usable = [each for each in found if isinstance(each, ApiOperation)]
        left_out = [str(each) for each in found if isinstance(each, Unusable)]
        if self._api.base_url:
            usable = [msgspec.structs.replace(each, base=self._api.base_url) for each in usable]
        by_name = {each.name: each for each in reversed(usable)}
        tools: list[Tool] = []
        for name, own in valid_names(each.name for each in usable).items():
            try:
                tools.append(self._tool(name, by_name[own]))
            except InvalidTool as error:
                left_out.append(str(error))
        self.left_out = tuple(left_out)
        return tuple(tools)

    async def _document(self) -> bytes:
        if not self._api.is_remote:
            return await in_thread(lambda: _read_file(self._api.document), name="openapi")
        answer = await self._reading.ask(self._api.document, credentials=self._api.headers)
        if answer.status != 200:
            raise Unusable(f"it answers {answer.status}")
        return answer.body

    def _tool(self, name: str, operation: ApiOperation) -> BuiltInTool:
        spec = ToolSpec(
            name=name,
            description=operation.description,
            parameters=operation.schema,
            read_only=operation.only_reads,
            idempotent=operation.only_reads,
            timeout_s=self._api.timeout_s + 5,
        )

        async def call(run: ToolRun) -> ToolOutput:
            return await self._call(operation, run)

        return BuiltInTool(spec, call)

    async def _call(self, operation: ApiOperation, run: ToolRun) -> ToolOutput:
        try:
            url = request_url(operation, run.arguments)
            answer = await self._web.ask(
                url,
                method=operation.method.upper(),
                headers=self._headers(operation, run),
                credentials=self._api.headers if self._is_trusted(url) else {},
                body=msgspec.json.encode(run.arguments["body"])
                if operation.has_body and "body" in run.arguments
                else None,
            )
        except FetchFailed as error:
            return not_asked(shown(operation.base), error)
        except Unusable as error:
            return failure(f"{error}.")
        return await told(answer)

    def _headers(self, operation: ApiOperation, run: ToolRun) -> dict[str, str]:
        ours = {"Accept": "application/json, text/*;q=0.9, */*;q=0.5", "User-Agent": "holdfast"}
        if operation.has_body and "body" in run.arguments:
            ours["Content-Type"] = "application/json"
        if not operation.only_reads:
            ours[IDEMPOTENCY_KEY.title] = run.call_key
        theirs = request_headers(operation, run.arguments)
        reserved = {name.lower() for name in (*ours, *self._api.headers)}
        return {
            **{name: value for name, value in theirs.items() if name.lower() not in reserved},
            **ours,
        }

    def _is_trusted(self, url: str) -> bool:
        """Whether the operator named this server, and not only the document."""
        if self._api.base_url or not self._api.is_remote:
            return True
        return same_server(url, self._api.document)


def _read_file(path: str) -> bytes:
    with Path(path).open("rb") as file:
        data = file.read(limits.api_document_bytes_max + 1)
    if len(data) > limits.api_document_bytes_max:
        raise Unusable(f"it has more than {limits.api_document_bytes_max} bytes")
    return data
