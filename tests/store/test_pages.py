"""Cursors: opaque, and nobody else's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidCursor
from holdfast.ids import SessionId, Tenant, mint
from holdfast.store.pages import BEGINNING, cursor_after, place_of, start
from holdfast.store.rows import SessionRow

times = st.integers(0, (1 << 48) - 1)
sessions = st.builds(
    lambda active_ms, at_ms, entropy: SessionRow(
        tenant=Tenant("acme"),
        id=mint(SessionId, at_ms=at_ms, entropy=entropy),
        active_ms=active_ms,
    ),
    times,
    times,
    st.integers(0, (1 << 80) - 1),
)


@given(sessions)
def test_a_cursor_leads_to_where_it_was_made(session: SessionRow) -> None:
    cursor = cursor_after(session)
    assert cursor.isascii() and cursor.replace("-", "").replace("_", "").isalnum()
    assert start(cursor) == place_of(session) < BEGINNING


@given(sessions, sessions)
def test_places_sort_by_activity_and_then_by_id(one: SessionRow, other: SessionRow) -> None:
    expected = (one.active_ms, one.id) < (other.active_ms, other.id)
    assert (place_of(one) < place_of(other)) == expected


@given(st.text(max_size=80))
def test_any_other_word_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        start(text)
