"""`/api/turns` and `/api/approvals`: what goes on in all sessions of a tenant, and what waits for a person.

A list reads the turns that are in one state, by an index, and never all of them. First turns are there too, though
their sessions are in no list before they are committed.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Iterable, Sequence
from typing import Literal, TypeAlias, TypeVar, assert_never, cast, get_args

import msgspec

from holdfast import limits
from holdfast.core.codec import Unreadable
from holdfast.core.items import ToolCall
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record, decode_records
from holdfast.errors import StoreDamaged
from holdfast.ids import NodeId, SessionId, Tenant
from holdfast.server.api.objects import turn_shown
from holdfast.server.http.parameters import LIMIT, Parameter, Seconds
from holdfast.server.http.routing import AnswerDescription, HttpCall, Route
from holdfast.store.rows import JournalRow, TurnRow
from holdfast.store.store import Store
from holdfast.wire.api import objects as api
from holdfast.wire.openai.pages import read_page
from holdfast.wire.problems import bad_request

ListedState: TypeAlias = Literal["open", "waiting", "unfinished", "failed"]

SINCE_S = 7 * 86_400.0
"""How far back a list goes if it is not told: discarded turns are kept as long."""


class TurnLists:
    """The endpoints. One instance serves every request."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @Route(
        "GET /api/turns",
        "read",
        "listAllTurns",
        AnswerDescription("The turns, the newest first.", api.ListedTurns),
        parameters=(
            Parameter(
                "state",
                "`open`: being played, or queued; `waiting`: for a person's approval; `unfinished`: broken off, and can "
                "be continued; `failed`: lately, kept or discarded.",
                ListedState,
            ),
            Parameter(
                "since", "Only turns since this time, in seconds; not for open ones.", Seconds
            ),
            LIMIT,
        ),
    )
    async def list(self, call: HttpCall) -> None:
        """The turns of all sessions that are in a state: open ones, unless another state is asked for."""
        state = read_state(call.query.get("state", "open"))
        limit = read_page(call.query).limit
        found = await listed_turns(
            self._store, call.tenant, state, since_s=_since(call), limit=limit
        )
        await call.say(api.ListedTurns(turns=found))

    @Route(
        "GET /api/approvals",
        "read",
        "listAllApprovals",
        AnswerDescription("The calls, those of the newest turn first.", api.ApprovalInbox),
        parameters=(LIMIT,),
    )
    async def approvals(self, call: HttpCall) -> None:
        """The calls of all sessions that wait for a person's decision."""
        limit = read_page(call.query).limit
        found = await waiting_calls(self._store, call.tenant, limit=limit)
        await call.say(api.ApprovalInbox(approvals=found))


async def listed_turns(
    store: Store, tenant: Tenant, state: ListedState, *, since_s: float | None = None, limit: int
) -> tuple[api.ListedTurn, ...]:
    """The turns of a tenant that are in a state, the newest first; since a time, except for open ones."""
    now_s = time.time()
    if state == "open":
        found = await _open_turns(store, tenant, now_s, limit)
    else:
        rows = await turns_in_state(store, tenant, state, since_s=since_s, limit=limit)
        found = tuple(_listed(row, now_s) for row in rows)
    return await _with_session_names(store, tenant, found)


async def turns_in_state(
    store: Store, tenant: Tenant, state: ListedState, *, since_s: float | None = None, limit: int
) -> tuple[TurnRow, ...]:
    """The turns of a tenant that have ended and are in a state since a time, the newest first."""
    now_s = time.time()
    since_ms = round((now_s - SINCE_S if since_s is None else since_s) * 1000)
    match state:
        case "open":
            return ()
        case "waiting":
            since_ms = max(since_ms, round((now_s - limits.approval_s) * 1000))
            return await store.asking(tenant, since_ms=since_ms, limit=limit)
        case "unfinished":
            return await store.unfinished(tenant, since_ms=since_ms, limit=limit)
        case "failed":
            return await store.failures(tenant, since_ms=since_ms, limit=limit)
        case _:
            assert_never(state)


async def waiting_calls(store: Store, tenant: Tenant, *, limit: int) -> tuple[api.InboxCall, ...]:
    """The calls of a tenant that wait for a decision which can be made, those of the newest turn first."""
    since_ms = round((time.time() - limits.approval_s) * 1000)
    found: list[api.InboxCall] = []
    for row in await store.asking(tenant, since_ms=since_ms, limit=limit):
        snapshot = await unless_damaged(store.snapshot(tenant, row.session_id))
        if snapshot is None or snapshot.version != row.seq:
            continue  # it was decided meanwhile
        expires_s = row.turn_id.minted_at_ms / 1000 + limits.approval_s
        found += (
            api.InboxCall(
                id=each.id,
                name=each.name,
                arguments=each.arguments,
                agent=each.agent,
                expires_at=expires_s,
                turn_id=row.turn_id,
                session_id=row.session_id,
                asked_at=row.ended_ms / 1000,
            )
            for each in snapshot.asked
        )
    return await _with_session_names(store, tenant, found[:limit])


_Row = TypeVar("_Row", api.ListedTurn, api.InboxCall)


async def _with_session_names(
    store: Store, tenant: Tenant, rows: Sequence[_Row]
) -> tuple[_Row, ...]:
    """These rows, each with what people and clients call its session."""
    names: dict[str, tuple[str, str | None]] = {}
    for session_id in dict.fromkeys(each.session_id for each in rows):
        info = await unless_damaged(store.info(tenant, SessionId(session_id)))
        row = info and info.session
        title = (row.title or row.opening) if row else ""
        names[session_id] = title, info.keys[0] if info and info.keys else None
    return tuple(
        msgspec.structs.replace(
            each, session_title=names[each.session_id][0], session_key=names[each.session_id][1]
        )
        for each in rows
    )


_Read = TypeVar("_Read")


async def unless_damaged(reading: Awaitable[_Read]) -> _Read | None:
    """The outcome of a read, or None if it meets damage: a list goes on without that session. The store has told the
    operator."""
    try:
        return await reading
    except StoreDamaged:
        return None


async def _open_turns(
    store: Store, tenant: Tenant, now_s: float, limit: int
) -> tuple[api.ListedTurn, ...]:
    found: list[api.ListedTurn] = []
    for each in await store.playing(tenant, limit=limit):
        row = await unless_damaged(store.turn(tenant, each.turn_id))
        if row is not None and row.state == "open":
            agent, tool = await unless_damaged(_progress(store, row)) or ("", None)
            shown = _listed(row, now_s, node=each.node, tool=tool)
            found.append(msgspec.structs.replace(shown, agent=row.agent or agent))
    for waiting in await store.queued(limit=2 * limits.background_queued_max):
        if waiting.tenant == tenant and len(found) < limit:
            row = await unless_damaged(store.turn(tenant, waiting.turn_id))
            found += [] if row is None or row.state != "queued" else [_listed(row, now_s)]
    return tuple(sorted(found, key=lambda each: each.id, reverse=True))


async def _progress(store: Store, row: TurnRow) -> tuple[str, str | None]:
    """The agent of an open turn, and the tools that run in it, by its journal."""
    agent = ""
    calls: dict[str, str] = {}
    running: dict[str, str] = {}
    for record in _records(await store.journal(row.tenant, row.turn_id)):
        match record.event:
            case ev.Began(request=request):
                agent = request.agent
                calls.update((each.id, each.name) for each in request.carried)
            case ev.Answered(items=items):
                calls.update((each.id, each.name) for each in items if isinstance(each, ToolCall))
            case ev.ToolStarted(call=call) | ev.BranchOpened(call=call):
                running[call] = calls.get(call, "?")
            case ev.ToolFinished(result=result):
                running.pop(result.call, None)
            case _:
                pass
    return agent, ", ".join(running.values()) or None


def _records(rows: Iterable[JournalRow]) -> Iterable[Record]:
    for row in rows:
        for record in decode_records(row.records):
            if not isinstance(record, Unreadable):
                yield record


def _listed(
    row: TurnRow, now_s: float, *, node: NodeId | None = None, tool: str | None = None
) -> api.ListedTurn:
    shown = turn_shown(row)
    return api.ListedTurn(
        **{name: getattr(shown, name) for name in shown.__struct_fields__},
        node=node,
        tool=tool,
        age_s=max(0.0, (row.ended_ms / 1000 if row.ended_ms else now_s) - shown.began_at),
    )


def read_state(text: str) -> ListedState:
    """The state that a client names. Raises Refused (400)."""
    for known in get_args(ListedState):
        if known == text:
            return cast("ListedState", known)
    raise bad_request(
        "invalid_value", "state is one of open, waiting, unfinished and failed", param="state"
    )


def _since(call: HttpCall) -> float | None:
    text = call.query.get("since")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e12:
        raise bad_request("invalid_value", "since is a time in seconds", param="since")
    return seconds
