"""`/api/grants`: remembered approvals (grants), to list and revoke.

A decision with `remember` makes one (`server/api/approvals.py`): for its session, or for the agent. A grant for the
agent holds in all of the tenant's conversations with it, and needs a key with the scope `admin`. `core/grants.py`
decides which calls a grant covers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast import limits
from holdfast.agents.remote_files import shown_key
from holdfast.core.grants import canonical, held_by, holder
from holdfast.core.items import ToolCall
from holdfast.errors import InvalidId, SessionMissing
from holdfast.ids import GrantId, SessionId
from holdfast.observe.events import audit
from holdfast.server.access.authentication import insufficient, may
from holdfast.server.http.parameters import LIMIT, Parameter
from holdfast.server.http.routing import AnswerDescription, Caller, HttpCall, Route
from holdfast.store.outcomes import GrantFilter
from holdfast.store.rows import GrantRow
from holdfast.store.store import Store
from holdfast.wire.api import objects as api
from holdfast.wire.openai.pages import read_limit
from holdfast.wire.problems import Refused, bad_request, permanent

TOO_MANY = permanent(
    409,
    "too_many_grants",
    f"at most {limits.grants_max} approvals are remembered for one agent; revoke some, "
    "or list the tool under 'allow' in the agent's file",
)


class GrantsApi:
    """The endpoints, and the grants that decisions make. One instance serves every request."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @Route(
        "GET /api/grants",
        "read",
        "listGrants",
        AnswerDescription("Some of them, the oldest first.", api.Grants),
        parameters=(
            LIMIT,
            Parameter("after", "Continue after the grant with this id."),
            Parameter("agent", "Only grants of this agent."),
        ),
        codes=("grant_not_found",),
    )
    async def every(self, call: HttpCall) -> None:
        """The approvals that are remembered for agents.

        The oldest first, revoked ones included;
        see [remembering](../guides/approvals.md#remembering).
        """
        limit = read_limit(call.query)
        after = _grant_id(text) if (text := call.query.get("after")) else None
        where = GrantFilter(agent=call.query.get("agent"))
        rows = await self._store.grants(call.tenant, where, after=after, limit=limit + 1)
        page = api.Grants(grants=tuple(map(_shown, rows[:limit])), has_more=len(rows) > limit)
        await call.say(page)

    @Route(
        "DELETE /api/grants/{grant}",
        "admin",
        "revokeGrant",
        AnswerDescription("The approval, as it stands now.", api.GrantObject),
        audit="approval.revoke",
    )
    async def revoke(self, call: HttpCall) -> None:
        """Revoke a remembered approval.

        Calls that have begun go on; it approves no others.
        """
        (text,) = call.names
        row = await self._store.revoke_grant(call.tenant, _grant_id(text))
        if row is None:
            raise SessionMissing("grant", text)
        await call.say(_shown(row))

    async def prepare(
        self,
        caller: Caller,
        decided: Sequence[tuple[ToolCall, api.Decision]],
        source_key: str,
        session_id: SessionId,
    ) -> tuple[GrantRow, ...]:
        """The grants that these decisions ask for. Raises Refused if one cannot be made, or not by this caller."""
        if any(each.arguments == "any" and each.remember != "agent" for _, each in decided):
            words = "'arguments' says what is remembered for an agent"
            raise bad_request("invalid_value", words, param="arguments")
        approved = [(call, each) for call, each in decided if each.approve and each.remember]
        if any(each.remember == "agent" for _, each in approved) and not may(
            caller.scopes, "admin"
        ):
            raise Refused(insufficient(caller, "admin"))
        rows = tuple(self._row(caller, *each, source_key, session_id) for each in approved)
        for whose, fresh in Counter(row.agent for row in rows).items():
            where = GrantFilter(source_key=source_key, agent=whose, live=True)
            known = await self._store.grants(caller.tenant, where, limit=limits.grants_max)
            if len(known) + fresh > limits.grants_max:
                raise Refused(TOO_MANY)
        return rows

    async def remember(self, rows: Sequence[GrantRow]) -> None:
        for row in rows:
            await self._store.put_grant(row)
            audit(
                "approval.remember",
                tenant=row.tenant,
                key=row.made_by,
                about=row.grant_id,
                agent=held_by(row.agent)[0],
                session=held_by(row.agent)[1],
                tool=row.tool,
                exact=row.arguments is not None,
            )

    def _row(
        self,
        caller: Caller,
        call: ToolCall,
        decision: api.Decision,
        source_key: str,
        session_id: SessionId,
    ) -> GrantRow:
        here = decision.remember == "session"
        exact = decision.arguments == "exact" and not here
        arguments = canonical(call.arguments) if exact else None
        size = len(arguments.encode()) if arguments else 0
        if not call.fingerprint or (exact and not 0 < size <= limits.grant_arguments_bytes_max):
            words = f"the approval of {call.name!r} cannot be remembered: its tool or its arguments cannot be recognised"
            raise bad_request("invalid_value", words, param="remember")
        return GrantRow(
            tenant=caller.tenant,
            # A retry of the same approval makes the same grant.
            grant_id=GrantId.from_body(call.id.body),
            source_key=source_key,
            agent=holder(call.agent, session_id) if here else call.agent,
            tool=call.name,
            fingerprint=call.fingerprint,
            arguments=arguments,
            call=call.id,
            made_by=caller.key_id,
        )


def _grant_id(text: str) -> GrantId:
    try:
        return GrantId(text)
    except InvalidId as error:
        raise SessionMissing("grant", text) from error


def _shown(row: GrantRow) -> api.GrantObject:
    agent, session_id = held_by(row.agent)
    return api.GrantObject(
        id=row.grant_id,
        source=shown_key(row.source_key),
        agent=agent,
        session=session_id,
        tool=row.tool,
        arguments=row.arguments,
        call=row.call,
        made_at=row.grant_id.minted_at_ms / 1000,
        made_by=row.made_by,
        revoked_at=None if row.revoked_ms is None else row.revoked_ms / 1000,
    )
