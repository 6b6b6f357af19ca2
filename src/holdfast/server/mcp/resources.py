"""`resources/…`: conversations that this key began here, as text.

With the operator's setting `mcp_resources: all`, a key with the scope `read` sees all conversations of its tenant.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from holdfast.config import McpResources
from holdfast.core.codec import Unreadable
from holdfast.errors import InvalidValue
from holdfast.server.access.authentication import may
from holdfast.server.http.routing import Caller, HttpCall
from holdfast.server.mcp.tool_turns import door_of
from holdfast.sessions.sessions import Sessions
from holdfast.store.outcomes import ListPage, SessionFilter
from holdfast.wire.json_rpc import INVALID_PARAMS
from holdfast.wire.mcp.messages import McpFault, McpRequest
from holdfast.wire.mcp.resources import TEMPLATE, resource_shown, resource_text, session_in
from holdfast.wire.mcp.revisions import McpClient

PAGE: Final = 50
NOT_FOUND_BEFORE: Final = -32002
"""The code of a resource that is not there, before 2026-07-28."""


class _ListParams(Struct):
    cursor: str | None = None


class _ReadParams(Struct):
    uri: str


class ConversationResources:
    """The methods. One instance serves every request."""

    def __init__(self, sessions: Sessions, whose: McpResources) -> None:
        self._sessions = sessions
        self._whose: McpResources = whose

    async def list(self, call: HttpCall, request: McpRequest) -> dict[str, object]:
        """A page of conversations, the last active first: those with a name, then those without."""
        kind, _, cursor = (request.read(_ListParams).cursor or "named ").partition(" ")
        page = await self._page(call, cursor, anonymous=kind == "anonymous")
        found = list(page.sessions)
        if page.cursor is None and kind != "anonymous":
            kind, page = "anonymous", await self._page(call, "", anonymous=True)
            found += page.sessions
        rows = [each.session for each in found]
        shown = [resource_shown(row.id, row.title or row.opening, row.agent) for row in rows]
        more = {} if page.cursor is None else {"nextCursor": f"{kind} {page.cursor}"}
        return {"resources": shown, **more}

    async def _page(self, call: HttpCall, cursor: str, *, anonymous: bool) -> ListPage:
        where = SessionFilter(attributes=self._attributes(call.caller), anonymous=anonymous)
        try:
            return await self._sessions.store.sessions(
                call.tenant, where=where, cursor=cursor or None, limit=PAGE
            )
        except InvalidValue as error:
            raise McpFault(INVALID_PARAMS, str(error)) from error

    async def read(
        self, call: HttpCall, request: McpRequest, client: McpClient
    ) -> dict[str, object]:
        """The text of a conversation. One of another key answers as one that does not exist."""
        uri = request.read(_ReadParams).uri
        session_id = session_in(uri)
        row = None
        if session_id is not None:
            row = await self._sessions.store.session(call.tenant, session_id)
        is_shown = row is not None and row.state == "live" and row.head > 0
        if row is None or not is_shown or not self._may_see(call.caller, row.settings.attributes):
            code = INVALID_PARAMS if client.is_current else NOT_FOUND_BEFORE
            raise McpFault(code, "there is no such conversation", data={"uri": uri})
        snapshot = await self._sessions.snapshot(call.tenant, row.id)
        stored = snapshot.items if snapshot is not None else ()
        text = resource_text(each for each in stored if not isinstance(each, Unreadable))
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": text}]}

    def templates(self) -> dict[str, object]:
        """The form of the addresses."""
        return {"resourceTemplates": [TEMPLATE]}

    def _attributes(self, caller: Caller) -> tuple[tuple[str, str], ...]:
        """The attributes that a session must have for the caller to see it."""
        if self._whose == "all" and may(caller.scopes, "read"):
            return ()
        return (door_of(caller.key_id),)

    def _may_see(self, caller: Caller, attributes: tuple[tuple[str, str], ...]) -> bool:
        return set(self._attributes(caller)) <= set(attributes)
