"""Damage is told by the name that a client or an operator knows."""

from __future__ import annotations

import pytest

from holdfast.ids import NodeId, SessionId, SessionKey, Tenant
from holdfast.store.row_changes import empty_session
from holdfast.store.rows import ChunkRow, KeyRow, NodeRow
from holdfast.store.sql.tables import CHUNKS, KEYS, NODES, SESSIONS
from holdfast.store.steps import WriteStep, insert
from holdfast.store.verification.damage import damage_of

ACME = Tenant("acme")
CONV = SessionId("conv_00000000000000000000000001")
NODE = NodeId("node_00000000000000000000000001")
MADE = empty_session(ACME, CONV, now_ms=0)
KEY = insert(KEYS, KeyRow(tenant=ACME, key=SessionKey("nobody"), session_id=CONV))


@pytest.mark.parametrize(
    ("step", "what"),
    [
        (WriteStep((), on=(MADE,)), f"conversation '{CONV}'"),
        (WriteStep((insert(SESSIONS, MADE), KEY)), "conversation 'nobody'"),
        (WriteStep((insert(SESSIONS, MADE),)), "a new conversation"),
        (WriteStep((KEY,)), f"conversation '{CONV}'"),
        (
            WriteStep((insert(CHUNKS, ChunkRow(tenant=ACME, session_id=CONV, from_pos=0)),)),
            "the search index",
        ),
        (
            WriteStep((insert(NODES, NodeRow(node_id=NODE, ttl_ms=1, since_ms=0, expires_ms=1)),)),
            "what a server keeps for itself",
        ),
    ],
)
def test_a_write_is_told_by_what_it_would_have_changed(step: WriteStep, what: str) -> None:
    damage = damage_of(step, OSError(), in_pages=True, why="a page")
    assert (damage.what, damage.why) == (what, "a page")
