"""Whatever order somebody else has left things in, what becomes of it keeps every promise that a store can show."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.items import Text
from holdfast.ids import Tenant
from holdfast.peers.foreign_conversation import (
    Entry,
    ForeignAnswer,
    ForeignBranch,
    ForeignCall,
    ForeignConversation,
    ForeignError,
    ForeignInstruction,
    ForeignMessage,
    ForeignResult,
    ForeignSummary,
    Seen,
)
from holdfast.peers.rebuilt_session import rebuild
from holdfast.store.verification.session_audit import audit

CALLS = ("a", "b", "c")

words = st.sampled_from(((), (Text(text=" "),), (Text(text="words"),)))
moments = st.sampled_from((0, 1_700_000_000_000, 1_800_000_000_000))
wanted = st.builds(
    ForeignCall, id=st.sampled_from(CALLS), name=st.just("tool"), arguments=st.just("{}")
)
seen: st.SearchStrategy[Seen] = st.sampled_from(("both", "people", "model", "none"))
entries: st.SearchStrategy[Entry] = st.one_of(
    st.builds(ForeignMessage, content=words, at_ms=moments, seen_by=seen),
    st.builds(ForeignInstruction, content=words),
    st.builds(
        ForeignAnswer,
        content=words,
        thought=st.sampled_from(("", "hm")),
        calls=st.lists(wanted, max_size=3).map(tuple),
        at_ms=moments,
        seen_by=seen,
        is_cut=st.booleans(),
        model=st.sampled_from(("", "m")),
    ),
    st.builds(
        ForeignResult,
        call=st.sampled_from(CALLS),
        content=words,
        failed=st.booleans(),
        seen_by=seen,
    ),
    st.builds(ForeignSummary, text=st.just("so far"), kept_from=st.none() | st.integers(0, 20)),
    st.builds(ForeignError, text=st.just("overloaded")),
)
branches = st.builds(
    ForeignBranch, agent=st.just("helper"), entries=st.lists(entries, max_size=6).map(tuple)
)


@given(st.lists(entries | branches, max_size=20), st.booleans())
def test_what_is_rebuilt_is_sound_and_the_same_every_time(said: list[Entry], drops: bool) -> None:
    foreign = ForeignConversation(
        id="theirs",
        entries=tuple(said),
        title="Old",
        created_ms=1_700_000_000_000,
        drops_open_calls=drops,
    )
    first = rebuild(foreign, peer="goose", tenant=Tenant("local"))
    if first is None:
        return
    assert list(audit(first.dump)) == []
    assert rebuild(foreign, peer="goose", tenant=Tenant("local")) == first
    asked = sum(
        isinstance(each, ForeignMessage) and each.content == (Text(text="words"),) for each in said
    )
    own = [row for row in first.dump.items if not row.path]
    assert sum(b'"type":"user"' in row.body for row in own) == asked
