"""Played turns as the rows of a session, ready to be imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.core.codec import Value, encode
from holdfast.core.history import chain
from holdfast.core.history.conversation import Annotation, Notes, Patch, annotated
from holdfast.core.turns.turn import Turn, committed_items
from holdfast.errors import InvalidId
from holdfast.ids import ItemId, SessionId, SessionKey, Tenant, Version
from holdfast.peers.foreign_conversation import ForeignConversation
from holdfast.store.first_words import opening_of
from holdfast.store.outcomes import SessionDump
from holdfast.store.rows import AnnotationRow, ItemRow, KeyRow, SessionRow, TurnRow
from holdfast.store.transfer.import_checks import path_of


class PlayedTurn(Value):
    """A turn that has ended, and when."""

    turn: Turn
    began_ms: int
    ended_ms: int


class Note(Value):
    """An annotation of the session, or of an item."""

    patch: Patch
    item: ItemId | None = None


def dump_of(
    foreign: ForeignConversation,
    played: Sequence[PlayedTurn],
    *,
    tenant: Tenant,
    session_id: SessionId,
    blobs: Mapping[str, bytes],
    notes: Iterable[Note] = (),
) -> SessionDump:
    """The session of these turns. No agent is bound to it: the agent of the next request continues it."""
    turns: list[TurnRow] = []
    items: list[ItemRow] = []
    link = chain.GENESIS
    for each in played:
        bodies = [encode(item) for item in committed_items(each.turn)]
        row = _row(each, bodies, link, start=len(items), tenant=tenant, session_id=session_id)
        items += (
            ItemRow(
                tenant=tenant,
                session_id=session_id,
                pos=row.start + n,
                turn_id=row.turn_id,
                path=path_of(body),
                body=body,
            )
            for n, body in enumerate(bodies)
        )
        turns.append(row)
        link = row.link
    turns[-1] = msgspec.structs.replace(turns[-1], usage=turns[-1].usage + foreign.usage)
    annotations = tuple(
        Annotation(rev=rev, patch=each.patch, item=each.item, at_ms=turns[-1].ended_ms)
        for rev, each in enumerate(notes, start=1)
    )
    known = annotated(Notes(), annotations)
    session = SessionRow(
        tenant=tenant,
        id=session_id,
        head=Version(len(turns)),
        length=len(items),
        link=link,
        title=known.title,
        settings=known.settings,
        meta_rev=known.rev,
        summary_rev=known.summary_rev,
        opening=opening_of(item for each in played for item in committed_items(each.turn)),
        created_ms=foreign.created_ms,
        active_ms=turns[-1].ended_ms,
    )
    return SessionDump(
        session=session,
        keys=_keys(foreign, session),
        turns=tuple(turns),
        items=tuple(items),
        state=(),
        annotations=tuple(
            AnnotationRow(
                tenant=tenant,
                session_id=session_id,
                rev=each.rev,
                item=each.item,
                patch=encode(each.patch),
                at_ms=each.at_ms,
            )
            for each in annotations
        ),
        blobs=tuple(sorted(blobs.items())),
    )


def _row(
    played: PlayedTurn,
    bodies: Sequence[bytes],
    previous: bytes,
    *,
    start: int,
    tenant: Tenant,
    session_id: SessionId,
) -> TurnRow:
    turn = played.turn
    assert turn.ended is not None
    turn_id, ended_by, base = turn.request.turn_id, turn.ended.by, turn.request.base
    seq = Version(base + 1)
    header = chain.LinkHeader(turn_id=turn_id, version=seq, ended_by=ended_by, agent=turn.agent)
    return TurnRow(
        tenant=tenant,
        turn_id=turn_id,
        session_id=session_id,
        base_head=base,
        state="committed",
        seq=seq,
        ended_by=ended_by,
        detail=turn.interrupted.told if turn.interrupted else "",
        agent=turn.agent,
        start=start,
        end=start + len(bodies),
        link=chain.link(previous, header, items=bodies, changes=()),
        usage=turn.usage,
        began_ms=played.began_ms,
        ended_ms=played.ended_ms,
    )


def _keys(foreign: ForeignConversation, session: SessionRow) -> tuple[KeyRow, ...]:
    """Its old name as a session key, if it is a valid one, so that a client can continue under that name."""
    try:
        key = SessionKey(foreign.id)
    except InvalidId:
        return ()
    return (KeyRow(tenant=session.tenant, key=key, session_id=session.id),)
