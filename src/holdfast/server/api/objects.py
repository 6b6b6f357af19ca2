"""The objects of `/api` and of the command line, made from rows of the store."""

from __future__ import annotations

import msgspec

from holdfast.core.identity import source_called
from holdfast.store.outcomes import SearchMatch, SessionInfo
from holdfast.store.rows import TurnRow
from holdfast.wire.api import objects as api


def session_shown(info: SessionInfo) -> api.Session:
    row = info.session
    return api.Session(
        id=row.id,
        keys=info.keys,
        title=row.title or row.opening,
        agent=row.agent,
        source=source_called(key=row.source_key, name=row.source_name),
        version=row.head,
        items=row.length,
        open_turn=row.open_turn,
        created_at=row.created_ms / 1000,
        active_at=row.active_ms / 1000,
        attributes=dict(row.settings.attributes),
        family=row.family,
        forked_from=row.lineage[-1].session_id if row.lineage else None,
    )


def match_shown(match: SearchMatch) -> api.Session:
    """A session that a search has found, with the place of the match."""
    found = api.Match(
        where="title" if match.item is None else "message",
        item=match.item,
        position=match.position,
        excerpt=tuple(api.Excerpt(text=each.text, hit=each.hit) for each in match.excerpt),
        line=match.line,
    )
    return msgspec.structs.replace(session_shown(match.info), match=found)


def turn_shown(row: TurnRow) -> api.TurnObject:
    return api.TurnObject(
        id=row.turn_id,
        session_id=row.session_id,
        state=row.state,
        ended_by=row.ended_by,
        detail=row.detail,
        base=row.base_head,
        version=row.seq,
        attempt=row.attempt,
        agent=row.agent,
        usage=api.UsageObject.of(row.usage),
        began_at=row.began_ms / 1000,
        ended_at=row.ended_ms / 1000 if row.ended_ms else None,
        continues=row.continues,
    )
