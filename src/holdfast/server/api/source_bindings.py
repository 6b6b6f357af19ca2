"""`/api/sessions/…/rebind`: sessions that are moved to the agents of another source, one by one or all of a source.

What a session may do afterwards is decided by its new agents alone: remembered approvals stay with the former source,
and calls that wait for an approval can only be closed. A tenant moves its own sessions, to agents that it may use.
"""

from __future__ import annotations

from holdfast import limits
from holdfast.core.identity import is_called, source_called
from holdfast.errors import SessionBusy, SessionGone
from holdfast.observe.events import audit
from holdfast.server.agents.directory import Directory
from holdfast.server.api.session_lookup import named_session, say_session
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route
from holdfast.sessions.session_requests import AgentChoice, Ask
from holdfast.sessions.sessions import Sessions
from holdfast.store.outcomes import SessionFilter
from holdfast.store.rows import SessionRow
from holdfast.wire.api import objects as api
from holdfast.wire.body_parser import BodyDecoder, read_body
from holdfast.wire.headers import ETAG

_CODES = ("conversation_locked", "model_not_found")


class SourceBindingsApi:
    """The endpoints. One instance serves every request."""

    def __init__(self, sessions: Sessions, directory: Directory) -> None:
        self._operations = sessions.operations
        self._store = sessions.store
        self._directory = directory

    @Route(
        "POST /api/sessions/{name}/rebind",
        "admin",
        "rebindSession",
        AnswerDescription("The session.", api.Session, headers=(ETAG.name,)),
        body=BodyDescription(api.NewSource, {"model": "root"}),
        codes=_CODES,
    )
    async def one(self, call: HttpCall) -> None:
        """Move a session to the source of another agent.

        `model` is an agent as `GET /v1/models` lists it. The session goes on with its own agent where that source has
        one of the same name, else with `model`. See [moving agents](../guides/agents.md#where-agents-are).
        """
        asked = read_body(_NEW_SOURCE, call.body)
        to = self._directory.choose(Ask(tenant=call.tenant, name=None, agent=asked.model))
        info = await named_session(self._store, call)
        await self._rebind(call, info.session, to)
        await say_session(self._store, call, info.session.id)

    @Route(
        "POST /api/sessions/rebind",
        "admin",
        "rebindSource",
        AnswerDescription(
            "The sessions of this page that were moved, and the busy ones.", api.Rebound
        ),
        body=BodyDescription(api.SourceMove, {"source": "butler.yaml", "model": "root"}),
        codes=("invalid_cursor", "model_not_found"),
    )
    async def every(self, call: HttpCall) -> None:
        """Move all sessions of a source, a page at a time.

        `source` is what sessions show as their source, or its whole address. Repeat the request with the `cursor` of
        the answer until that is null; then once more for the busy sessions.
        """
        asked = read_body(_SOURCE_MOVE, call.body)
        to = self._directory.choose(Ask(tenant=call.tenant, name=None, agent=asked.model))
        page = await self._store.sessions(
            call.tenant,
            where=SessionFilter(anonymous=asked.anonymous),
            cursor=asked.cursor,
            limit=limits.page_size_max,
        )
        moved: list[str] = []
        busy: list[str] = []
        for row in (each.session for each in page.sessions):
            if is_called(asked.source, key=row.source_key, name=row.source_name):
                try:
                    moved += [row.id] if await self._rebind(call, row, to) else []
                except SessionBusy:
                    busy.append(row.id)
                except SessionGone:
                    pass
        await call.say(api.Rebound(rebound=tuple(moved), busy=tuple(busy), cursor=page.cursor))

    async def _rebind(self, call: HttpCall, session: SessionRow, to: AgentChoice) -> bool:
        """Whether the session has moved: False if it was bound to that source already. Raises SessionBusy."""
        has_it = self._directory.resident(to.source_key, session.entry_agent) is not None
        row = await self._operations.rebind(
            call.tenant,
            session.id,
            source_key=to.source_key,
            source_name=to.source_name,
            entry_agent=session.entry_agent if has_it else to.agent,
        )
        if _binding(row) == _binding(session):
            return False
        audit(
            "session.rebind",
            tenant=call.tenant,
            key=call.caller.key_id,
            about=session.id,
            source=source_called(key=session.source_key, name=session.source_name),
            to=source_called(key=row.source_key, name=row.source_name),
        )
        return True


def _binding(row: SessionRow) -> tuple[str | None, ...]:
    return row.source_key, row.source_name, row.entry_agent


_NEW_SOURCE: BodyDecoder[api.NewSource] = BodyDecoder(api.NewSource)
_SOURCE_MOVE: BodyDecoder[api.SourceMove] = BodyDecoder(api.SourceMove)
