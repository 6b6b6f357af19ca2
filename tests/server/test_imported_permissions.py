"""A file brings conversations, and no permissions: what it claims to allow, or to have had granted, has no effect."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest

from holdfast.core.history.conversation import Patch, SettingsChanged, SettingsMerged
from holdfast.core.items import Permissions, SessionSettings
from holdfast.ids import LOCAL, SessionId
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel, says
from tests.server.stubs import Answer, HeldTool, Serving, StubTools, agent, serving


async def export_with(*patches: Patch) -> bytes:
    """A conversation that another server, or an editor, has given these settings."""
    store = MemoryStore()
    async with serving(agent(ScriptedModel("Yes.")), store=store) as server:
        first = await server.chat("Hi", to="trip")
        session_id = SessionId(first.headers["x-session-id"])
        await store.annotate(LOCAL, session_id, [(None, each) for each in patches])
        exported = await server.get("/api/sessions/trip/export")
    await store.close()
    return exported.body


def allowing(**rules: tuple[str, ...]) -> Patch:
    return SettingsChanged(settings=SessionSettings(permissions=Permissions(**rules)))


async def take_in(server: Serving, file: bytes) -> Answer:
    answer = await server.request("POST", "/api/sessions/import", data=file)
    assert answer.status == 200
    return answer


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        (allowing(allow=("shell",)), ["allow shell"]),
        (allowing(allow=("*",), granted=("shell",)), ["allow *", "granted shell"]),
        (SettingsMerged(granted=("shell",)), ["granted shell"]),
        (allowing(ask=("shell",), granted=("shell",)), ["granted shell"]),
        (allowing(ask=("shell",)), []),
        (allowing(deny=("other",)), []),
    ],
)
@pytest.mark.parametrize("rules", [Permissions(), Permissions(deny=("shell",))])
async def test_a_tool_that_the_operator_does_not_allow_is_not_run(
    patch: Patch, told: list[str], rules: Permissions
) -> None:
    file = await export_with(patch)
    tool = HeldTool("shell", held=False)
    model = ScriptedModel(says(calls=[("shell", "{}")]), otherwise=lambda _: "Very well.")
    made = agent(model)
    made.toolsets, made.permissions = (StubTools(tool),), rules
    async with serving(made) as server:
        taken = await take_in(server, file)
        answer = await server.chat("Run it", to="trip")
        items = await server.items("trip")
    assert answer.status == 200 and tool.runs == 0
    assert "approvals" not in answer.json["holdfast"], "nobody is asked about what is not allowed"
    assert [each["outcome"] for each in items if each["type"] == "result"] == ["refused"]
    (session_id,) = taken.json["imported"]
    expected = [{"id": session_id, "permissions": told}] if told else []
    assert taken.json["dropped"] == expected


async def test_what_is_asked_about_is_asked_about_whatever_a_file_has_had_granted() -> None:
    file = await export_with(SettingsMerged(granted=("shell",)))
    tool = HeldTool("shell", held=False)
    made = agent(ScriptedModel(says("May I?", calls=[("shell", "{}")])))
    made.toolsets, made.permissions = (StubTools(tool),), Permissions(ask=("shell",))
    async with serving(made) as server:
        await take_in(server, file)
        answer = await server.chat("Run it", to="trip")
    assert len(answer.json["holdfast"]["approvals"]) == 1
    assert tool.runs == 0


async def test_a_call_that_waits_is_decided_on_where_it_was_asked_for_and_nowhere_else() -> None:
    """A file can go to any number of servers, and to other tenants: in each of them the call would run once."""
    asking = HeldTool("pay", held=False)
    first = agent(ScriptedModel(says("May I?", calls=[("pay", "{}")]), "Paid."))
    first.toolsets, first.permissions = (StubTools(asking),), Permissions(ask=("pay",))
    async with serving(first) as server:
        waits = (await server.chat("Pay", to="trip")).json["holdfast"]
        file = (await server.get("/api/sessions/trip/export")).body
        (call,) = waits["approvals"]
        path = f"/api/turns/{waits['turn_id']}/approvals"
        same = await take_in(server, file)
        there = await server.request("POST", f"{path}/{call['id']}", data=b'{"approve": true}')
        await server.ended_turn(there.json["id"])
    assert same.json["dropped"] == [], "it is at home here"
    assert (there.status, asking.runs) == (202, 1)

    tool = HeldTool("pay", held=False)
    second = agent(ScriptedModel(otherwise=lambda _: "Very well."))
    second.toolsets, second.permissions = (StubTools(tool),), Permissions(ask=("pay",))
    async with serving(second) as server:
        taken = await take_in(server, forged(file))
        decided = await server.request("POST", f"{path}/{call['id']}", data=b'{"approve": true}')
        listed = await server.get(path)
        said = await server.chat("Yes, do.", to="trip", headers={"X-Approve": call["id"]})
        went_on = await server.chat("Never mind.", to="trip")
        items = await server.items("trip")
    assert [each["permissions"] for each in taken.json["dropped"]] == [["approval of pay"]]
    assert listed.json == {"approvals": []}
    assert [each.json["error"]["code"] for each in (decided, said)] == ["approval_closed"] * 2
    assert (went_on.status, tool.runs) == (200, 0)
    assert [each["outcome"] for each in items if each["type"] == "result"] == ["refused"]


def forged(file: bytes) -> bytes:
    """The same file, as if its turn had been played where it is going."""
    header, *block, end, last = file.splitlines(keepends=True)
    played = b'"ended_by":"completed","lease_token":7,'
    block = [line.replace(b'"ended_by":"completed",', played) for line in block]
    assert any(played in line for line in block)
    told = msgspec.json.decode(end) | {"sha256": sha256(b"".join(block)).hexdigest()}
    return b"".join([header, *block, msgspec.json.encode(told), b"\n", last])


async def test_what_a_file_forbids_is_forbidden() -> None:
    """Narrowing is what settings are for."""
    file = await export_with(allowing(deny=("shell",)))
    tool = HeldTool("shell", held=False)
    model = ScriptedModel(says(calls=[("shell", "{}")]), otherwise=lambda _: "Very well.")
    async with serving(agent(model, tool)) as server:
        await take_in(server, file)
        await server.chat("Run it", to="trip")
    assert tool.runs == 0


async def test_importing_a_session_into_its_own_home_changes_nothing() -> None:
    store = MemoryStore()
    async with serving(agent(ScriptedModel("Yes.")), store=store) as server:
        first = await server.chat("Hi", to="trip")
        patch = SettingsMerged(granted=("shell",))
        await store.annotate(LOCAL, SessionId(first.headers["x-session-id"]), [(None, patch)])
        file = (await server.get("/api/sessions/trip/export")).body
        taken = await take_in(server, file)
        again = (await server.get("/api/sessions/trip/export")).body
    await store.close()
    assert again == file
    assert taken.json["there_already"] == [first.headers["x-session-id"]]
    assert msgspec.json.encode(taken.json["dropped"]).count(b"granted shell") == 1
