"""The content of an answer, from a turn that has ended on this node or another one."""

from __future__ import annotations

import msgspec

from holdfast.core.codec import Unreadable, Value
from holdfast.core.items import Blob, Item, Items
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record, decode_records
from holdfast.errors import SessionMissing
from holdfast.ids import ItemId, Tenant, TurnId
from holdfast.server.problems import ContinuationAdvice, problem_of_ending
from holdfast.server.turns.turn_failures import UpstreamFailed
from holdfast.sessions.session_requests import Ending
from holdfast.sessions.turns.store_retries import persistently
from holdfast.sessions.turns.watch import Watch, journaled
from holdfast.store.rows import TurnRow
from holdfast.store.store import Store
from holdfast.wire.headers import (
    CONVERSATION_BASE,
    CONVERSATION_CREATED,
    CONVERSATION_DIVERGED,
    SESSION_ID,
    TURN_CONTINUES,
    TURN_ID,
    ConversationHeaders,
)
from holdfast.wire.pictures import is_without_pictures, pictures_in, with_pictures
from holdfast.wire.problems import Problem
from holdfast.wire.turn_answers import AnswerEnd


async def end_of(
    store: Store,
    tenant: Tenant,
    watch: Watch,
    *,
    stored: bool,
    before: Items = (),
    known_again: bool = False,
) -> AnswerEnd | Problem:
    """Wait for a turn's end, and return its answer, or the problem if it has none.

    `before` has the items of the turns that it continues. `known_again` says whether a retry of the request would be
    recognised.
    """
    ending = await ending_of_watched(watch, stored=stored)
    if not is_answered(ending):
        return await problem_for(
            store, tenant, watch, ending, stored=stored, known_again=known_again
        )
    content = await content_of(store, tenant, watch, ending)
    return AnswerEnd(
        items=(*before, *content.items),
        usage=content.usage,
        version=ending.version if stored else None,
        limited=ending.by == "limit",
        filtered=content.filtered,
    )


async def ending_of_watched(watch: Watch, *, stored: bool) -> Ending:
    """Wait for a turn's end, on whichever node it is played."""
    try:
        return await watch.ended()
    except SessionMissing:
        if stored:
            raise
        # It was lost with its node, and a turn that is not stored cannot be resumed.
        return _lost(watch)


def is_answered(ending: Ending) -> bool:
    """Whether a turn has an answer, cut short by a limit or not."""
    return ending.kept and ending.by in ("completed", "limit")


def _lost(watch: Watch) -> Ending:
    admission = watch.admission
    return Ending(
        turn_id=admission.turn_id, session_id=admission.session_id, kept=False, by="superseded"
    )


async def said_before(store: Store, tenant: Tenant, watch: Watch) -> Items:
    """The items of the turns that a watched turn continues."""
    admission = watch.admission
    snapshot = watch.live.snapshot if watch.live else None
    if snapshot is None:
        snapshot = await persistently(
            lambda: store.snapshot(tenant, admission.session_id, version=admission.base)
        )
    return snapshot.said_by(snapshot.marks[-1]) if snapshot and snapshot.marks else ()


async def problem_for(
    store: Store,
    tenant: Tenant,
    watch: Watch,
    ending: Ending,
    *,
    stored: bool,
    known_again: bool = False,
) -> Problem:
    """The problem to answer with for a turn without an answer. `known_again` says whether a retry of its request would
    be recognised."""
    way_on: ContinuationAdvice | None = None
    if stored:
        way_on = await _way_on(store, tenant, watch, ending, known_again)
    else:
        ending = msgspec.structs.replace(
            ending, kept=False
        )  # it was kept only while its request lasted
    live = watch.live
    if live is None:
        return problem_of_ending(ending, acted=None, way_on=way_on)
    error = live.error
    if not isinstance(error, UpstreamFailed) or ending.by != "model_error":
        return problem_of_ending(ending, acted=live.turn.acted, way_on=way_on)
    return problem_of_ending(
        ending,
        acted=live.turn.acted,
        transient=error.transient,
        retry_after_s=error.retry_after_s,
        way_on=way_on,
    )


async def _way_on(
    store: Store, tenant: Tenant, watch: Watch, ending: Ending, known_again: bool
) -> ContinuationAdvice | None:
    """How a client can continue what a turn has left behind; None if it has left nothing."""
    admission = watch.admission
    version, turn_id = ending.version, ending.turn_id
    if version is None and admission.continues is not None:
        version, turn_id = admission.base, admission.continues
    if version is None:
        return None
    session = await persistently(lambda: store.session(tenant, ending.session_id))
    if session is None or session.state == "deleted":
        return ContinuationAdvice(turn_id=turn_id)
    is_last = session.unfinished == session.head == version
    # A replay shows a stored failure; if a retry could have continued the turn, it would not be a replay.
    would = known_again and admission.how != "replayed" and bool(session.retries_left)
    return ContinuationAdvice(turn_id=turn_id, by_retry=is_last and would, by_hand=is_last)


class AnswerContent(Value):
    """The items and usage of a kept turn."""

    items: tuple[Item, ...]
    usage: ev.Usage
    filtered: bool = False
    """A content filter cut off the model's last message."""


async def content_of(store: Store, tenant: Tenant, watch: Watch, ending: Ending) -> AnswerContent:
    """The content of a kept turn: from memory if this node played it, else from the store. Pictures that agents made
    are in it with their bytes."""
    content = await _content(store, tenant, watch, ending)
    if all(map(is_without_pictures, content.items)):
        return content
    names = {
        part.source.digest
        for each in content.items
        for part in pictures_in(each)
        if isinstance(part.source, Blob)
    }
    data = {each: await _blob(store, tenant, watch, ending, each) or b"" for each in names}
    items = tuple(with_pictures(each, data) for each in content.items)
    return msgspec.structs.replace(content, items=items)


async def _blob(
    store: Store, tenant: Tenant, watch: Watch, ending: Ending, digest: str
) -> bytes | None:
    if watch.live is not None:  # which also has the blobs of a turn that is not stored
        return await watch.live.blob(digest)
    return await store.blob(tenant, ending.session_id, digest)


async def _content(store: Store, tenant: Tenant, watch: Watch, ending: Ending) -> AnswerContent:
    live = watch.live
    if live is not None and live.turn.ended is not None:
        turn = live.turn
        filtered = turn.root.finish == "content_filter"
        return AnswerContent(items=tuple(turn.items), usage=turn.usage, filtered=filtered)
    row = await persistently(lambda: store.turn(tenant, ending.turn_id))
    snapshot = await persistently(
        lambda: store.snapshot(tenant, ending.session_id, version=ending.version)
    )
    assert row is not None and snapshot is not None, "a committed turn is there"
    items = tuple(
        each for each in snapshot.items[row.start : row.end] if not isinstance(each, Unreadable)
    )
    filtered = await _was_filtered(store, tenant, row)
    return AnswerContent(items=items, usage=row.usage, filtered=filtered)


async def _was_filtered(store: Store, tenant: Tenant, row: TurnRow) -> bool:
    """Whether a content filter cut off the model's last message. Only the journal says so, if it was kept."""
    last = await _last_answer(store, tenant, row.turn_id) if row.replayable else None
    return last is not None and last.finish == "content_filter"


async def _last_answer(store: Store, tenant: Tenant, turn_id: TurnId) -> ev.Answered | None:
    rows = await store.journal(tenant, turn_id)
    records = (record for row in rows for record in decode_records(row.records))
    events = [each.event for each in records if isinstance(each, Record)]
    said = [each for each in events if isinstance(each, ev.Answered) and not each.path]
    return said[-1] if said else None


async def set_aside_in(store: Store, tenant: Tenant, watch: Watch) -> frozenset[ItemId]:
    """Items that a turn from an earlier attempt has set aside, as far as its journal says by now.

    A turn that begins with this request has none yet.
    """
    if watch.admission.how == "began":
        return frozenset()
    journal = journaled(store, tenant, watch.admission.turn_id, 0)
    events = [each.event async for records in journal for each in records]
    broken = (each for each in events if isinstance(each, ev.StepBroken) and not each.path)
    return frozenset(item.id for step in broken for item in step.items if item.state == "set_aside")


def conversation_headers(naming: ConversationHeaders, watch: Watch) -> dict[str, str]:
    """Headers that say which turn and conversation an answer belongs to. If the request named no conversation, they do
    not name one either."""
    admission = watch.admission
    headers = {TURN_ID.name: str(admission.turn_id)}
    if admission.continues is not None:
        headers[TURN_CONTINUES.name] = str(admission.continues)
    if naming.name is None:
        return headers
    headers[SESSION_ID.name] = str(admission.session_id)
    if admission.base is not None:
        headers[CONVERSATION_BASE.name] = str(int(admission.base))
    if admission.created:
        headers[CONVERSATION_CREATED.name] = "true"
    if admission.diverged:
        headers[CONVERSATION_DIVERGED.name] = "true"
    return headers
