"""Who comes in: with a key as its tenant, without one only where there has never been any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from holdfast import limits
from holdfast.errors import InvalidValue
from holdfast.ids import KeyId, Tenant, mint
from holdfast.server.access.authentication import Authenticator, make_authenticator, may
from holdfast.server.http.exchange import Exchange, Message
from holdfast.store.api_keys import ShownKey, new_key, parse_key
from holdfast.store.memory_store import MemoryStore
from holdfast.store.rows import ApiKeyRow
from holdfast.store.store import Store
from holdfast.testing import ScriptedModel
from holdfast.wire.problems import Refused
from tests.server.stubs import agent, serving

ACME = Tenant("acme")


async def put_key(
    store: Store,
    tenant: Tenant = ACME,
    *scopes: str,
    nth: int = 1,
    expires_ms: int | None = None,
) -> ShownKey:
    """A key in the store, and as its holder has it."""
    shown = new_key(mint(KeyId, at_ms=nth, entropy=nth), bytes([nth] * 32))
    await store.put_api_key(
        ApiKeyRow(
            key_id=shown.key_id,
            tenant=tenant,
            name="a test's",
            scopes=scopes or ("chat", "read"),
            digest=shown.digest,
            expires_ms=expires_ms,
        )
    )
    return shown


def bearer(key: object) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class Clock:
    """Seconds, by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Counting(MemoryStore):
    """Counts how often it is asked about keys."""

    asked = 0

    async def api_key(self, key_id: KeyId) -> ApiKeyRow | None:
        self.asked += 1
        return await super().api_key(key_id)

    async def api_keys(self, *args: Any, **kwargs: Any) -> tuple[ApiKeyRow, ...]:
        self.asked += 1
        return await super().api_keys(*args, **kwargs)


def exchange(headers: Mapping[str, str]) -> Exchange:
    async def never(*_: object) -> Message:
        raise AssertionError("nothing is read or said here")

    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"method": "GET", "path": "/", "query_string": b"", "headers": raw}
    return Exchange(scope, never, never, request_id="req_1")  # type: ignore[arg-type]


async def refused(authenticator: Authenticator, headers: Mapping[str, str]) -> tuple[int, str]:
    with pytest.raises(Refused) as found:
        await authenticator.admit(exchange(headers), "chat")
    return found.value.problem.status, found.value.problem.message


# ── the key ──────────────────────────────────────────────────────────────────────────────────


def test_a_key_is_read_as_it_was_written_and_nothing_else_is() -> None:
    key = new_key(mint(KeyId, at_ms=1, entropy=1), bytes(range(32)))
    assert parse_key(str(key)) == key
    for wrong in ("", "sk-123", str(key)[:-1], f"{key}x", str(key).replace("_", "-"), f" {key}"):
        assert parse_key(wrong) is None
    assert parse_key("hf_" + "z" * 26 + "_" + "x" * 43) is None
    assert key.secret not in repr(key)


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (("chat",), {"chat"}),
        (("read",), {"read"}),
        (("admin",), {"chat", "read", "admin", "metrics"}),
        (("metrics",), {"metrics"}),
        (("root", ""), set()),
        ((), set()),
    ],
)
def test_scopes_allow_what_they_say(scopes: tuple[str, ...], allowed: set[str]) -> None:
    every = ("chat", "read", "admin", "metrics")
    assert {each for each in every if may(scopes, each)} == allowed  # type: ignore[arg-type]


# ── the door ─────────────────────────────────────────────────────────────────────────────────


async def test_a_key_lets_in_as_its_tenant() -> None:
    store = MemoryStore()
    key = await put_key(store)
    caller = await Authenticator(store, "required").admit(exchange(bearer(key)), "chat")
    assert (caller.tenant, caller.key_id) == (ACME, key.key_id)
    lower = {"authorization": f"bearer {key}"}
    assert await Authenticator(store, "auto").admit(exchange(lower), "chat") == caller


async def test_a_key_may_come_as_anthropics_clients_send_it() -> None:
    store = MemoryStore()
    key = await put_key(store)
    authenticator = Authenticator(store, "required")
    theirs = {"x-api-key": str(key)}
    for headers in (theirs, {**theirs, "authorization": "Bearer of-another-service"}):
        assert (await authenticator.admit(exchange(headers), "chat")).key_id == key.key_id
    assert "incorrect" in (await refused(authenticator, {"x-api-key": "sk-ant-1"}))[1]


async def test_a_wrong_key_is_told_the_same_whatever_is_wrong_with_it() -> None:
    store = MemoryStore()
    key, other = await put_key(store, nth=1), new_key(mint(KeyId, at_ms=9, entropy=9), bytes(32))
    authenticator = Authenticator(store, "required")
    unlike = ShownKey(key_id=key.key_id, secret=other.secret)
    told = {
        await refused(authenticator, bearer(each)) for each in (other, unlike, "sk-live-1", "hf_x")
    }
    told.add(await refused(authenticator, {"Authorization": "Basic aGVsbG86aGVsbG8="}))
    assert len(told) == 1 and told.pop()[0] == 401
    assert "no API key" in (await refused(authenticator, {}))[1]


async def test_what_is_known_of_a_key_is_less_than_a_second_old() -> None:
    clock, store = Clock(), Counting()
    authenticator = Authenticator(store, "required", clock=clock)
    key = await put_key(store)
    for _ in range(3):
        await authenticator.admit(exchange(bearer(key)), "chat")
    assert store.asked == 1
    await store.revoke_api_key(key.key_id)
    clock.now += limits.key_cache_s
    assert limits.key_cache_s < 1
    assert "revoked" in (await refused(authenticator, bearer(key)))[1]


async def test_a_key_that_has_expired_is_refused_though_it_is_remembered() -> None:
    store, now_ms = MemoryStore(), [1_000]
    authenticator = Authenticator(store, "required", now_ms=lambda: now_ms[0])
    key = await put_key(store, expires_ms=2_000)
    await authenticator.admit(exchange(bearer(key)), "chat")
    now_ms[0] = 2_000
    assert "expired" in (await refused(authenticator, bearer(key)))[1]


async def test_keys_that_nobody_has_are_not_remembered() -> None:
    """Whoever guesses must not push out those that are in use."""
    store = MemoryStore()
    authenticator = Authenticator(store, "required")
    await refused(authenticator, bearer(new_key(mint(KeyId, at_ms=9, entropy=9), bytes(32))))
    assert authenticator._rows == {}


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "key_cache_max", 2)
    store = MemoryStore()
    authenticator = Authenticator(store, "required")
    for nth in range(5):
        await authenticator.admit(exchange(bearer(await put_key(store, nth=nth))), "chat")
        assert len(authenticator._rows) <= 2


async def test_auto_is_open_until_there_is_a_key_and_never_again() -> None:
    clock, store = Clock(), Counting()
    authenticator = Authenticator(store, "auto", clock=clock)
    for headers in ({}, bearer("sk-anything"), {}):
        assert (await authenticator.admit(exchange(headers), "chat")).tenant == "local"
    assert store.asked == 1
    key = await put_key(store)
    clock.now += limits.key_cache_s
    assert (await refused(authenticator, {}))[0] == 401
    await store.revoke_api_key(key.key_id)
    clock.now += limits.key_cache_s
    assert (await refused(authenticator, {}))[0] == 401
    assert (await refused(Authenticator(store, "auto"), {}))[0] == 401


async def test_beyond_loopback_it_is_never_open_by_itself() -> None:
    store = MemoryStore()
    with pytest.raises(InvalidValue, match=r"holdfast keys create.*--auth off"):
        await make_authenticator(store, "auto", beyond_loopback=True)
    said_so = await make_authenticator(store, "off", beyond_loopback=True)
    assert (await said_so.admit(exchange({}), "admin")).tenant == "local"
    assert (await refused(await make_authenticator(store, "required", beyond_loopback=True), {}))[
        0
    ] == 401
    key = await put_key(store)
    authenticator = await make_authenticator(store, "auto", beyond_loopback=True)
    assert (await authenticator.admit(exchange(bearer(key)), "chat")).tenant == ACME


# ── over HTTP ────────────────────────────────────────────────────────────────────────────────


async def test_every_route_but_health_needs_a_key_with_its_scope() -> None:
    store = MemoryStore()
    key = await put_key(store, ACME, "none-that-we-know")
    published = ("*",)
    async with serving(
        agent(ScriptedModel()), store=store, auth="auto", published=published
    ) as server:
        for route in server.app.routes:
            if route.method == "HEAD":
                continue
            path = route.pattern.replace("{", "").replace("...", "").replace("}", "")
            without = await server.request(route.method, path)
            lacking = await server.request(route.method, path, headers=bearer(key))
            if route.scope is None:
                # The console has no file of that name, and there is no agent `agent`.
                found = 404 if "file" in route.pattern or "{agent}" in route.pattern else 200
                assert (without.status, lacking.status) == (found, found), route.label
                continue
            assert (without.status, without.problem[0]) == (401, "invalid_api_key"), route.label
            assert without.headers["www-authenticate"] == "Bearer"
            assert (lacking.status, lacking.problem[0]) == (403, "insufficient_scope")
            assert f"'{route.scope}'" in lacking.problem[1], route.label


async def test_two_tenants_have_two_conversations_of_one_name() -> None:
    store = MemoryStore()
    ours, theirs = await put_key(store, nth=1), await put_key(store, Tenant("rival"), nth=2)
    model = ScriptedModel(otherwise=lambda prompt: f"{len(prompt.messages)} messages")
    async with serving(agent(model), store=store, auth="auto") as server:
        for _ in range(2):
            for key in (ours, theirs):
                answer = await server.chat("Hi", to="trip", headers=bearer(key))
                assert answer.status == 200
        listed = [
            await server.request("GET", "/api/sessions", headers=bearer(key))
            for key in (ours, theirs)
        ]
    assert [[each["version"] for each in page.json["sessions"]] for page in listed] == [[2], [2]]


async def test_a_new_key_of_the_same_tenant_still_gets_the_answer_to_its_request() -> None:
    """Keys are rotated while clients retry; the credentials are no part of what was asked."""
    store = MemoryStore()
    old, new = await put_key(store, nth=1), await put_key(store, nth=2)
    model = ScriptedModel("Once.")
    async with serving(agent(model), store=store, auth="auto") as server:
        once = {"Idempotency-Key": "k1"}
        first = await server.chat("Hi", to="trip", headers={**bearer(old), **once})
        again = await server.chat("Hi", to="trip", headers={**bearer(new), **once})
    assert (first.status, again.status) == (200, 200)
    assert first.headers["x-turn-id"] == again.headers["x-turn-id"]
    assert first.text == again.text == "Once."


async def test_a_retry_without_a_key_for_it_is_recognised_by_who_sends_it() -> None:
    """Two holders of keys of one tenant may say the same; neither gets the other's answer."""
    store = MemoryStore()
    mine, yours = await put_key(store, nth=1), await put_key(store, nth=2)
    model, retry = ScriptedModel("One.", "Two."), {"x-stainless-retry-count": "1"}
    async with serving(agent(model), store=store, auth="auto") as server:
        lost = await server.chat("Hi", to="trip", headers=bearer(mine))
        _lose(store)
        same = await server.chat("Hi", to="trip", headers={**bearer(mine), **retry})
        _lose(store)
        other = await server.chat("Hi", to="trip", headers={**bearer(yours), **retry})
    assert lost.headers["x-turn-id"] == same.headers["x-turn-id"]
    assert (lost.text, same.text, other.text) == ("One.", "One.", "Two.")


def _lose(store: MemoryStore) -> None:
    """As if the last answer had been lost on its way."""
    store.db.execute("update turn set acked = 0")
