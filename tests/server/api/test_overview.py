"""What the console asks `/api` for: histories in pages, lines, the chain, remarks, who asks and who is there."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.core.codec import Decoder, encode
from holdfast.ids import Tenant
from holdfast.models.model import ModelFailed
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Gate, ScriptedModel, says
from holdfast.wire.api import overview as shown
from holdfast.wire.api.objects import AnswerBody
from tests.server.access.test_authentication import bearer, put_key
from tests.server.stubs import Serving, agent, serving


def echo() -> ScriptedModel:
    return ScriptedModel(otherwise=lambda _: "Yes.")


async def look(server: Serving, name: str, **query: object) -> Any:
    asked = "&".join(f"{key}={value}" for key, value in query.items())
    answer = await server.get(f"/api/sessions/{name}/history?{asked}")
    assert answer.status == 200, answer.body
    return answer.json


async def remark(server: Serving, name: str, **said: object) -> Any:
    body = msgspec.json.encode(said)
    answer = await server.request("POST", f"/api/sessions/{name}/annotations", data=body)
    return answer.json if answer.status == 200 else answer.error["code"]


def versions(history: Any) -> list[int | None]:
    return [each["turn"]["version"] for each in history["pages"]]


# ── histories ────────────────────────────────────────────────────────────────────────────────


async def test_a_turn_that_was_queued_stands_where_its_version_is() -> None:
    """It was asked for before others, and played after them."""
    gate = Gate()
    model = ScriptedModel(otherwise=lambda prompt: "Yes.")
    model.will(says("Let me ", "think.").waiting(gate, at=1))
    async with serving(agent(model)) as server:
        first = asyncio.create_task(server.chat("one", to="trip"))
        await gate.reached.wait()
        later = await server.respond(
            "three", background=True, headers={"X-Conversation-Id": "trip"}
        )
        assert later.json["status"] == "queued"
        now = server.chat("two", to="trip", headers={"X-On-Busy": "interrupt"})
        await asyncio.gather(first, now)
        name = later.json["id"]
        await server.get(f"/v1/responses/{name}?stream=true")
        history = await look(server, "trip")
        paged = [await look(server, "trip", limit=1)]
        while paged[-1]["before"]:
            paged.append(await look(server, "trip", limit=1, before=paged[-1]["before"]))
        listed = [each["version"] for each in await server.turns("trip")]
    assert versions(history) == listed == [3, 2, 1]
    assert [version for page in paged for version in versions(page)] == [3, 2, 1]


async def test_a_history_comes_in_pages_with_the_newest_turn_first() -> None:
    async with serving(agent(echo())) as server:
        for n in range(5):
            await server.chat(f"No. {n}", to="trip")
        first = await look(server, "trip", limit=2)
        second = await look(server, "trip", limit=2, before=first["before"])
        third = await look(server, "trip", limit=2, before=second["before"])
    assert [versions(each) for each in (first, second, third)] == [[5, 4], [3, 2], [1]]
    assert third["before"] is None
    texts = [each["content"][0]["text"] for each in third["pages"][0]["items"]]
    assert texts == ["No. 0", "Yes."]


async def test_a_discarded_turn_is_where_it_was_tried_and_brings_nothing() -> None:
    model = ScriptedModel("Yes.", says("Half").failing(ModelFailed("out of order"), at=1), "Again.")
    async with serving(agent(model)) as server:
        for text in ("one", "two", "three"):
            await server.chat(text, to="trip")
        history = await look(server, "trip")
    states = [(each["turn"]["state"], each["turn"]["base"]) for each in history["pages"]]
    assert states == [("committed", 1), ("discarded", 1), ("committed", 0)]
    assert history["pages"][1]["items"] == []
    assert history["pages"][1]["turn"]["ended_by"] == "model_error"


async def test_a_fork_shows_its_past_after_its_own_turns() -> None:
    async with serving(agent(echo())) as server:
        for n in range(4):
            await server.chat(f"No. {n}", to="trip")
        fork = (await server.request("POST", "/api/sessions/trip/fork", data=b'{"version":3}')).json
        await server.chat("elsewhere", to=fork["id"])
        whole = await look(server, fork["id"])
        pages = [await look(server, fork["id"], limit=1)]
        while pages[-1]["before"]:
            pages.append(await look(server, fork["id"], limit=1, before=pages[-1]["before"]))
    assert versions(whole) == [4, 3, 2, 1]
    assert whole["pages"][0]["turn"]["session_id"] == fork["id"]
    assert whole["pages"][1]["turn"]["session_id"] != fork["id"]
    assert [each for page in pages for each in versions(page)] == [4, 3, 2, 1]


async def test_a_page_that_cannot_be_meant_is_refused() -> None:
    async with serving(agent(echo())) as server:
        await server.chat("Hi", to="trip")
        for query in ("before=yesterday", "limit=0", "limit=101", "limit=x"):
            answer = await server.get(f"/api/sessions/trip/history?{query}")
            assert (answer.status, answer.error["code"]) == (400, "invalid_value"), query


# ── remarks ──────────────────────────────────────────────────────────────────────────────────


async def test_an_item_can_be_hidden_from_the_model_and_shown_again() -> None:
    async with serving(agent(echo())) as server:
        await server.chat("a secret", to="trip")
        item = (await look(server, "trip"))["pages"][0]["items"][0]["id"]
        await remark(server, "trip", item=item, show_to_model=False)
        hidden = await look(server, "trip")
        await remark(server, "trip", item=item, show_to_model=True, show_to_people=False)
        shown_again = await look(server, "trip")
    assert hidden["pages"][0]["unseen"] == [item] and not hidden["pages"][0]["hidden"]
    assert not shown_again["pages"][0]["unseen"] and shown_again["pages"][0]["hidden"] == [item]
    assert len(shown_again["pages"][0]["items"]) == 2, "nothing is ever taken away"


async def test_a_flag_is_set_and_taken_away() -> None:
    async with serving(agent(echo())) as server:
        await server.chat("Hi", to="trip")
        item = (await look(server, "trip"))["pages"][0]["items"][1]["id"]
        said = await remark(server, "trip", item=item, flag={"name": "good", "value": "yes"})
        assert said["flags"] == [{"item": item, "name": "good", "value": "yes"}]
        said = await remark(server, "trip", item=item, flag={"name": "good", "value": ""})
        assert said["flags"] == []
        said = await remark(server, "trip", flag={"name": "seen", "value": "by Ada"})
        assert said["flags"] == [{"item": None, "name": "seen", "value": "by Ada"}]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({}, "missing_required_parameter"),
        ({"show_to_model": False}, "missing_required_parameter"),
        ({"item": "msg_" + "0" * 26, "show_to_model": False}, "item_not_found"),
        ({"item": "nothing like one", "show_to_model": False}, "item_not_found"),
        ({"colour": "red"}, "unknown_parameter"),
    ],
)
async def test_a_remark_about_nothing_is_refused(said: dict[str, Any], code: str) -> None:
    async with serving(agent(echo())) as server:
        await server.chat("Hi", to="trip")
        assert await remark(server, "trip", **said) == code


# ── lines ────────────────────────────────────────────────────────────────────────────────────


async def test_a_line_knows_what_it_came_from_and_what_leaves_it() -> None:
    async with serving(agent(echo())) as server:
        for n in range(3):
            await server.chat(f"No. {n}", to="trip")
        old = (await server.get("/api/sessions/trip")).json["id"]
        rewound = (
            await server.request("POST", "/api/sessions/trip/rewind", data=b'{"version":2}')
        ).json["id"]
        inner = (
            await server.request("POST", f"/api/sessions/{rewound}/fork", data=b'{"version":2}')
        ).json["id"]
        line = (await server.get(f"/api/sessions/{old}/lineage")).json
        branch = (await server.get("/api/sessions/trip/lineage")).json
        await server.request("DELETE", f"/api/sessions/{old}")
        orphan = (await server.get("/api/sessions/trip/lineage")).json
    assert line["past"] == []
    assert [(each["id"], each["at"]) for each in line["forks"]] == [(rewound, 2)]
    assert [(each["id"], each["at"]) for each in branch["forks"]] == [(inner, 2)]
    assert [(each["id"], each["at"], each["version"]) for each in branch["past"]] == [(old, 2, 3)]
    assert [(each["id"], each["version"]) for each in orphan["past"]] == [(old, None)]


# ── the chain ────────────────────────────────────────────────────────────────────────────────


async def test_a_chain_is_checked_when_somebody_asks() -> None:
    store = MemoryStore()
    async with serving(agent(echo()), store=store) as server:
        await server.chat("Hi", to="trip")
        await server.chat("Ho", to="trip")
        good = (await server.get("/api/sessions/trip/chain")).json
        changed = "cast(replace(cast(body as text), 'Hi', 'Ha') as blob)"
        store.db.execute(f"update item set body = {changed} where pos = 0")
        bad = (await server.get("/api/sessions/trip/chain")).json
    assert good["version"] == 2 and good["problems"] == [] and len(good["link"]) == 64
    assert [each["code"] for each in bad["problems"]], "a byte was changed"
    await store.close()


# ── who asks, and who is there ───────────────────────────────────────────────────────────────


async def test_a_key_is_told_whose_it_is_and_what_it_may() -> None:
    store = MemoryStore()
    key = await put_key(store, Tenant("acme"), "chat", "read", nth=1)
    async with serving(agent(echo()), store=store, auth="required") as server:
        me = await server.request("GET", "/api/me", headers=bearer(key))
        nobody = await server.get("/api/me")
        nodes = await server.request("GET", "/api/nodes", headers=bearer(key))
    assert me.json["tenant"] == "acme" and me.json["scopes"] == ["chat", "read"]
    assert me.json["key"].startswith("key_")
    assert (nobody.status, nodes.status) == (401, 403)
    await store.close()


async def test_where_no_key_is_needed_everybody_may_everything() -> None:
    async with serving(agent(echo())) as server:
        me = (await server.get("/api/me")).json
        nodes = (await server.get("/api/nodes")).json
    assert me == {"tenant": "local", "key": None, "scopes": ["admin", "metrics"], "currency": ""}
    [node] = nodes["nodes"]
    assert node["here"] and node["since"] <= nodes["now"] <= node["expires_at"]


# ── types ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/me", shown.Me),
        ("/api/nodes", shown.Nodes),
        ("/api/sessions/trip/history", shown.History),
        ("/api/sessions/trip/lineage", shown.Lineage),
        ("/api/sessions/trip/chain", shown.Chain),
    ],
)
async def test_each_answer_is_what_its_type_says(path: str, kind: type[AnswerBody]) -> None:
    async with serving(agent(echo())) as server:
        await server.chat("Hi", to="trip")
        await server.request("POST", "/api/sessions/trip/fork")
        answer = await server.get(path)
    assert encode(Decoder[object](kind).strict(answer.body)) == answer.body


async def test_remarks_of_our_own_cannot_be_made_or_taken_back_by_others() -> None:
    """A flag with a dot in its name is how a deleted response is remembered."""
    async with serving(agent(echo())) as server:
        response = (await server.respond("Hi", headers={"X-Conversation-Id": "trip"})).json["id"]
        assert (await server.request("DELETE", f"/v1/responses/{response}")).status == 200
        for name in (f"deleted.{response}", "conversations.made_by", "", "x" * 65):
            assert await remark(server, "trip", flag={"name": name, "value": ""}) == "invalid_type"
        assert (
            await remark(server, "trip", flag={"name": "n", "value": "x" * 513}) == "invalid_type"
        )
        assert (await server.get(f"/v1/responses/{response}")).status == 404
