"""Calls that wait for a person: what is decided is carried out once, exactly, and nothing else is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from holdfast import limits
from holdfast.agents.agent import Agent
from holdfast.core.items import Permissions
from holdfast.ids import CallId, ResultId, TurnId
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel, says
from tests.core.builders import new_minter
from tests.server.stubs import Answer, HeldTool, Serving, StubTools, agent, serving


def careful(model: ScriptedModel, *tools: HeldTool) -> Agent:
    made = agent(model)
    made.toolsets = (StubTools(*tools),)
    made.permissions = Permissions(ask=("pay", "fly"))
    return made


def asks(*calls: tuple[str, str]) -> ScriptedModel:
    """A model that wants to use these tools, and then has something to say whatever happens."""
    return ScriptedModel(says("May I?", calls=calls), otherwise=lambda _: "Very well.")


class Desk:
    """A conversation in which calls wait for somebody's leave."""

    def __init__(
        self, server: Serving, asked: Answer, tool: HeldTool, model: ScriptedModel
    ) -> None:
        self.server = server
        self.asked = asked
        self.tool = tool
        self.model = model

    @property
    def turn_id(self) -> str:
        return self.asked.headers["x-turn-id"]

    @property
    def calls(self) -> list[str]:
        return [each["id"] for each in self.asked.json["holdfast"]["approvals"]]

    async def decide(
        self,
        decisions: dict[str, bool],
        *,
        turn: str | None = None,
        key: str | None = None,
        remember: str | None = None,
        arguments: str = "exact",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        body = {
            "decisions": {
                call: {"approve": approve, "remember": remember, "arguments": arguments}
                for call, approve in decisions.items()
            }
        }
        return await self.server.request(
            "POST",
            f"/api/turns/{turn or self.turn_id}/approvals",
            headers={**({"Idempotency-Key": key} if key else {}), **(headers or {})},
            data=msgspec.json.encode(body),
        )

    async def waiting(self) -> list[dict[str, Any]]:
        answer = await self.server.get(f"/api/turns/{self.turn_id}/approvals")
        found: list[dict[str, Any]] = answer.json["approvals"]
        return found

    async def outcomes(self) -> list[str]:
        items = await self.server.items("trip")
        return [each["outcome"] for each in items if each["type"] == "result"]


@asynccontextmanager
async def desk(*calls: tuple[str, str], store: MemoryStore | None = None) -> AsyncIterator[Desk]:
    tool, model = HeldTool("pay", held=False), asks(*(calls or (("pay", '{"kr":5}'),)))
    async with serving(careful(model, tool), store=store) as server:
        asked = await server.chat("Pay the bill", to="trip")
        assert asked.status == 200
        yield Desk(server, asked, tool, model)


# ── what is decided is carried out ───────────────────────────────────────────────────────────


async def test_the_turn_commits_with_the_call_waiting() -> None:
    async with desk() as here:
        (waiting,) = await here.waiting()
        (turn,) = await here.server.turns("trip")
    assert here.asked.json["choices"][0]["finish_reason"] == "stop"
    assert here.asked.json["choices"][0]["message"]["content"].startswith("May I?")
    (shown,) = here.asked.json["holdfast"]["approvals"]
    assert shown == {"id": here.calls[0], "name": "pay", "arguments": '{"kr":5}', "agent": "root"}
    assert waiting == {**shown, "expires_at": pytest.approx(turn["began_at"] + 86400, abs=60)}
    assert turn["state"] == "committed"
    assert here.tool.runs == 0


async def test_a_stream_tells_of_it_with_its_end() -> None:
    tool, model = HeldTool("pay", held=False), asks(("pay", "{}"))
    async with serving(careful(model, tool)) as server:
        answer = await server.chat("Pay", to="trip", stream=True)
    *_, finish, done = answer.events
    assert done == "[DONE]"
    assert [each["name"] for each in finish["holdfast"]["approvals"]] == ["pay"]


async def test_what_is_approved_is_run_once_and_the_agent_hears_of_it() -> None:
    async with desk() as here:
        answer = await here.decide({here.calls[0]: True})
        assert answer.status == 202
        ended = await here.server.ended_turn(answer.json["id"])
        assert await here.waiting() == []
        assert await here.outcomes() == ["ok"]
    assert (ended["state"], ended["version"]) == ("committed", 2)
    assert here.tool.runs == 1
    assert [each.role for each in here.model.messages(-1)] == ["user", "assistant", "tool"]


async def test_what_is_denied_is_not_run_and_the_agent_hears_of_it() -> None:
    async with desk() as here:
        answer = await here.decide({here.calls[0]: False})
        await here.server.ended_turn(answer.json["id"])
        assert await here.outcomes() == ["refused"]
    assert here.tool.runs == 0
    assert len(here.model.prompts) == 2


async def test_one_call_is_decided_on_under_its_own_address() -> None:
    async with desk() as here:
        answer = await here.server.request(
            "POST", f"/api/turns/{here.turn_id}/approvals/{here.calls[0]}", data=b'{"approve":true}'
        )
        assert answer.status == 202
        await here.server.ended_turn(answer.json["id"])
    assert here.tool.runs == 1


async def test_calls_of_one_turn_are_decided_on_together() -> None:
    async with desk(("pay", '{"kr":1}'), ("pay", '{"kr":2}')) as here:
        first, second = here.calls
        alone = await here.decide({first: True})
        assert (alone.status, alone.error["code"]) == (400, "approvals_missing")
        assert second in alone.error["message"]
        assert len(await here.waiting()) == 2
        both = await here.decide({first: True, second: False})
        await here.server.ended_turn(both.json["id"])
        assert sorted(await here.outcomes()) == ["ok", "refused"]
    assert here.tool.runs == 1


async def test_a_chat_client_decides_with_its_next_message() -> None:
    async with desk(("pay", '{"kr":1}'), ("pay", '{"kr":2}')) as here:
        first, second = here.calls
        answer = await here.server.chat(
            "The first only", to="trip", headers={"X-Approve": first, "X-Deny": second}
        )
        assert answer.text == "Very well."
        assert sorted(await here.outcomes()) == ["ok", "refused"]
    assert here.tool.runs == 1
    assert "approvals" not in answer.json["holdfast"]


async def test_any_other_message_refuses() -> None:
    async with desk() as here:
        assert (await here.server.chat("Never mind", to="trip")).status == 200
        assert await here.outcomes() == ["refused"]
        late = await here.decide({here.calls[0]: True})
        assert (late.status, late.error["code"]) == (409, "approval_closed")
    assert here.tool.runs == 0


async def test_whoever_takes_over_can_decide() -> None:
    """No lease is held while a person thinks: another server, or this one after a restart, goes on."""
    store = MemoryStore()
    async with desk(store=store) as first:
        call, turn_id = first.calls[0], first.turn_id
    tool, model = HeldTool("pay", held=False), ScriptedModel("Done.")
    async with serving(careful(model, tool), store=store) as server:
        there = Desk(server, first.asked, tool, model)
        answer = await there.decide({call: True}, turn=turn_id)
        await server.ended_turn(answer.json["id"])
    assert tool.runs == 1
    await store.close()


async def test_a_client_with_tools_decides_and_sends_its_results_at_once() -> None:
    """A turn may wait for a person and for its client. The turn that the decision begins has the client's tools."""
    mine = {"name": "look", "parameters": {"type": "object"}}
    tool, model = HeldTool("pay", held=False), asks(("pay", '{"kr":5}'), ("look", "{}"))
    async with serving(careful(model, tool)) as server:
        asked = await server.chat(
            "Pay the bill", to="trip", tools=[{"type": "function", "function": mine}]
        )
        here = Desk(server, asked, tool, model)
        (look,) = asked.json["choices"][0]["message"]["tool_calls"]
        body = {
            "decisions": {here.calls[0]: {"approve": True}},
            "results": {look["id"]: "five kroner"},
            "tools": [mine],
            "instructions": "Be quick.",
        }
        where = f"/api/turns/{here.turn_id}/approvals"
        twice = {**body, "tools": [mine, mine]}
        refused = await server.request("POST", where, data=msgspec.json.encode(twice))
        assert (refused.status, refused.error["code"]) == (400, "invalid_tool")
        begun = await server.request("POST", where, data=msgspec.json.encode(body))
        await server.ended_turn(begun.json["id"])
        items = await server.items("trip")
    results = [each for each in items if each["type"] == "result"]
    assert {each["content"][0]["text"] for each in results} >= {"five kroner"}
    assert [each["outcome"] for each in results] == ["ok", "ok"]
    assert tool.runs == 1
    prompt = model.prompts[-1]
    assert "look" in [each.name for each in prompt.tools]
    assert "Be quick." in prompt.system


# ── remembered ───────────────────────────────────────────────────────────────────────────────


async def test_a_choice_is_remembered_for_the_session_if_asked_to() -> None:
    async with desk() as here:
        answer = await here.decide({here.calls[0]: True}, remember="session")
        await here.server.ended_turn(answer.json["id"])
        here.model.will(says(calls=[("pay", '{"kr":6}', "again")]), "Paid.")
        again = await here.server.chat("Pay once more", to="trip")
        here.model.will(says("May I?", calls=[("pay", "{}")]))
        elsewhere = await here.server.chat("Pay", to="other")
    assert "approvals" not in again.json["holdfast"]
    assert here.tool.runs == 2
    assert "approvals" in elsewhere.json["holdfast"], "in this session only"


async def test_a_denial_is_not_remembered_as_leave() -> None:
    async with desk() as here:
        answer = await here.decide({here.calls[0]: False}, remember="session")
        await here.server.ended_turn(answer.json["id"])
        here.model.will(says("May I?", calls=[("pay", "{}", "again")]))
        again = await here.server.chat("Pay", to="trip")
    assert "approvals" in again.json["holdfast"]


# ── repeated, forged, late, raced ────────────────────────────────────────────────────────────


async def test_a_decision_repeated_under_its_key_is_the_same_decision() -> None:
    async with desk() as here:
        answers = [await here.decide({here.calls[0]: True}, key="k1") for _ in range(3)]
        other = await here.decide({here.calls[0]: False}, key="k1")
        await here.server.ended_turn(answers[0].json["id"])
    assert [each.status for each in answers] == [202] * 3
    assert len({each.json["id"] for each in answers}) == 1
    assert (other.status, other.error["code"]) == (422, "idempotency_key_reused")
    assert here.tool.runs == 1


async def test_a_decision_repeated_without_a_key_is_closed() -> None:
    async with desk() as here:
        first = await here.decide({here.calls[0]: True})
        repeated = [await here.decide({here.calls[0]: True}) for _ in range(3)]
        await here.server.ended_turn(first.json["id"])
    assert {(each.status, each.error["code"]) for each in repeated} == {(409, "approval_closed")}
    assert here.tool.runs == 1


async def test_a_decision_comes_too_late_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as here:
        monkeypatch.setattr(limits, "approval_s", -1.0)
        late = await here.decide({here.calls[0]: True})
        assert (late.status, late.error["code"]) == (409, "approval_expired")
        monkeypatch.undo()
        assert len(await here.waiting()) == 1, "a message can still refuse it"
    assert here.tool.runs == 0


def forgeries(here: Desk, others: list[str], seed: int) -> list[tuple[str, dict[str, bool]]]:
    """Turns and calls that do not belong together, or are nobody's: none of these may start anything."""
    mint, draw = new_minter(), Random(seed)
    (real,) = here.calls
    ids = [str(mint(kind)) for kind in (CallId, ResultId) for _ in range(60)]
    ids += [real.upper(), real[:-1], real + "0", real.replace("fc_", "call_"), "call_0", "*", "%"]
    ids += [real[:-1] + draw.choice("0123456789abcdefghjkmnpqrstvwxyz") for _ in range(40)]
    ids += others
    wrong = [(here.turn_id, {each: True}) for each in ids if each != real]
    beside = [(here.turn_id, {real: True, each: True}) for each in ids if each != real]
    turns = [str(mint(TurnId)) for _ in range(60)] + [here.turn_id[:-1], here.turn_id.upper()]
    elsewhere = [(each, {real: True}) for each in turns]
    return [*wrong, *beside, *elsewhere]


async def test_no_forgery_gets_through() -> None:
    async with desk() as here:
        here.model.will(says("May I?", calls=[("pay", "{}")]))
        other = await here.server.chat("Pay", to="other")
        others = [each["id"] for each in other.json["holdfast"]["approvals"]]
        forged = forgeries(here, others, seed=1)
        forged += [(other.headers["x-turn-id"], {here.calls[0]: True})]
        assert len(forged) > 350
        for turn, decisions in forged:
            answer = await here.decide(decisions, turn=turn)
            assert answer.status in (400, 404), (turn, decisions, answer.body)
        headers = [{"X-Approve": each} for each in others]
        for each in headers:
            said = await here.server.chat("Pay", to="trip", headers=each)
            assert (said.status, said.error["code"]) == (409, "approval_closed")
        assert len(await here.waiting()) == 1
    assert here.tool.runs == 0


@pytest.mark.parametrize("seed", range(8))
async def test_of_many_who_decide_at_once_one_does(seed: int) -> None:
    async with desk() as here:
        (call,) = here.calls
        moves = ["approve"] * 3 + ["deny"] * 2 + ["message"]
        Random(seed).shuffle(moves)

        async def make(move: str) -> Answer:
            if move == "message":
                return await here.server.chat("Stop", to="trip")
            return await here.decide({call: move == "approve"})

        answers = await asyncio.gather(*map(make, moves))
        decided = [each for each in answers if each.status == 202]
        closed = [each for each in answers if each.status == 409]
        for each in decided:
            await here.server.ended_turn(each.json["id"])
        outcomes = await here.outcomes()
    assert len(decided) <= 1
    assert len(decided) + len(closed) == 5
    assert len(outcomes) == 1
    assert here.tool.runs == (outcomes == ["ok"])
    if decided:
        approved = moves[answers.index(decided[0])] == "approve"
        assert outcomes == ["ok" if approved else "refused"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("approvals", b"{}", 400, "missing_required_parameter"),
        ("approvals", b'{"decisions":{}}', 400, "missing_required_parameter"),
        ("approvals", b'{"decisions":{"x":{"approve":"yes"}}}', 400, "invalid_type"),
        ("approvals/what", b'{"approve":true}', 404, "approval_not_found"),
        ("approvals/what", b'{"approve":true,"remember":"agent!"}', 400, "invalid_type"),
        ("approvals/what", b"", 400, "invalid_json"),
    ],
)
async def test_what_cannot_be_a_decision_is_refused(
    path: str, body: bytes, status: int, code: str
) -> None:
    async with desk() as here:
        answer = await here.server.request("POST", f"/api/turns/{here.turn_id}/{path}", data=body)
    assert (answer.status, answer.error["code"]) == (status, code)


# ── from a terminal ──────────────────────────────────────────────────────────────────────────


async def command(server: Serving, *arguments: str) -> tuple[int, str, str]:
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast",
        "approvals",
        "--server",
        server.url,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await running.communicate()
    assert running.returncode is not None
    return running.returncode, out.decode(), err.decode()


async def test_a_person_at_a_terminal_decides() -> None:
    async with desk(("pay", '{"kr":1}'), ("pay", '{"kr":2}')) as here:
        first, second = here.calls
        _, listed, _ = await command(here.server, "list", here.turn_id)
        code, some, why = await command(here.server, "decide", here.turn_id, "--approve", first)
        assert (code, some) == (2, "") and second in why
        code, begun, _ = await command(
            here.server, "decide", here.turn_id, "--approve", first, "--deny", second
        )
        assert code == 0
        await here.server.ended_turn(begun.strip())
        assert sorted(await here.outcomes()) == ["ok", "refused"]
    assert first in listed and '{"kr":1}' in listed
    assert here.tool.runs == 1


@pytest.mark.parametrize("options", [(), ("--approve", "a", "--deny", "a")])
async def test_a_call_is_named_once(options: tuple[str, ...]) -> None:
    async with desk() as here:
        code, _, why = await command(here.server, "decide", here.turn_id, *options)
    assert code == 2
    assert "name each call once" in why


# ── forks and rewinds ────────────────────────────────────────────────────────────────────────


async def test_an_approval_is_good_for_the_session_that_asked_and_for_no_fork_of_it() -> None:
    """Once is once: a fork shows the call as waiting, and cannot have it run."""
    async with desk() as here:
        server, (call,) = here.server, here.calls
        forks = [await server.request("POST", "/api/sessions/trip/fork") for _ in range(2)]
        first = await here.decide({call: True})
        await server.ended_turn(first.json["id"])
        names = [each.json["id"] for each in forks]
        late = await server.request("POST", "/api/sessions/trip/fork", data=b'{"version":1}')
        for name in (*names, late.json["id"]):
            refused = await server.chat("Go on", to=name, headers={"X-Approve": call})
            assert (refused.status, refused.error["code"]) == (409, "approval_closed")
            assert "asked for again" in refused.error["message"]
            shown = await server.get(f"/api/sessions/{name}/history")
            assert shown.json["annotations"]["waiting"] == []
            said = await server.chat("Leave it", to=name)
            assert said.status == 200
    assert here.tool.runs == 1


@pytest.mark.parametrize("decided_first", [True, False])
async def test_an_approval_is_not_good_for_what_a_key_means_after_a_rewind(
    decided_first: bool,
) -> None:
    async with desk() as here:
        server, (call,) = here.server, here.calls
        if decided_first:
            first = await here.decide({call: True})
            await server.ended_turn(first.json["id"])
        rewound = await server.request("POST", "/api/sessions/trip/rewind", data=b'{"version":1}')
        assert rewound.status == 200
        refused = await server.chat("Go on", to="trip", headers={"X-Approve": call})
        assert (refused.status, refused.error["code"]) == (409, "approval_closed")
        if not decided_first:  # the session that asked is still there, under its id
            later = await here.decide({call: True})
            await server.ended_turn(later.json["id"])
        again = await here.decide({call: True})
        assert again.status == 409
    assert here.tool.runs == 1


async def test_a_fork_asks_for_itself_and_is_answered_for_itself() -> None:
    async with desk() as here:
        server = here.server
        fork = (await server.request("POST", "/api/sessions/trip/fork")).json["id"]
        here.model.will(says("May I?", calls=[("pay", "{}", "again")]))
        asked = await server.chat("Pay it here", to=fork)
        (call,) = asked.json["holdfast"]["approvals"]
        there = Desk(server, asked, here.tool, here.model)
        decided = await there.decide({call["id"]: True})
        await server.ended_turn(decided.json["id"])
    assert here.tool.runs == 1


async def test_what_is_remembered_for_a_session_is_not_for_its_forks() -> None:
    async with desk() as here:
        server = here.server
        answer = await here.decide({here.calls[0]: True}, remember="session")
        await server.ended_turn(answer.json["id"])
        (grant,) = (await server.get("/api/grants")).json["grants"]
        fork = (await server.request("POST", "/api/sessions/trip/fork")).json["id"]
        here.model.will(says("May I?", calls=[("pay", "{}", "again")]))
        asked = await server.chat("Pay", to=fork)
        await server.request("DELETE", f"/api/grants/{grant['id']}")
        here.model.will(says("May I?", calls=[("pay", "{}", "thrice")]))
        revoked = await server.chat("Pay", to="trip")
    assert grant["session"] == here.asked.headers["x-session-id"] and grant["agent"] == "root"
    assert "approvals" in asked.json["holdfast"]
    assert "approvals" in revoked.json["holdfast"]
