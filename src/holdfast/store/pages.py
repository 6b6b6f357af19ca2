"""Lists of sessions: their order, what a filter lets through, and where the next page begins.

A page ends at a session, and the next one begins after it: by last activity, then by id. So a session that
becomes active while somebody leafs through goes to the front; none is shown twice, none of the rest left out.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import TypeAlias

import msgspec

from holdfast.core.codec import Decoder, Value, encode
from holdfast.errors import InvalidCursor
from holdfast.ids import SessionId, SessionKey
from holdfast.store.outcomes import ListPage, Results, SearchMatch, SessionFilter, SessionInfo
from holdfast.store.rows import SessionRow

Place: TypeAlias = tuple[int, str]
"""Last activity and id. A list shows what is smaller than a place, the greatest first."""

BEGINNING: Place = ((1 << 63) - 1, "~")
"""Greater than every session's place, and still an integer and a text to any database."""


def place_of(session: SessionRow) -> Place:
    return session.active_ms, session.id


def is_listed(session: SessionRow, keys: Sequence[SessionKey], where: SessionFilter) -> bool:
    """Whether a session is to be seen in a list with this filter."""
    if session.state != "live" or session.head == 0 or session.anonymous != where.anonymous:
        return False
    if where.agent is not None and session.agent != where.agent:
        return False
    prefix = where.key_prefix
    if prefix is not None and not any(key.startswith(prefix) for key in keys):
        return False
    if where.active_from_ms is not None and session.active_ms < where.active_from_ms:
        return False
    if where.active_before_ms is not None and session.active_ms >= where.active_before_ms:
        return False
    if where.busy is not None and where.busy != (session.open_turn is not None):
        return False
    return set(where.attributes) <= set(session.settings.attributes)


# ── cursors ──────────────────────────────────────────────────────────────────────────────────

_CHECK_BYTES = 6
_after: Decoder[tuple[int, SessionId]] = Decoder(tuple[int, SessionId])
_within: Decoder[tuple[int, SessionId, int]] = Decoder(tuple[int, SessionId, int])


class Within(Value):
    """A session that a search has looked through down to a position."""

    session_id: SessionId
    before: int


def cursor_after(session: SessionRow, *, before: int | None = None) -> str:
    """Where a list goes on after this session, as an opaque word; a search also inside it, before a position.

    Its check finds slips of the pen, not forgers: there is nothing to be gained by forging it.
    """
    place = place_of(session)
    said = encode(place if before is None else (*place, before))
    return urlsafe_b64encode(_check(said) + said).decode().rstrip("=")


def before_in(session: SessionRow, within: Within | None) -> int | None:
    """Where in this session a search goes on; None if it begins with it."""
    return within.before if within is not None and within.session_id == session.id else None


def page_upto(
    found: Iterable[SearchMatch], last: SessionInfo, left_at: int | None = None
) -> Results:
    """What was found up to a session, and perhaps down to a position in it."""
    return Results(matches=tuple(found), cursor=cursor_after(last.session, before=left_at))


def page_of(found: tuple[SessionInfo, ...], *, limit: int) -> ListPage:
    """The page that these are, of which there is one more than asked for if there is more."""
    shown = found[:limit]
    return ListPage(
        sessions=shown,
        cursor=cursor_after(shown[-1].session) if len(found) > limit else None,
    )


def start(cursor: str | None) -> Place:
    """The place that a page begins after. Raises InvalidCursor."""
    return resumed(cursor)[0]


def resumed(cursor: str | None) -> tuple[Place, Within | None]:
    """The place that a page of a search begins after, and which session it goes on inside of, if that is still
    the first one there. Raises InvalidCursor."""
    if cursor is None:
        return BEGINNING, None
    said = _read(cursor)
    try:
        return _after.strict(said), None
    except msgspec.DecodeError:
        active_ms, session_id, before = _within.strict(said)
    # Greater than this session's place by the least that there is, so that the session itself comes first.
    return (active_ms, f"{session_id}~"), Within(session_id=session_id, before=before)


def _read(cursor: str) -> bytes:
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        check, said = raw[:_CHECK_BYTES], raw[_CHECK_BYTES:]
        if check == _check(said):
            return said
    except (UnicodeEncodeError, binascii.Error):
        pass  # both of them mean the same to the caller
    raise InvalidCursor(f"{cursor[:60]!r} is not a cursor of this server; begin at the first page")


def _check(said: bytes) -> bytes:
    return sha256(b"cursor" + said).digest()[:_CHECK_BYTES]
