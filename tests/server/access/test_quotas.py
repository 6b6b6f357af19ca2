"""One tenant's share, and what it is told when it wants more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import Quota, load_config
from holdfast.ids import Tenant
from holdfast.server.access.quota_usage import Bucket, ProcessQuotaUsage
from holdfast.server.access.quotas import Quotas, draw
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel
from tests.server.access.test_authentication import Clock, bearer, put_key
from tests.server.stubs import Serving, agent, serving, until
from tests.server.test_busy import held

# ── the bucket ───────────────────────────────────────────────────────────────────────────────


def test_a_minutes_worth_may_come_at_once_and_then_at_its_pace() -> None:
    bucket: Bucket | None = None
    for left in (2, 1, 0):
        drawn = draw(bucket, per_minute=3, now_s=0)
        assert (drawn.wait_s, drawn.remaining) == (0, left)
        bucket = drawn.bucket
    refused = draw(bucket, per_minute=3, now_s=0)
    assert (refused.wait_s, refused.reset_s) == (20, 60)
    assert draw(refused.bucket, per_minute=3, now_s=19).wait_s == pytest.approx(1)
    assert draw(refused.bucket, per_minute=3, now_s=20).wait_s == 0


@given(
    per_minute=st.integers(1, 1000),
    gaps=st.lists(st.floats(-5, 60, allow_nan=False), min_size=1, max_size=200),
)
def test_no_more_get_through_than_a_minutes_worth_and_what_time_brings(
    per_minute: int, gaps: list[float]
) -> None:
    """Also if the clock goes back."""
    bucket: Bucket | None = None
    now = passed = 0.0
    let_through = 0
    for gap in gaps:
        now += gap
        passed += max(0.0, gap)
        drawn = draw(bucket, per_minute=per_minute, now_s=now)
        bucket = drawn.bucket
        let_through += not drawn.wait_s
        assert 0 <= drawn.remaining <= per_minute and drawn.reset_s >= 0
    assert let_through <= per_minute + passed * per_minute / 60 + 1e-6


# ── over HTTP ────────────────────────────────────────────────────────────────────────────────


async def test_too_many_requests_are_told_when_to_come_back() -> None:
    clock = Clock()
    quotas = Quotas(tenant=Quota(requests_per_minute=2), clock=clock)
    async with serving(agent(ScriptedModel()), quotas=quotas) as server:
        answers = [await server.get("/v1/models") for _ in range(3)]
        health = await server.get("/healthz")
        clock.now += 30
        later = await server.get("/v1/models")
    assert [each.status for each in answers] == [200, 200, 429]
    remaining = [each.headers["x-ratelimit-remaining-requests"] for each in answers]
    assert remaining == ["1", "0", "0"]
    refused = answers[-1]
    assert refused.error["code"] == "rate_limit_exceeded"
    assert refused.headers["x-ratelimit-limit-requests"] == "2"
    assert refused.headers["x-ratelimit-reset-requests"] == "60.000s"
    assert (refused.headers["retry-after"], refused.headers["x-should-retry"]) == ("30", "true")
    assert (health.status, later.status) == (200, 200)
    assert "x-ratelimit-limit-requests" not in health.headers


async def test_tenants_and_keys_have_accounts_of_their_own() -> None:
    store = MemoryStore()
    first, second, rival = (
        await put_key(store, nth=1),
        await put_key(store, nth=2),
        await put_key(store, Tenant("rival"), nth=3),
    )
    quotas = Quotas(
        tenant=Quota(requests_per_minute=3), key=Quota(requests_per_minute=2), clock=Clock()
    )
    asked = [first, first, first, second, second, rival]
    async with serving(agent(ScriptedModel()), store=store, auth="auto", quotas=quotas) as server:
        told = [
            (await server.request("GET", "/v1/models", headers=bearer(key))).status for key in asked
        ]
    assert told == [200, 200, 429, 200, 429, 200]


@pytest.mark.parametrize(
    ("quota", "body"), [(Quota(turns=1), {}), (Quota(streams=1), {"stream": True})]
)
async def test_so_many_at_once_and_no_more(quota: Quota, body: dict[str, Any]) -> None:
    gate = Gate()
    async with serving(agent(held(gate)), quotas=Quotas(tenant=quota)) as server:
        first = asyncio.create_task(server.chat("one", to="a", **body))
        await gate.reached.wait()
        refused = await server.chat("two", to="b", **body)
        listed = await server.get("/api/sessions")
        gate.release()
        await first
        after = await server.chat("two", to="b", **body)
    assert (refused.status, refused.error["code"]) == (429, "concurrency_limit_exceeded")
    assert (refused.headers["retry-after"], refused.headers["x-should-retry"]) == ("1", "true")
    assert (listed.status, after.status) == (200, 200)


async def test_what_a_client_occupied_is_free_when_it_has_gone() -> None:
    gate = Gate()
    usage = ProcessQuotaUsage()
    quotas = Quotas(tenant=Quota(turns=1, watchers=1), usage=usage)
    async with serving(agent(held(gate)), quotas=quotas) as server:
        first = asyncio.create_task(server.chat("one", to="a"))
        await gate.reached.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await until(lambda: not usage.count(("tenant", "local"), "turns"))
        after = await server.chat("two", to="b")
        gate.release()
    assert after.status == 200


async def test_turns_that_nobody_waits_for_count_too() -> None:
    """Else `background` would be a way around it."""
    gate = Gate()
    server: Serving
    quotas = Quotas(tenant=Quota(turns=1), playing=lambda tenant: server.sessions.turns_of(tenant))
    async with serving(agent(held(gate)), quotas=quotas) as server:
        begun = await server.request(
            "POST",
            "/v1/responses",
            data=b'{"model":"root","input":"one","background":true}',
        )
        await gate.reached.wait()
        refused = await server.chat("two", to="b")
        gate.release()
        await until(lambda: not server.sessions.turns_of(Tenant("local")))
        after = await server.chat("two", to="b")
    assert (begun.status, refused.status, after.status) == (200, 429, 200)


async def test_watchers_are_bounded_too() -> None:
    gate = Gate()
    async with serving(agent(held(gate)), quotas=Quotas(tenant=Quota(watchers=1))) as server:
        first = asyncio.create_task(server.chat("one", to="a"))
        await gate.reached.wait()
        turn = (await server.get("/api/sessions/a")).json["open_turn"]
        watching = await server.http.get(f"{server.url}/api/turns/{turn}/events")
        refused = await server.get(f"/api/turns/{turn}/events")
        gate.release()
        await watching.read()
        await first
        after = await server.get(f"/api/turns/{turn}/events")
    assert (watching.status, refused.status, after.status) == (200, 429, 200)


def test_quotas_are_set_by_name() -> None:
    config = load_config(
        {}, {"HOLDFAST_TENANT_TURNS": "20", "HOLDFAST_KEY_REQUESTS_PER_MINUTE": "60"}, ()
    )
    assert config.quota("tenant") == Quota(turns=20)
    assert config.quota("key") == Quota(requests_per_minute=60)


async def test_accounts_of_those_who_have_rested_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.server.access.quota_usage.BUCKETS_MAX", 2)
    clock, store = Clock(), MemoryStore()
    usage = ProcessQuotaUsage(clock=clock)
    quotas = Quotas(key=Quota(requests_per_minute=5), clock=clock, usage=usage)
    keys = [await put_key(store, nth=nth) for nth in range(6)]
    async with serving(agent(ScriptedModel()), store=store, auth="auto", quotas=quotas) as server:
        for key in keys:
            clock.now += 61
            await server.request("GET", "/v1/models", headers=bearer(key))
            assert len(usage._buckets) <= 3
