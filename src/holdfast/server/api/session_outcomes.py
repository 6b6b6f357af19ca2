"""How sessions stand: which of them run, wait for a person, broke off, or failed; and lists of those."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from holdfast.ids import Tenant
from holdfast.server.api.turn_lists import SINCE_S, read_state, turns_in_state, unless_damaged
from holdfast.store.outcomes import ListPage, SessionFilter, SessionInfo
from holdfast.store.rows import SessionRow, TurnRow
from holdfast.store.store import Store
from holdfast.wire.api import objects as api
from holdfast.wire.problems import bad_request

OUTCOMES = ("waiting", "unfinished", "failed")


def read_outcome(query: Mapping[str, str]) -> str | None:
    """The outcome that a client asks for. Raises Refused (400)."""
    outcome = query.get("outcome")
    if outcome is not None and outcome not in OUTCOMES:
        told = "outcome is one of waiting, unfinished and failed"
        raise bad_request("invalid_value", told, param="outcome")
    return outcome


async def sessions_standing(
    store: Store, tenant: Tenant, outcome: str, where: SessionFilter, limit: int
) -> ListPage:
    """The sessions with a turn that had this outcome, lately; one page."""
    rows = await turns_in_state(store, tenant, read_state(outcome), limit=limit)
    ids = dict.fromkeys(each.session_id for each in rows)
    infos = [await unless_damaged(store.info(tenant, each)) for each in ids]
    live = [each for each in infos if each is not None and each.session.state == "live"]
    found = [each for each in live if _fits(each, where)]
    latest = sorted(found, key=lambda each: -each.session.active_ms)
    return ListPage(sessions=tuple(latest), cursor=None)


def _fits(info: SessionInfo, where: SessionFilter) -> bool:
    row = info.session
    named = where.key_prefix is None or any(key.startswith(where.key_prefix) for key in info.keys)
    if not named or (where.anonymous and info.keys):
        return False
    if where.busy is not None and where.busy != (row.open_turn is not None):
        return False
    since, before = where.active_from_ms or 0, where.active_before_ms
    in_time = row.active_ms >= since and (before is None or row.active_ms < before)
    return in_time and where.agent in (None, row.agent)


async def with_outcomes(
    store: Store,
    tenant: Tenant,
    infos: Sequence[SessionInfo],
    shown: Sequence[api.Session],
    *,
    only: str | None,
) -> tuple[api.Session, ...]:
    """These sessions as they are shown, each with how it stands; `only` those that stand like this."""
    since_ms = round((time.time() - SINCE_S) * 1000)
    ids = [each.session.id for each in infos]
    turns = {
        each.session_id: each
        for each in reversed(await store.troubled(tenant, ids, since_ms=since_ms))
    }
    listed = (
        msgspec.structs.replace(each, outcome=outcome_of(info.session, turns.get(info.session.id)))
        for info, each in zip(infos, shown, strict=True)
    )
    if only is None:
        return tuple(listed)
    wanted = ("failed", "unfinished") if only == "failed" else (only,)  # what broke off, failed
    return tuple(each for each in listed if each.outcome in wanted)


def outcome_of(row: SessionRow, turn: TurnRow | None) -> api.SessionOutcome:
    """How a session stands; `turn` is one of it that waits or failed, if there is one."""
    if row.open_turn is not None:
        return "running"
    if turn is not None and turn.state == "committed":
        return "waiting"
    if row.unfinished is not None and row.unfinished == row.head:
        return "unfinished"
    # A failure counts until something is committed after it.
    return "failed" if turn is not None and turn.base_head == row.head else "done"
