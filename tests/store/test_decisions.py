"""What a store decides, as tables: the corners that the contract does not reach by itself."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.history.conversation import Notes, Segment, Snapshot
from holdfast.core.history.log import Log
from holdfast.errors import StoreError
from holdfast.ids import IdempotencyKey, NodeId, SessionId, Tenant, TurnId, Version
from holdfast.store.decisions import (
    Claim,
    ForkPoint,
    Holder,
    Stretch,
    TakeoverLook,
    after,
    cancel_since,
    fork_point,
    judge_append,
    judge_claim,
    judge_holder,
    judge_takeover,
    lineage_at,
    owner_of,
    renewed,
    stretches,
)
from holdfast.store.outcomes import (
    Attempt,
    HolderAlive,
    NotEligible,
    NothingOpen,
    Replay,
    Taken,
    Unfinished,
)
from holdfast.store.rows import (
    IdempotencyRow,
    NodeRow,
    SessionRow,
    SignalKind,
    SignalRow,
    TurnRow,
    TurnState,
)
from holdfast.store.snapshots import mark_of
from tests.core.builders import mint, said

ACME = Tenant("acme")
HERE, THERE = mint(NodeId), mint(NodeId)
OLD, MIDDLE, NEW = (mint(SessionId) for _ in range(3))
NOW_MS = 100_000


def node(node_id: NodeId = HERE, *, since_ms: int = 0, expires_ms: int = NOW_MS + 1) -> NodeRow:
    return NodeRow(node_id=node_id, ttl_ms=1000, since_ms=since_ms, expires_ms=expires_ms)


# ── who is alive ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("lease_node", "row", "expected"),
    [
        (None, None, "absent"),
        (HERE, None, "self"),
        (HERE, node(HERE, expires_ms=0), "self"),
        (THERE, node(THERE), "alive"),
        (THERE, node(THERE, expires_ms=NOW_MS), "expired"),
        (THERE, None, "dead"),
    ],
)
def test_a_holder_is_judged_by_its_row(
    lease_node: NodeId | None, row: NodeRow | None, expected: Holder
) -> None:
    session = msgspec.structs.replace(SESSION, lease_node=lease_node)
    assert judge_holder(session, row, asking=HERE, now_ms=NOW_MS) == expected


@pytest.mark.parametrize(
    ("known", "since_ms"),
    [
        (None, NOW_MS),
        (node(since_ms=7, expires_ms=NOW_MS + 1), 7),
        (node(since_ms=7, expires_ms=NOW_MS), NOW_MS),
    ],
)
def test_a_record_goes_on_as_long_as_there_is_no_gap(known: NodeRow | None, since_ms: int) -> None:
    fresh = node(since_ms=NOW_MS, expires_ms=NOW_MS + 1000)
    row = renewed(known, fresh)
    assert (row.since_ms, row.expires_ms) == (since_ms, NOW_MS + 1000)


# ── takeover ─────────────────────────────────────────────────────────────────────────────────

TURN = TurnRow(
    tenant=ACME,
    turn_id=mint(TurnId),
    session_id=NEW,
    base_head=Version(0),
    state="open",
    lease_token=4,
)
SESSION = SessionRow(
    tenant=ACME, id=NEW, lease_token=4, lease_nonce="n", lease_node=THERE, open_turn=TURN.turn_id
)
FRESH = node(since_ms=NOW_MS - 999)
SETTLED = node(since_ms=NOW_MS - 1000)


@pytest.mark.parametrize(
    ("holder", "row", "overruling", "kind", "attempt"),
    [
        ("expired", SETTLED, False, Taken, 2),
        ("expired", FRESH, False, NotEligible, 0),
        ("dead", FRESH, False, Taken, 2),  # a lock knows better than a clock
        ("absent", FRESH, False, Taken, 1),
        ("self", FRESH, False, Taken, 1),
        ("alive", SETTLED, False, HolderAlive, 0),
        ("alive", FRESH, True, Taken, 1),
        ("dead", None, False, NotEligible, 0),
        ("dead", node(expires_ms=NOW_MS), False, NotEligible, 0),
        ("alive", None, True, NotEligible, 0),
    ],
)
def test_a_turn_changes_hands_only_as_it_should(
    holder: Holder, row: NodeRow | None, overruling: bool, kind: type, attempt: int
) -> None:
    found = TakeoverLook(now_ms=NOW_MS, node=row, session=SESSION, holder=None, turn=TURN)
    since_ms = NOW_MS - 10_000 if overruling else None
    outcome = judge_takeover(found, holder, nonce="mine", turn_id=None, cancel_since_ms=since_ms)
    assert type(outcome) is kind
    if isinstance(outcome, Taken):
        assert (outcome.fence.token, outcome.fence.nonce) == (5, "mine")
        assert (outcome.turn.lease_token, outcome.turn.attempt) == (5, attempt)


def test_where_nothing_is_open_there_is_nothing_to_take() -> None:
    found = TakeoverLook(now_ms=NOW_MS, node=SETTLED, session=None, holder=None, turn=None)
    assert judge_takeover(found, "absent", nonce="mine", turn_id=None) == NothingOpen()


def signal(n: int, kind: SignalKind, *, at_ms: int, consumed: bool = False) -> SignalRow:
    return SignalRow(
        tenant=ACME, turn_id=TURN.turn_id, n=n, kind=kind, at_ms=at_ms, consumed=consumed
    )


def test_a_turn_is_asked_to_stop_since_the_first_cancel_that_it_did_not_hear() -> None:
    assert cancel_since([]) is None
    assert cancel_since([signal(1, "steer", at_ms=1)]) is None
    heard = signal(1, "cancel", at_ms=1, consumed=True)
    assert cancel_since([heard]) is None
    waiting = [signal(2, "interrupt", at_ms=5), signal(3, "cancel", at_ms=7)]
    assert cancel_since([heard, *waiting]) == 5


# ── journals ─────────────────────────────────────────────────────────────────────────────────


def test_records_go_behind_those_that_are_there() -> None:
    assert judge_append(5, b"five", last_n=4, same_n=None)
    assert not judge_append(4, b"four", last_n=4, same_n=b"four")
    assert not judge_append(2, b"two", last_n=4, same_n=b"two")
    assert not judge_append(4, b"", last_n=4, same_n=b"four"), "nothing said, nothing written"
    for n, same in ((4, b"other"), (3, None)):
        with pytest.raises(StoreError):
            judge_append(n, b"records", last_n=4, same_n=same)


# ── forks ────────────────────────────────────────────────────────────────────────────────────


def segment(session_id: SessionId, version: int, *, rev: int) -> Segment:
    """One item a version."""
    return Segment(
        session_id=session_id, upto_pos=version, upto_version=Version(version), upto_rev=rev
    )


PAST = (segment(OLD, 2, rev=1), segment(MIDDLE, 4, rev=3))
FORK = SessionRow(tenant=ACME, id=NEW, head=Version(6), length=6, meta_rev=9, lineage=PAST)


@pytest.mark.parametrize(
    ("version", "holder", "depth", "rev", "owner"),
    [
        (0, OLD, 0, None, OLD),
        (1, OLD, 0, None, OLD),
        (2, MIDDLE, 1, None, OLD),  # made by the old one, held by whoever made the next
        (3, MIDDLE, 1, None, MIDDLE),
        (4, NEW, 2, None, MIDDLE),
        (5, NEW, 2, None, NEW),
        (6, NEW, 2, 9, NEW),
    ],
)
def test_a_version_lies_with_whoever_made_the_next_one(
    version: int, holder: SessionId, depth: int, rev: int | None, owner: SessionId
) -> None:
    point = ForkPoint(holder=holder, version=Version(version), depth=depth, rev=rev)
    assert fork_point(FORK, Version(version)) == point
    assert owner_of(FORK, Version(version)) == owner
    lineage = lineage_at(FORK, point, length=version, rev=7)
    assert lineage == (*PAST[:depth], segment(holder, version, rev=7))


def test_what_has_not_come_lies_nowhere() -> None:
    assert fork_point(FORK, Version(7)) is None


def stretch(session_id: SessionId, start: int, end: int, *, revs: tuple[int, int]) -> Stretch:
    return Stretch(
        session_id=session_id,
        from_pos=start,
        from_version=Version(start),
        from_rev=revs[0],
        upto_pos=end,
        upto_version=Version(end),
        upto_rev=revs[1],
    )


def test_a_lineage_is_read_in_stretches() -> None:
    """A fork that added nothing is left out; one that added only remarks is not."""
    silent, remarking = mint(SessionId), mint(SessionId)
    lineage = (*PAST, segment(silent, 4, rev=3), segment(remarking, 4, rev=5))
    assert stretches(lineage) == (
        stretch(OLD, 0, 2, revs=(0, 1)),
        stretch(MIDDLE, 2, 4, revs=(1, 3)),
        stretch(remarking, 4, 4, revs=(3, 5)),
    )
    assert stretches(()) == ()


def test_after_a_snapshot_only_the_rest_is_read() -> None:
    past = stretches((*PAST, segment(NEW, 6, rev=9)))

    def known(version: int, *, rev: int) -> Snapshot:
        return Snapshot(
            session_id=NEW,
            version=Version(version),
            items=Log(said() for _ in range(version)),
            notes=Notes(rev=rev),
        )

    assert after(known(0, rev=0), past) == past
    assert after(known(3, rev=2), past) == (
        stretch(MIDDLE, 3, 4, revs=(2, 3)),
        stretch(NEW, 4, 6, revs=(3, 9)),
    )
    assert after(known(6, rev=7), past) == (stretch(NEW, 6, 6, revs=(7, 9)),)
    assert after(known(6, rev=9), past) == ()


# ── continuations that a server has ended which knows of none ────────────────────────────────


def continued(state: TurnState, **changes: object) -> TurnRow:
    """The row of a turn that goes on with the one that made version 1."""
    row = TurnRow(
        tenant=ACME,
        turn_id=mint(TurnId),
        session_id=NEW,
        base_head=Version(1),
        state=state,
        ended_by="model_error",
        continues=mint(TurnId),
    )
    return msgspec.structs.replace(row, **changes)


@pytest.mark.parametrize(
    ("unfinished", "left", "goes_on"),
    [(Version(1), 2, True), (Version(1), 0, False), (None, None, False)],
)
def test_keys_of_a_continuation_that_it_has_discarded_lead_back_all_the_same(
    unfinished: Version | None, left: int | None, goes_on: bool
) -> None:
    """It lets them fail, as those of any turn. The message is in the history: it is not brought again."""
    turn = continued("discarded")
    key = IdempotencyRow(
        tenant=ACME,
        key=IdempotencyKey("k"),
        request_hash=b"same",
        turn_id=turn.turn_id,
        state="failed",
        expires_ms=NOW_MS + 1,
    )
    session = SessionRow(
        tenant=ACME, id=NEW, head=Version(1), unfinished=unfinished, retries_left=left
    )
    attempt = Attempt(request_hash=b"same", key=key.key)
    known = judge_claim(attempt, Claim(row=key, turn=turn, session=session))
    assert turn.continues is not None
    if goes_on:
        assert known == Unfinished(session_id=NEW, version=Version(1), retries_left=2)
    else:
        assert known == Replay(turn_id=turn.continues, session_id=NEW)


def test_a_continuation_that_it_has_committed_is_plain_history() -> None:
    """It has not hashed what the turn goes on with, and has shown the model that the turn before broke off."""
    row = continued("committed", seq=Version(2), link=b"x" * 32)
    assert mark_of(row).continues is None
    assert mark_of(msgspec.structs.replace(row, links=0)).continues == row.continues
