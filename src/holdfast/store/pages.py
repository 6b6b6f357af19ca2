"""Lists of sessions: their order, their filter, and the cursors of their pages.

A page ends at a session, and the next page begins after it: by last activity, then by id. So a session that
becomes active while a client reads page after page moves to the front; no other is shown twice or left out.
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
"""Last activity and id. A page shows the sessions with smaller places than its start, the greatest first."""

BEGINNING: Place = ((1 << 63) - 1, "~")
"""Greater than every session's place, and still an integer and a text to any database."""


def place_of(session: SessionRow) -> Place:
    return session.active_ms, session.id


def is_listed(session: SessionRow, keys: Sequence[SessionKey], where: SessionFilter) -> bool:
    """Whether a list with this filter shows a session."""
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


class _SaidPlace(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What is in a cursor."""

    active_ms: int
    session_id: SessionId
    before: int | None = None
    line: SessionId | None = None


_said_place: Decoder[_SaidPlace] = Decoder(_SaidPlace)


class LeftPlace(Value):
    """The place inside a session at which a page of a search ends."""

    before: int
    """The position down to which it was searched."""
    line: SessionId | None = None
    """The line with this position, if the session was searched, and some lines of the chat that it stands for."""


class Within(Value):
    """A session inside which a search goes on."""

    session_id: SessionId
    left: LeftPlace


def cursor_after(session: SessionRow, *, left: LeftPlace | None = None) -> str:
    """The cursor of the page after this session; with `left`, a search goes on inside the session, at that place.

    Its checksum finds typing errors, not forgeries: a client gains nothing by forging a cursor.
    """
    said: tuple[object, ...] = place_of(session)
    if left is not None:
        said = (*said, left.before) if left.line is None else (*said, left.before, left.line)
    data = encode(said)
    return urlsafe_b64encode(_check(data) + data).decode().rstrip("=")


def left_in(session: SessionRow, within: Within | None) -> LeftPlace | None:
    """The place in this session at which a search goes on; None if it reads the session from its end."""
    return within.left if within is not None and within.session_id == session.id else None


def page_upto(
    found: Iterable[SearchMatch], last: SessionInfo, left: LeftPlace | None = None
) -> Results:
    """A page of matches that ends at session `last`, or at a place inside it."""
    return Results(matches=tuple(found), cursor=cursor_after(last.session, left=left))


def page_of(found: tuple[SessionInfo, ...], *, limit: int) -> ListPage:
    """A page of at most `limit` sessions; `found` has one more if there is a next page."""
    shown = found[:limit]
    return ListPage(
        sessions=shown,
        cursor=cursor_after(shown[-1].session) if len(found) > limit else None,
    )


def start(cursor: str | None) -> Place:
    """The place that a page begins after. Raises InvalidCursor."""
    return resumed(cursor)[0]


def resumed(cursor: str | None) -> tuple[Place, Within | None]:
    """The place that a page of a search begins after, and the session inside which it goes on, if that session is
    still the first after the place. Raises InvalidCursor."""
    if cursor is None:
        return BEGINNING, None
    said = _said_place.strict(_read(cursor))
    if said.before is None:
        return (said.active_ms, said.session_id), None
    left = LeftPlace(before=said.before, line=said.line)
    # Greater than this session's place by the least that there is, so that the session itself comes first.
    return (said.active_ms, f"{said.session_id}~"), Within(session_id=said.session_id, left=left)


def _read(cursor: str) -> bytes:
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        check, said = raw[:_CHECK_BYTES], raw[_CHECK_BYTES:]
        if check == _check(said):
            return said
    except (UnicodeEncodeError, binascii.Error):
        pass  # the caller gets the same error for both
    raise InvalidCursor(f"{cursor[:60]!r} is not a cursor of this server; begin at the first page")


def _check(said: bytes) -> bytes:
    return sha256(b"cursor" + said).digest()[:_CHECK_BYTES]
