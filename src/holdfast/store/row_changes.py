"""The new rows when a turn begins or is queued, and when a session is forked, annotated, deleted or moved.

Pure functions, shared by all homes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast import limits
from holdfast.core.history import chain
from holdfast.core.history.conversation import Annotation, Lineage, Notes, Patch, annotated
from holdfast.core.items import SessionSettings
from holdfast.errors import InvalidValue, SessionGone, SessionMissing
from holdfast.ids import ItemId, NodeId, SessionId, Tenant, TurnId
from holdfast.store.outcomes import Anonymous, Attempt, Begin, Fence, SummaryMoved
from holdfast.store.rows import SessionRow, TurnRow, TurnState


def demand_live(session: SessionRow | None, session_id: SessionId) -> SessionRow:
    """The session, if it exists and is not deleted. Raises SessionMissing or SessionGone."""
    if session is None:
        raise SessionMissing("session", session_id)
    if session.state == "deleted":
        raise SessionGone(session_id, why="deleted")
    return session


def empty_session(
    tenant: Tenant,
    session_id: SessionId,
    *,
    now_ms: int,
    anonymous: bool = False,
    family: SessionId | None = None,
) -> SessionRow:
    """A session without a turn: a reset binds its key to one."""
    return SessionRow(
        tenant=tenant,
        id=session_id,
        link=chain.GENESIS,
        anonymous=anonymous,
        family=family,
        created_ms=now_ms,
        active_ms=now_ms,
    )


# ── turns ────────────────────────────────────────────────────────────────────────────────────


def new_session(ask: Begin, fence: Fence, *, now_ms: int) -> SessionRow:
    """The session that a first turn makes and holds."""
    made = empty_session(
        ask.tenant,
        fence.session_id,
        now_ms=now_ms,
        anonymous=isinstance(ask.target, Anonymous),
        family=fence.session_id if is_followed(ask) else None,
    )
    return msgspec.structs.replace(made, **held_by(fence, ask.node))


def is_followed(ask: Begin) -> bool:
    """Whether a request follows its client's history, under a name that stands for a family."""
    return ask.request.followed is not None and bool(ask.request.followed.name)


def held_by(fence: Fence, node: NodeId) -> dict[str, Any]:
    """The columns of a session after which only this fence may write it."""
    return {
        "open_turn": fence.turn_id,
        "lease_token": fence.token,
        "lease_nonce": fence.nonce,
        "lease_node": node,
    }


def new_turn(
    ask: Begin,
    session_id: SessionId,
    state: TurnState,
    *,
    retry_of: TurnId | None,
    began_ms: int,
    lease_token: int = 0,
    continued: TurnRow | None = None,
    family: SessionId | None = None,
) -> TurnRow:
    """The turn that a request begins, or that waits for its session. A continuation has the request hash of the turn
    that it continues, so that a retry of the same request is recognised."""
    request, attempt = ask.request, ask.attempt
    if continued is not None:
        client_attempt = max(continued.client_attempt, attempt.client_attempt)
        attempt = Attempt(request_hash=continued.request_hash, client_attempt=client_attempt)
    return TurnRow(
        tenant=ask.tenant,
        turn_id=request.turn_id,
        session_id=session_id,
        base_head=request.base,
        state=state,
        retry_of=retry_of,
        client_attempt=attempt.client_attempt,
        lease_token=lease_token,
        agent=request.agent,
        source_digest=request.source_digest,
        request_hash=attempt.request_hash,
        replayable=request.replayable,
        began_ms=began_ms,
        continues=continued.turn_id if continued is not None else None,
        family=family,
    )


def place_in_queue(ask: Begin, behind: Sequence[TurnRow], now_ms: int) -> int:
    """`began_ms` of a queued turn until it is opened: its place after the queued turns `behind`, or ahead of them. No two
    queued turns of a session have the same, and a turn ahead of the others gets an earlier time than theirs."""
    if not behind:
        return now_ms
    first_ms, last_ms = behind[0].began_ms, behind[-1].began_ms
    return first_ms - 1 if ask.ahead else max(now_ms, last_ms + 1)


# ── sessions ─────────────────────────────────────────────────────────────────────────────────


def bound_to(source_key: str, source_name: str | None, entry_agent: str) -> dict[str, Any]:
    """The columns by which a session finds its agents."""
    return {
        "source_key": source_key,
        "source_name": source_name or None,
        "entry_agent": entry_agent,
    }


def forked_session(
    parent: SessionRow,
    fresh: SessionId,
    *,
    lineage: Lineage,
    turn: TurnRow | None,
    notes: Notes,
    now_ms: int,
    anonymous: bool = False,
) -> SessionRow:
    """A session that begins as `parent` stood at the end of `lineage`.

    `turn` made that version (None for version 0); `notes` are the annotations at that version.
    """
    here = lineage[-1]
    return SessionRow(
        tenant=parent.tenant,
        id=fresh,
        head=here.upto_version,
        length=here.upto_pos,
        link=turn.link if turn else chain.GENESIS,
        source_key=parent.source_key if turn else "",
        source_name=parent.source_name if turn else None,
        entry_agent=parent.entry_agent if turn else "",
        agent=turn.agent if turn else "",
        lineage=lineage,
        settings=notes.settings,
        meta_rev=here.upto_rev,
        summary_rev=notes.summary_rev,
        title=notes.title,
        opening=parent.opening if turn else "",
        anonymous=parent.anonymous or anonymous,
        created_ms=now_ms,
        active_ms=now_ms,
    )


def annotate_session(
    session: SessionRow,
    patches: Sequence[tuple[ItemId | None, Patch]],
    *,
    summary_rev: int | None,
    now_ms: int,
) -> tuple[dict[str, Any], tuple[Annotation, ...]] | SummaryMoved:
    """What changes in the session's row with these patches, and the annotations that they make."""
    if summary_rev is not None and summary_rev != session.summary_rev:
        return SummaryMoved(summary_rev=session.summary_rev)
    made = tuple(
        Annotation(rev=rev, patch=patch, item=item, at_ms=now_ms)
        for rev, (item, patch) in enumerate(patches, start=session.meta_rev + 1)
    )
    known = Notes(
        rev=session.meta_rev,
        title=session.title,
        settings=session.settings,
        summary_rev=session.summary_rev,
    )
    notes = annotated(known, made)
    _demand_bounded(notes.settings)
    columns = {
        "meta_rev": notes.rev,
        "summary_rev": notes.summary_rev,
        "title": notes.title,
        "settings": notes.settings,
    }
    return columns, made


def _demand_bounded(settings: SessionSettings) -> None:
    """Refuse settings beyond their bounds: they could be written, but never read again. Raises InvalidValue."""
    if len(settings.attributes) > limits.attributes_max:
        raise InvalidValue(f"a session has at most {limits.attributes_max} attributes")
    if len(settings.permissions.granted) > limits.granted_tools_max:
        raise InvalidValue(f"a session remembers at most {limits.granted_tools_max} tools")


def deleted(session: SessionRow) -> dict[str, Any]:
    """What changes when a session becomes a tombstone: its holder may not write any more, and nothing personal is left
    in the row."""
    return {
        "state": "deleted",
        "lease_token": session.lease_token + 1,
        "lease_nonce": "",
        "lease_node": None,
        "open_turn": None,
        "title": "",
        "opening": "",
        "settings": SessionSettings(),
    }


def ended_turns(turns: Iterable[TurnRow]) -> tuple[TurnRow, ...]:
    """The turns that have ended, by id: the order of a dump."""
    return tuple(sorted(filter(has_ended, turns), key=lambda each: each.turn_id))


def has_ended(turn: TurnRow) -> bool:
    """Whether a turn has ended. Dumps leave out open and queued turns: only the present store can play them."""
    return turn.state in ("committed", "discarded")


def at_rest(session: SessionRow) -> SessionRow:
    """The row without the columns that only concern the present store: lease, open turn, and unfinished head."""
    return msgspec.structs.replace(
        session,
        lease_token=0,
        lease_nonce="",
        lease_node=None,
        open_turn=None,
        unfinished=None,
        retries_left=None,
    )
