"""Yours only: whatever a tenant asks for, the answer is the same as if the other tenants were not there.

Two servers are asked the same questions by the same tenant. In one of them another tenant has conversations, turns,
calls that wait and a turn that runs, and the questions name all of these; in the other one there is nobody else. If
an answer, a header of it or the number of questions to the store differs, something leaks.

The questions are made from the table of routes. A new route is asked by itself if its places are known below; a place
that is not known fails the test.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from typing import Any, cast

import msgspec
import pytest

from holdfast.ids import Tenant, TurnId
from holdfast.server.http.routing import Route
from holdfast.store.memory_store import MemoryStore
from holdfast.store.rows import TurnRow
from holdfast.store.store import Store
from holdfast.testing import Gate, ScriptedModel, says
from tests.core.builders import new_minter
from tests.server.access.test_authentication import bearer, put_key
from tests.server.api.test_approvals import careful
from tests.server.stubs import Answer, HeldTool, Serving, chat_body, serving, until
from tests.store.contract.test_grants import granted

RIVAL = Tenant("rival")
EVERYTHING = ("admin", "metrics")
BY_THE_CLOCK = {"renew", "resign", "orphans", "queued", "signals", "index", "prune", "api_key"}
BY_THE_CLOCK |= {"seal_keys", "put_seal_key"}
"""What a server asks its store when it is time to, whatever anybody asks the server."""


MEASURED = {"x-request-id", "request-id", "openai-processing-ms", "content-length"}
"""Headers that differ from answer to answer. How long a body is, apart from times in it, the body says."""

MAKING = {"POST /api/sessions/import", "POST /api/sessions/{name}/reset"}
"""Routes after which the rival has something of these names, too; so they are asked last."""


class CountedStore:
    """A store that counts what it is asked."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.asked: Counter[str] = Counter()
        self.under_way = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)
        if not callable(method):
            return method

        async def counted(*args: Any, **kwargs: Any) -> Any:
            if name in BY_THE_CLOCK:
                return await method(*args, **kwargs)
            self.asked[name] += 1
            self.under_way += 1
            try:
                return await method(*args, **kwargs)
            finally:
                self.under_way -= 1

        return counted

    @property
    def queue_length(self) -> int:
        return self.store.queue_length

    async def take(self) -> Counter[str]:
        """What it was asked since the last time, once it has answered all of it."""
        await until(lambda: self.under_way == 0)
        asked, self.asked = self.asked, Counter()
        return asked


class Ours(msgspec.Struct, frozen=True):
    """What the other tenant has, by the names that somebody might try."""

    key: str
    session_id: str
    turn_id: str
    call_id: str
    grant_id: str
    running_key: str
    running_id: str
    running_turn: str
    idempotency_key: str
    exported: bytes

    def of(self, place: str) -> tuple[str, ...]:
        """What to try in a place of a pattern."""
        match place:
            case "{name}":
                return (self.key, self.session_id, self.running_key, self.running_id)
            case "{id}":
                return (self.turn_id, self.running_turn)
            case "{response}":
                turns = (self.turn_id, self.running_turn)
                return tuple(each.replace("turn_", "resp_") for each in turns)
            case "{conversation}":
                return (self.session_id, self.running_id)
            case "{grant}":
                return (self.grant_id,)
            case "{item}" | "{call}":
                return (self.call_id,)
            case "{build}" | "{file...}":
                return (self.session_id,)  # files, which are everybody's
            case "{agent}":
                return ("root",)
            case "{digest}":
                return (
                    "sha256:" + "0" * 64,
                )  # bytes are found by the session, which is not theirs
            case "{config}":
                return (self.turn_id,)
            case "{id...}":
                return ("root",)  # an agent, which is everybody's
        raise AssertionError(f"say here what somebody could try in {place}")


class World:
    """A server with a rival in it."""

    def __init__(self, server: Serving, counted: CountedStore, rival: object) -> None:
        self.server = server
        self.counted = counted
        self.rival = rival

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str], data: bytes
    ) -> tuple[int, dict[str, str], str, Counter[str]]:
        """What an answer tells: all but what is minted or measured."""
        await self.counted.take()
        answer = await self.server.request(
            method, path, headers={**bearer(self.rival), **headers}, data=data or None
        )
        told = {
            name: plain(value)
            for name, value in answer.headers.items()
            if name.lower() not in MEASURED
        }
        return answer.status, told, plain(answer.body.decode()), await self.counted.take()


def plain(text: str) -> str:
    """A text without minted ids, times, and what is sealed with a store's own key."""
    text = re.sub(r"\bhfs1_[\w-]+", "hfs1_…", text)
    text = re.sub(r"\b([a-z]+[_-])(?:[0-7][0-9a-hjkmnp-tv-z]{25}){1,2}\b", r"\1…", text)
    text = re.sub(r'("timestamp":)"[^"]+"', r"\1…", text)
    text = re.sub(r"http://127\.0\.0\.1:\d+", "http://…", text)
    return re.sub(r'("(?:created|\w+_at)":)[0-9.]+', r"\1…", text)


@asynccontextmanager
async def world(model: ScriptedModel) -> AsyncIterator[tuple[World, MemoryStore]]:
    store = MemoryStore()
    counted = CountedStore(store)
    rival = await put_key(store, RIVAL, *EVERYTHING, nth=1)
    tool = HeldTool("pay", held=False)
    async with serving(careful(model, tool), store=cast(Store, counted), auth="required") as server:
        yield World(server, counted, rival), store
    assert tool.runs == 0, "nobody gave leave"


class Tenants(msgspec.Struct, frozen=True):
    """Both worlds, and what is in the first of them."""

    beside: World
    alone: World
    ours: Ours
    mine: dict[str, str]
    gate: Gate

    async def ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, data: bytes = b""
    ) -> int:
        """The same question in both worlds. Fails if the answers differ."""
        beside = await self.beside.ask(method, path, headers or {}, data)
        alone = await self.alone.ask(method, path, headers or {}, data)
        assert beside == alone, f"{method} {path} tells of another tenant"
        return alone[0]

    async def look(self) -> list[Answer]:
        """Everything of ours, as we see it."""
        ours = self.ours
        paths = [
            "/api/sessions",
            *(f"/api/sessions/{each}/turns" for each in (ours.session_id, ours.running_id)),
            f"/api/sessions/{ours.key}/items",
            f"/api/turns/{ours.turn_id}/approvals",
        ]
        get = self.beside.server.request
        return [await get("GET", each, headers=self.mine) for each in paths]


@pytest.fixture
async def tenants() -> AsyncIterator[Tenants]:
    gate = Gate()
    model = ScriptedModel(
        says("May I?", calls=(("pay", "{}"),)),
        says("Let me ", "think.").waiting(gate, at=1),
        otherwise=lambda _: "Yes.",
    )
    async with AsyncExitStack() as stack:
        beside, store = await stack.enter_async_context(world(model))
        alone, _ = await stack.enter_async_context(world(ScriptedModel(otherwise=lambda _: "Yes.")))
        mine = bearer(await put_key(store, Tenant("acme"), "admin", nth=2))
        server = beside.server
        once = {"Idempotency-Key": "our-request"}
        first = await server.chat("Pay the bill", to="our-trip", headers={**mine, **once})
        [call] = first.json["holdfast"]["approvals"]
        running = asyncio.create_task(server.chat("Think", to="our-thought", headers=mine))
        await gate.reached.wait()
        thought = await server.request("GET", "/api/sessions/our-thought", headers=mine)
        path = f"/api/sessions/{first.headers['x-session-id']}/export"
        exported = await server.request("GET", path, headers=mine)
        grant = granted(new_minter(), Tenant("acme"))
        await store.put_grant(grant)
        ours = Ours(
            key="our-trip",
            session_id=first.headers["x-session-id"],
            turn_id=first.headers["x-turn-id"],
            call_id=call["id"],
            grant_id=grant.grant_id,
            running_key="our-thought",
            running_id=thought.json["id"],
            running_turn=thought.json["open_turn"],
            idempotency_key="our-request",
            exported=exported.body,
        )
        yield Tenants(beside=beside, alone=alone, ours=ours, mine=mine, gate=gate)
        gate.release()
        assert (await running).text == "Let me think."


def questions(route: Route, ours: Ours) -> list[str]:
    """The paths that a pattern stands for, with the other tenant's names in its places."""
    places = re.findall(r"\{[^}]*\}", route.pattern)
    pattern = re.sub(r"\{[^}]*\}", "{}", route.pattern)
    return [pattern.format(*names) for names in product(*map(ours.of, places))]


def body_for(route: Route, ours: Ours) -> bytes:
    """A body with which the question would succeed for its owner: the route's own example, about what is ours."""
    if route.body is None:
        return b""
    if route.body.kind is bytes:
        return ours.exported
    example = msgspec.json.encode(route.body.example)
    return example.replace(b"fc_00000000000000000000000000", ours.call_id.encode())


async def test_no_route_tells_a_tenant_of_another(tenants: Tenants) -> None:
    before = [each.body for each in await tenants.look()]
    statuses: Counter[int] = Counter()
    for route in sorted(tenants.alone.server.app.routes, key=lambda each: each.label in MAKING):
        if route.scope == "metrics":  # it is about the whole server, and says so
            continue
        body = body_for(route, tenants.ours)
        for path in questions(route, tenants.ours):
            statuses[await tenants.ask(route.method, path, data=body)] += 1
    assert [each.body for each in await tenants.look()] == before
    assert statuses[404] > 20 and statuses[401] == statuses[403] == statuses[500] == 0


async def test_no_header_of_a_chat_request_tells_a_tenant_of_another(tenants: Tenants) -> None:
    ours = tenants.ours
    for headers in (
        {"X-Conversation-Id": ours.session_id},
        {"X-Conversation-Id": ours.running_id, "X-On-Busy": "reject"},
        {"X-Conversation-Id": ours.running_id, "X-On-Busy": "interrupt"},
        {"X-Conversation-Id": ours.running_id, "X-On-Busy": "steer"},
        {"X-Conversation-Id": ours.key, "X-Conversation-Create": "never"},
        {"X-Conversation-Id": ours.key, "If-Match": '"1"'},
        {"X-Conversation-Id": ours.key, "X-Approve": ours.call_id},
        {"X-Conversation-Id": ours.running_key, "X-On-Busy": "reject"},
        {"X-Conversation-Id": ours.key, "Idempotency-Key": ours.idempotency_key},
        {"X-Conversation-Id": ours.key, "x-stainless-retry-count": "1"},
    ):
        body = chat_body("Pay the bill")
        await tenants.ask("POST", "/v1/chat/completions", headers=headers, data=body)


async def test_no_name_in_a_body_tells_a_tenant_of_another(tenants: Tenants) -> None:
    ours = tenants.ours
    hi = {"role": "user", "content": "Hi"}
    item = f"{ours.call_id}{ours.session_id.removeprefix('conv_')}"
    for body in (
        {"conversation": ours.session_id},
        {"conversation": ours.running_id},
        {"previous_response_id": ours.turn_id.replace("turn_", "resp_")},
        {"previous_response_id": ours.running_turn.replace("turn_", "resp_")},
        {"input": [{"type": "item_reference", "id": item}, hi]},
        {"input": [{"type": "item_reference", "id": ours.call_id}, hi]},
    ):
        data = msgspec.json.encode({"model": "root", "input": "Hi", **body})
        for path in ("/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"):
            assert await tenants.ask("POST", path, data=data) in (400, 404)
        if "input" in body:
            added = msgspec.json.encode({"items": body["input"]})
            assert await tenants.ask("POST", "/v1/conversations", data=added) == 404


async def test_no_name_in_a_message_of_another_agent_tells_a_tenant_of_another(
    tenants: Tenants,
) -> None:
    ours = tenants.ours
    said = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}
    for n, (method, params) in enumerate(
        (
            ("GetTask", {"id": ours.turn_id}),
            ("GetTask", {"id": ours.running_turn}),
            ("CancelTask", {"id": ours.running_turn}),
            ("SubscribeToTask", {"id": ours.running_turn}),
            ("ListTasks", {}),
            ("ListTasks", {"contextId": ours.key}),
            ("ListTasks", {"contextId": ours.running_id}),
            ("SendMessage", {"message": {**said, "contextId": ours.session_id}}),
            ("SendMessage", {"message": {**said, "taskId": ours.turn_id}}),
            ("SendMessage", {"message": {**said, "taskId": ours.running_turn}}),
            ("SendMessage", {"message": {**said, "contextId": ours.key}}),
            ("GetExtendedAgentCard", {}),
        )
    ):
        body = {"jsonrpc": "2.0", "id": n, "method": method, "params": params}
        await tenants.ask("POST", "/a2a/root", data=msgspec.json.encode(body))


@pytest.mark.parametrize(
    "query", ["q=bill", "q=think", "busy=true", "key_prefix=our", "agent=root", "anonymous=true"]
)
async def test_no_list_has_anything_of_another_tenant(tenants: Tenants, query: str) -> None:
    assert await tenants.ask("GET", f"/api/sessions?{query}") == 200


async def test_the_same_questions_have_answers_for_their_owner(tenants: Tenants) -> None:
    """Else the tests above would be about nothing."""
    server = tenants.beside.server
    for route in server.app.routes:
        if (
            route.method != "GET"
            or not route.pattern.startswith("/api/")
            or route.scope == "metrics"
            or "events" in route.label
            or "blobs" in route.label
        ):
            continue
        for path in questions(route, tenants.ours):
            answer = await server.request("GET", path, headers=tenants.mine)
            assert answer.status == 200, path


async def test_a_leak_would_be_seen(tenants: Tenants) -> None:
    """The test on trial: a store that forgets about tenants."""
    inner = tenants.beside.counted.store
    turn = inner.turn

    async def careless(tenant: Tenant, turn_id: TurnId) -> TurnRow | None:
        return await turn(Tenant("acme"), turn_id)

    inner.turn = careless  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="tells of another tenant"):
        await tenants.ask("GET", f"/api/turns/{tenants.ours.turn_id}")
    inner.turn = turn  # type: ignore[method-assign]
