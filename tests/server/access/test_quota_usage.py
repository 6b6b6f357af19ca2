"""Accounts that workers share are kept as one process would keep them."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import Quota
from holdfast.ids import Tenant
from holdfast.server.access.quota_usage import (
    COLUMNS,
    REST_S,
    Bucket,
    Column,
    Payer,
    ProcessQuotaUsage,
    QuotaLedger,
    SharedQuotaUsage,
)
from holdfast.server.access.quotas import Quotas
from holdfast.server.http.routing import Caller
from holdfast.wire.problems import Refused
from tests.server.access.test_authentication import Clock

ACME: Payer = ("tenant", "acme")
PLACES = 3

FORKING = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
"""The child writes to memory and ends; it meets no lock of a thread."""

payers = st.tuples(st.sampled_from(["tenant", "key"]), st.sampled_from(["a", "b", "c"]))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), payers, st.floats(0, 60), st.floats(1, 1e6)),
        st.tuples(
            st.just("add"),
            st.integers(0, PLACES - 1),
            payers,
            st.sampled_from(COLUMNS),
            st.integers(0, 3),
        ),
        st.tuples(st.just("leave"), st.integers(0, PLACES - 1), payers, st.sampled_from(COLUMNS)),
    ),
    max_size=60,
)


@given(steps=steps)
def test_shared_accounts_say_what_one_process_would(
    steps: list[tuple[str, ...]],
) -> None:
    ledger = QuotaLedger(PLACES, entries=64)
    shared = [SharedQuotaUsage(ledger, place, clock=lambda: 1e6) for place in range(PLACES)]
    own = ProcessQuotaUsage()
    for step in steps:
        match step:
            case ("put", payer, tokens, at_s):
                bucket = Bucket(tokens=tokens, at_s=at_s)  # type: ignore[arg-type]
                for usage in (shared[0], own):
                    usage.put(payer, bucket)  # type: ignore[arg-type]
            case ("add", place, payer, column, number):
                shared[place].add(payer, column, number)  # type: ignore[call-overload]
                own.add(payer, column, number)  # type: ignore[arg-type]
            case ("leave", place, payer, column):
                here = shared[place]  # type: ignore[call-overload]
                left = here.add(payer, column, 0)
                here.add(payer, column, -left)
                own.add(payer, column, -left)  # type: ignore[arg-type]
    everybody: list[Payer] = [
        *(("tenant", name) for name in "abc"),
        *(("key", name) for name in "abc"),
    ]
    for each in everybody:
        for reader in shared:
            assert reader.bucket(each) == own.bucket(each)
            counts = [reader.count(each, name) for name in COLUMNS]
            assert counts == [own.count(each, name) for name in COLUMNS]


def test_what_a_dead_worker_held_is_struck_out() -> None:
    ledger = QuotaLedger(2)
    dead, living = SharedQuotaUsage(ledger, 0), SharedQuotaUsage(ledger, 1)
    dead.add(ACME, "turns", 3)
    living.add(ACME, "turns", 2)
    living.put(ACME, Bucket(tokens=5.0, at_s=1.0))
    ledger.strike_out(0)
    assert living.count(ACME, "turns") == 2
    assert living.bucket(ACME) == Bucket(tokens=5.0, at_s=1.0)


def test_those_who_rest_make_room_and_those_who_hold_something_do_not() -> None:
    clock = Clock()
    clock.now = 1000.0
    ledger = QuotaLedger(1, entries=4)
    usage = SharedQuotaUsage(ledger, 0, clock=clock)

    def fill(*names: str) -> None:
        for name in names:
            usage.put(("tenant", name), Bucket(tokens=1.0, at_s=clock.now))

    fill("a", "b", "c", "d")
    usage.add(("tenant", "a"), "streams", 1)
    fill("e")
    assert usage.bucket(("tenant", "e")) is None, "there was no room"
    clock.now += REST_S
    fill("e", "f", "g", "h")
    assert usage.count(("tenant", "a"), "streams") == 1
    assert [usage.bucket(("tenant", name)) is None for name in "efgh"] == [False] * 3 + [True]


@FORKING
@pytest.mark.parametrize("column", COLUMNS)
def test_processes_count_together(column: Column) -> None:
    """And whoever is killed with the lock in its hands holds nobody up."""
    ledger = QuotaLedger(4)
    children = []
    for place in range(3):
        pid = os.fork()
        if pid == 0:
            usage = SharedQuotaUsage(ledger, place)
            for _ in range(200):
                with usage.opened():
                    usage.add(ACME, column, 1)
            if place == 2:
                with usage.opened():
                    os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    here = SharedQuotaUsage(ledger, 3)
    with here.opened():
        assert ledger._lock_nowait()
        assert here.count(ACME, column) == 600


@FORKING
def test_a_bound_on_requests_holds_over_all_workers() -> None:
    """Drawn by several processes at once, a minute's worth is a minute's worth."""
    ledger, reading, writing = QuotaLedger(3), *os.pipe()
    children = []
    for place in range(3):
        pid = os.fork()
        if pid == 0:
            quotas = Quotas(
                tenant=Quota(requests_per_minute=100),
                clock=lambda: 1000.0,
                usage=SharedQuotaUsage(ledger, place),
            )
            let_in = 0
            for _ in range(100):
                try:
                    quotas.enter(_Exchange(), Caller(tenant=Tenant("acme")))  # type: ignore[arg-type]
                    let_in += 1
                except Refused:
                    pass
            os.write(writing, bytes([let_in]))
            os._exit(0)
        children.append(pid)
    for pid in children:  # by their numbers: others that this process has started may end meanwhile
        os.waitpid(pid, 0)
    assert sum(os.read(reading, 3)) == 100
    os.close(reading)
    os.close(writing)


class _Exchange:
    def __init__(self) -> None:
        self.about: dict[str, str] = {}


def test_turns_in_the_background_of_another_worker_count() -> None:
    ledger, playing = QuotaLedger(2), {0: 2, 1: 0}
    quotas = [
        Quotas(
            tenant=Quota(turns=2),
            playing=lambda _, place=place: playing[place],  # type: ignore[misc]
            usage=SharedQuotaUsage(ledger, place),
        )
        for place in (0, 1)
    ]
    acme = Caller(tenant=Tenant("acme"))
    with pytest.raises(Refused):
        quotas[0].occupy(acme, "turns")
    with pytest.raises(Refused):
        quotas[1].occupy(acme, "turns")
    playing[0] = 0
    quotas[0].refresh()
    quotas[1].occupy(acme, "turns")
    quotas[1].leave(acme, ["turns"])


def test_without_bounds_no_account_is_kept() -> None:
    ledger = QuotaLedger(1)
    quotas = Quotas(usage=SharedQuotaUsage(ledger, 0))
    acme = Caller(tenant=Tenant("acme"))
    quotas.occupy(acme, "turns")
    quotas.leave(acme, ["turns"])
    assert not any(ledger.memory[:])
