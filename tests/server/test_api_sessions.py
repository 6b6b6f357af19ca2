"""`/api/sessions`: search, export and import."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import Any
from urllib.parse import quote

import pytest

from holdfast import limits
from holdfast.ids import LOCAL, SessionKey
from holdfast.server.api.transfer import send_session
from holdfast.server.http.body_memory import BodyMemory
from holdfast.server.http.exchange import ClientGone, Exchange, Message
from holdfast.store.transfer import export_lines
from holdfast.testing import ScriptedModel
from tests.server.stubs import Serving, agent, serving


def answers() -> ScriptedModel:
    return ScriptedModel(otherwise=lambda prompt: "Yes.")


async def found(server: Serving, typed: str, more: str = "") -> list[dict[str, Any]]:
    answer = await server.get(f"/api/sessions?q={quote(typed)}{more}")
    assert answer.status == 200, answer.body
    sessions: list[dict[str, Any]] = answer.json["sessions"]
    return sessions


# ── search ───────────────────────────────────────────────────────────────────────────────────


async def test_sessions_are_found_by_what_was_said() -> None:
    async with serving(agent(answers())) as server:
        await server.chat("Hello", to="a")
        await server.chat("nach Zürich am See", to="a")
        await server.chat("Bergen", to="b")
        [match] = await found(server, "ZURICH see")
        listed = (await server.get("/api/sessions/a")).json
        items = await server.items("a")
    place = match.pop("match")
    assert match == listed
    assert place == {
        "in": "message",
        "item": items[2]["id"],
        "position": 2,
        "excerpt": [
            {"text": "nach ", "hit": False},
            {"text": "Zürich", "hit": True},
            {"text": " am ", "hit": False},
            {"text": "See", "hit": True},
        ],
        "line": None,
    }


async def test_a_search_finds_titles_and_has_filters_and_pages() -> None:
    async with serving(agent(answers())) as server:
        for name in ("a-1", "a-2", "b-1"):
            await server.chat("Hello", to=name)
            await server.request("PATCH", f"/api/sessions/{name}", data=b'{"title":"Oslo"}')
        [match] = await found(server, "oslo", "&key_prefix=b-")
        first = await server.get("/api/sessions?q=osl*&limit=2")
        rest = await server.get(f"/api/sessions?q=osl*&limit=2&cursor={first.json['cursor']}")
        at = (await server.get("/api/sessions/a-2")).json["active_at"]
        early = await found(server, "oslo", f"&active_before={at}")
        late = await found(server, "oslo", f"&active_from={at}&busy=false&agent=root")
    assert match["match"]["in"] == "title" and match["match"]["item"] is None
    keys = [each["keys"][0] for each in (*first.json["sessions"], *rest.json["sessions"])]
    assert keys == ["b-1", "a-2", "a-1"]
    assert rest.json["cursor"] is None
    assert "a-2" not in [each["keys"][0] for each in early]
    assert {"a-2", "b-1"} <= {each["keys"][0] for each in late}


@pytest.mark.parametrize("typed", ["!", '"', "a AND", "x*y(", "%00", "'; drop table"])
async def test_whatever_is_typed_there_is_an_answer(typed: str) -> None:
    async with serving(agent(answers())) as server:
        await server.chat("Hello", to="a")
        assert await found(server, typed) == []


@pytest.mark.parametrize(
    "query",
    ["q=" + "x" * (limits.query_chars_max + 1), "q=x&cursor=x", "active_from=now", "q=x&limit=0"],
)
async def test_what_cannot_be_a_search_is_refused(query: str) -> None:
    async with serving(agent(answers())) as server:
        answer = await server.get(f"/api/sessions?{query}")
    assert answer.status == 400


async def test_bytes_that_are_no_text_find_nothing() -> None:
    async with serving(agent(answers())) as server:
        answer = await server.get("/api/sessions?q=%FF%FE")
    assert (answer.status, answer.json["sessions"]) == (200, [])


# ── export and import ────────────────────────────────────────────────────────────────────────


async def test_a_session_goes_from_one_server_to_another() -> None:
    async with serving(agent(answers())) as here, serving(agent(answers())) as there:
        await here.chat("To Oslo", to="trip")
        await here.chat("And back", to="trip")
        file = await here.get("/api/sessions/trip/export")
        taken = await there.request("POST", "/api/sessions/import", data=file.body)
        again = await there.request("POST", "/api/sessions/import", data=file.body)
        mine, theirs = [(await each.get("/api/sessions/trip")).json for each in (here, there)]
        same = await there.get("/api/sessions/trip/export")
        more = await there.chat("And on", to="trip")
    assert file.headers["content-type"] == "application/jsonl"
    assert file.headers["content-disposition"] == f'attachment; filename="{mine["id"]}.jsonl"'
    assert file.body.startswith(export_lines.HEADER)
    assert taken.json == {
        "imported": [mine["id"]],
        "there_already": [],
        "skipped": [],
        "dropped": [],
    }
    assert again.json == {
        "imported": [],
        "there_already": [mine["id"]],
        "skipped": [],
        "dropped": [],
    }
    assert mine == theirs
    assert same.body == file.body
    assert more.status == 200


async def test_an_export_that_nobody_waits_for_ends() -> None:
    async with serving(agent(answers())) as server:
        await server.chat("To Oslo", to="trip")
        row = await server.sessions.store.resolve(LOCAL, SessionKey("trip"))
        assert row is not None
        sent: list[Message] = []
        heard: list[Message] = [{"type": "http.request"}, {"type": "http.disconnect"}]

        async def receive() -> Message:
            return heard.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)
            await asyncio.sleep(0)

        scope = {"method": "GET", "path": "/", "query_string": b"", "headers": []}
        exchange = Exchange(scope, receive, send, request_id="r")
        await exchange.body(bytes_max=10, room=BodyMemory(1 << 30))
        with pytest.raises(ClientGone):
            await send_session(exchange, server.sessions.store, LOCAL, row.session_id)
    assert not any(b'"last"' in each.get("body", b"") for each in sent)


async def test_a_conflict_is_told_or_skipped() -> None:
    async with serving(agent(answers())) as here, serving(agent(answers())) as there:
        await here.chat("To Oslo", to="trip")
        await there.chat("Something else", to="trip")
        file = await here.get("/api/sessions/trip/export")
        stopped = await there.request("POST", "/api/sessions/import", data=file.body)
        skipped = await there.request(
            "POST", "/api/sessions/import?on_conflict=skip", data=file.body
        )
        odd = await there.request("POST", "/api/sessions/import?on_conflict=win", data=file.body)
    assert (stopped.status, stopped.error["code"]) == (409, "import_conflict")
    assert "'trip'" in stopped.error["message"]
    [told] = skipped.json["skipped"]
    assert "'trip'" in told["why"]
    assert odd.status == 400


async def test_what_is_no_export_is_refused_with_its_line() -> None:
    async with serving(agent(answers())) as server:
        await server.chat("To Oslo", to="trip")
        file = (await server.get("/api/sessions/trip/export")).body
        for body, line in ((b"", 1), (b"{}\n", 1), (file[:-5], file.count(b"\n"))):
            answer = await server.request("POST", "/api/sessions/import", data=body)
            assert (answer.status, answer.error["code"]) == (400, "invalid_export")
            assert answer.error["message"].startswith(f"line {line}: ")


async def test_an_import_may_be_larger_than_other_bodies_and_has_its_bound() -> None:
    async with serving(agent(answers())) as server:
        for size, status in (
            (limits.api_body_bytes_max + 1, 400),  # it is read, and is no export
            (limits.import_body_bytes_max + 1, 413),
        ):
            answer = await server.request("POST", "/api/sessions/import", data=BytesIO(b"x" * size))
            assert answer.status == status


async def test_a_session_may_be_called_import() -> None:
    async with serving(agent(answers())) as server:
        await server.chat("To Oslo", to="import")
        assert (await server.get("/api/sessions/import")).json["keys"] == ["import"]
        assert (await server.get("/api/sessions/import/export")).status == 200


@pytest.mark.parametrize(
    ("name", "status"),
    [("never", 404), ("conv_bad", 400), ("conv_" + "0" * 26, 404), ("gone", 410)],
)
async def test_what_is_not_there_is_not_exported(name: str, status: int) -> None:
    async with serving(agent(answers())) as server:
        await server.chat("To Oslo", to="gone")
        session_id = (await server.get("/api/sessions/gone")).json["id"]
        await server.request("DELETE", "/api/sessions/gone")
        path = session_id if name == "gone" else name
        assert (await server.get(f"/api/sessions/{path}/export")).status == status
