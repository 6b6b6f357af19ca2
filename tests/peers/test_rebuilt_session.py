"""Whatever order somebody else has left things in, what becomes of it keeps every promise that a store can show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.items import Text
from holdfast.ids import Tenant
from holdfast.peers.foreign_conversation import (
    Entry,
    ForeignAnswer,
    ForeignCall,
    ForeignConversation,
    ForeignInstruction,
    ForeignMessage,
    ForeignResult,
    ForeignSummary,
)
from holdfast.peers.rebuilt_session import rebuild
from holdfast.store.verification.session_audit import audit

CALLS = ("a", "b", "c")

words = st.sampled_from(((), (Text(text=" "),), (Text(text="words"),)))
moments = st.sampled_from((0, 1_700_000_000_000, 1_800_000_000_000))
wanted = st.builds(
    ForeignCall, id=st.sampled_from(CALLS), name=st.just("tool"), arguments=st.just("{}")
)
entries: st.SearchStrategy[Entry] = st.one_of(
    st.builds(ForeignMessage, content=words, at_ms=moments),
    st.builds(ForeignInstruction, content=words),
    st.builds(
        ForeignAnswer,
        content=words,
        thought=st.sampled_from(("", "hm")),
        calls=st.lists(wanted, max_size=3).map(tuple),
        at_ms=moments,
    ),
    st.builds(ForeignResult, call=st.sampled_from(CALLS), content=words, failed=st.booleans()),
    st.builds(ForeignSummary, text=st.just("so far")),
)


@given(st.lists(entries, max_size=20))
def test_what_is_rebuilt_is_sound_and_the_same_every_time(said: list[Entry]) -> None:
    foreign = ForeignConversation(
        id="theirs", entries=tuple(said), title="Old", created_ms=1_700_000_000_000
    )
    first = rebuild(foreign, peer="goose", tenant=Tenant("local"))
    if first is None:
        return
    assert list(audit(first.dump)) == []
    assert rebuild(foreign, peer="goose", tenant=Tenant("local")) == first
    asked = sum(
        isinstance(each, ForeignMessage) and each.content == (Text(text="words"),) for each in said
    )
    assert sum(b'"type":"user"' in row.body for row in first.dump.items) == asked
