"""What `/api` says is what its types say: each answer is read by its type, and written again to the same bytes."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.codec import Decoder, encode
from holdfast.core.items import UserMessage, text_of
from holdfast.core.turns.journal import Record
from holdfast.testing import ScriptedModel
from holdfast.wire.api import objects as api
from holdfast.wire.problems import ErrorAnswer
from tests.server.api.test_approvals import desk
from tests.server.stubs import Serving, agent, serving


def read(kind: type[api.AnswerBody] | type[ErrorAnswer], body: bytes) -> object:
    """What an answer says. Nothing in it goes unread, and nothing is made up."""
    said: object = Decoder[object](kind).strict(body)
    assert encode(said) == body
    return said


async def begun(server: Serving) -> tuple[str, str]:
    """A conversation with a turn: their ids."""
    answer = await server.chat("Where is the ferry?", to="trip")
    return answer.headers["x-session-id"], answer.headers["x-turn-id"]


async def test_what_is_read_has_the_type_that_its_route_says() -> None:
    async with serving(agent(ScriptedModel("There."))) as server:
        _, turn_id = await begun(server)
        for route in server.app.routes:
            kind = route.answer.kind if route.answer else None
            if route.label.startswith("GET /api/") and kind not in (bytes, None):
                answer = await server.get(route.pattern.format(name="trip", id=turn_id))
                assert isinstance(read(kind, answer.body), kind)
        read(api.SessionPage, (await server.get("/api/sessions?q=ferry")).body)
        read(api.Items, (await server.get("/api/sessions/trip/items?view=model")).body)
        read(ErrorAnswer, (await server.get("/api/sessions/nobody")).body)


async def test_what_is_changed_is_answered_with_its_type() -> None:
    model = ScriptedModel("There.", "They asked for a ferry.")
    async with serving(agent(model)) as server:
        session_id, turn_id = await begun(server)
        changes = encode(api.Changes(title="Oslo"))
        patched = await server.request("PATCH", "/api/sessions/trip", data=changes)
        compacted = await server.request("POST", "/api/sessions/trip/compact")
        cancelled = await server.request("POST", f"/api/turns/{turn_id}/cancel")
        place = encode(api.Place(version=1))
        forked = await server.request("POST", "/api/sessions/trip/fork", data=place)
        exported = await server.get("/api/sessions/trip/export")
        taken = await server.request("POST", "/api/sessions/import", data=exported.body)
        deleted = await server.request("DELETE", "/api/sessions/trip")
    assert read(api.Deleted, deleted.body) == api.Deleted(id=session_id, deleted=True)
    assert read(api.Imported, taken.body) == api.Imported(
        imported=(), there_already=(session_id,), skipped=()
    )
    found = read(api.Session, patched.body)
    assert isinstance(found, api.Session) and found.title == "Oslo"
    for kind, answer in (
        (api.SessionSummary, compacted),
        (api.TurnObject, cancelled),
        (api.Session, forked),
    ):
        assert isinstance(read(kind, answer.body), kind)


async def test_a_search_says_where_and_a_list_does_not() -> None:
    async with serving(agent(ScriptedModel("There."))) as server:
        await begun(server)
        listed = read(api.SessionPage, (await server.get("/api/sessions")).body)
        sought = read(api.SessionPage, (await server.get("/api/sessions?q=ferry")).body)
    assert isinstance(listed, api.SessionPage) and isinstance(sought, api.SessionPage)
    assert listed.sessions[0].match is msgspec.UNSET
    match = sought.sessions[0].match
    assert isinstance(match, api.Match)
    assert [each.text for each in match.excerpt if each.hit] == ["ferry"]


async def test_calls_that_wait_and_decisions_on_them_have_types() -> None:
    async with desk(("pay", "{}")) as here:
        server, path = here.server, f"/api/turns/{here.turn_id}/approvals"
        waiting = read(api.WaitingCalls, (await server.get(path)).body)
        assert isinstance(waiting, api.WaitingCalls)
        (call,) = waiting.approvals
        decisions = api.Decisions(decisions={call.id: api.Decision(approve=True)})
        decided = await server.request("POST", path, data=encode(decisions))
    assert decided.status == 202
    assert isinstance(read(api.TurnObject, decided.body), api.TurnObject)


async def test_the_events_of_a_turn_are_read_one_by_one() -> None:
    async with serving(agent(ScriptedModel("There."))) as server:
        _, turn_id = await begun(server)
        stream = await server.get(f"/api/turns/{turn_id}/events")
    frames = [each.removeprefix(b"data: ") for each in stream.body.split(b"\n\n") if each]
    *records, last = map(api.read_event, frames)
    assert all(isinstance(each, Record) for each in records)
    assert isinstance(last, api.TurnEnded)
    assert last.turn.state == "committed"
    assert [encode(each) for each in (*records, last)] == frames


def test_a_frame_that_is_an_error_is_read_as_one_and_any_other_is_none() -> None:
    error = b'{"error":{"message":"no","type":"server_error","param":null,"code":"x"}}'
    assert encode(api.read_event(error)) == error
    with pytest.raises(msgspec.DecodeError):
        api.read_event(b"{}")


async def test_items_are_the_cores_own() -> None:
    async with serving(agent(ScriptedModel("There."))) as server:
        await begun(server)
        items = read(api.Items, (await server.get("/api/sessions/trip/items")).body)
    assert isinstance(items, api.Items)
    first = items.items[0]
    assert isinstance(first, UserMessage)
    assert text_of(first.content) == "Where is the ferry?"


def test_an_answer_may_gain_fields_and_a_request_may_not() -> None:
    newer = b'{"id":"a","deleted":true,"when":1}'
    assert msgspec.json.decode(newer, type=api.Deleted) == api.Deleted(id="a", deleted=True)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"colour":"red"}', type=api.Changes)
