"""Approvals that are remembered for an agent: what they let through, what they do not, and how they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast import limits
from holdfast.agents.agent import Agent
from holdfast.core.items import Permissions
from holdfast.errors import StoreUnavailable
from holdfast.ids import GrantId, Tenant
from holdfast.models.model import Prompt
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import Script, ScriptedModel, says
from tests.core.builders import new_minter
from tests.server.access.test_authentication import bearer, put_key
from tests.server.api.test_approvals import Desk, asks, careful, command, desk
from tests.server.stubs import HeldTool, Serving, StubTools, serving

FIVE, SIX = '{"kr":5}', '{"kr":6}'


def talkative() -> ScriptedModel:
    """A model that has something to say whatever happens."""
    return ScriptedModel(otherwise=lambda _: "Very well.")


async def granted(here: Desk, *, arguments: str = "exact") -> dict[str, Any]:
    """Decide on the call that waits, for good; what is remembered of it."""
    answer = await here.decide({here.calls[0]: True}, remember="agent", arguments=arguments)
    assert answer.status == 202, answer.body
    await here.server.ended_turn(answer.json["id"])
    (grant,) = await remembered(here.server)
    return grant


async def remembered(server: Serving, **headers: str) -> list[dict[str, Any]]:
    answer = await server.request("GET", "/api/grants", headers=headers)
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json["grants"]
    return found


async def is_asked(
    here: Desk, arguments: str = FIVE, *, to: str = "other", tool: str = "pay", **fields: Any
) -> bool:
    """Whether somebody is asked when the agent wants to call this, in another conversation."""
    here.model.will(says("May I?", calls=[(tool, arguments)]))
    answer = await here.server.chat("Pay", to=to, **fields)
    assert answer.status == 200, answer.body
    return "approvals" in answer.json["holdfast"]


# ── what is remembered ───────────────────────────────────────────────────────────────────────


async def test_it_holds_for_the_agent_in_every_conversation() -> None:
    async with desk() as here:
        grant = await granted(here)
        assert not await is_asked(here)
        assert not await is_asked(here, '{ "kr": 5 }', to="third")
        assert here.tool.runs == 3
    assert grant == {
        "id": grant["id"],
        "source": "stub",
        "agent": "root",
        "tool": "pay",
        "arguments": FIVE,
        "call": here.calls[0],
        "made_at": grant["made_at"],
        "made_by": None,
        "revoked_at": None,
        "session": None,
    }


async def test_it_is_about_the_very_arguments_unless_somebody_says_any() -> None:
    async with desk() as here:
        await granted(here)
        assert await is_asked(here, SIX)
        assert await is_asked(here, "{}", to="third")
    async with desk() as here:
        assert (await granted(here, arguments="any"))["arguments"] is None
        assert not await is_asked(here, SIX)


async def test_a_denial_is_not_remembered() -> None:
    async with desk() as here:
        answer = await here.decide({here.calls[0]: False}, remember="agent")
        await here.server.ended_turn(answer.json["id"])
        assert await remembered(here.server) == []
        assert await is_asked(here)


async def test_it_outlives_the_server() -> None:
    store = MemoryStore()
    async with desk(store=store) as here:
        await granted(here)
    tool, model = HeldTool("pay", held=False), talkative()
    async with serving(careful(model, tool), store=store) as server:
        assert not await is_asked(Desk(server, here.asked, tool, model))
    assert tool.runs == 1
    await store.close()


async def test_it_is_written_down_who_did_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast.audit"):
        async with desk() as here:
            grant = await granted(here)
            await here.server.request("DELETE", f"/api/grants/{grant['id']}")
    told = {
        record.message: vars(record)["fields"]
        for record in caplog.records
        if record.name == "holdfast.audit"
    }
    assert told["approval.remember"]["about"] == grant["id"]
    assert told["approval.remember"]["tool"] == "pay"
    assert told["approval.revoke"]["about"] == grant["id"]


# ── taken back ───────────────────────────────────────────────────────────────────────────────


async def test_what_is_taken_back_is_asked_about_again_and_stays_listed() -> None:
    async with desk() as here:
        grant = await granted(here)
        path = f"/api/grants/{grant['id']}"
        first, again = [await here.server.request("DELETE", path) for _ in range(2)]
        assert first.json == again.json
        assert first.json["revoked_at"] >= grant["made_at"]
        assert await remembered(here.server) == [first.json]
        assert await is_asked(here)
    assert here.tool.runs == 1


@pytest.mark.parametrize("name", ["what", str(new_minter()(GrantId)), "grant_"])
async def test_what_is_not_there_cannot_be_taken_back(name: str) -> None:
    async with desk() as here:
        answer = await here.server.request("DELETE", f"/api/grants/{name}")
        assert (answer.status, answer.error["code"]) == (404, "grant_not_found")
        assert (await here.server.request("GET", f"/api/grants?after={name}")).status in (200, 404)


async def test_lists_have_pages() -> None:
    async with desk(("pay", FIVE), ("pay", SIX)) as here:
        answer = await here.decide(dict.fromkeys(here.calls, True), remember="agent")
        await here.server.ended_turn(answer.json["id"])
        first = await here.server.request("GET", "/api/grants?limit=1&agent=root")
        assert first.json["has_more"]
        (one,) = first.json["grants"]
        second = await here.server.request("GET", f"/api/grants?limit=1&after={one['id']}")
        assert not second.json["has_more"]
        nobody = await here.server.request("GET", "/api/grants?agent=nobody")
        assert nobody.json == {"grants": [], "has_more": False}
    assert [one["arguments"], second.json["grants"][0]["arguments"]] == [FIVE, SIX]


# ── no forgery gets through ──────────────────────────────────────────────────────────────────


def renamed(made: Agent, tool: HeldTool) -> None:
    tool.spec = msgspec.structs.replace(tool.spec, name="fly")


def redescribed(made: Agent, tool: HeldTool) -> None:
    tool.spec = msgspec.structs.replace(tool.spec, description="empties the account")


def reshaped(made: Agent, tool: HeldTool) -> None:
    tool.spec = msgspec.structs.replace(tool.spec, parameters='{"type": "object"}')


def moved(made: Agent, tool: HeldTool) -> None:
    made.origins = ("another server",)


def another_kind(made: Agent, tool: HeldTool) -> None:
    class OtherTools(StubTools):
        pass

    made.toolsets = (OtherTools(tool),)


def another_agent(made: Agent, tool: HeldTool) -> None:
    made.name = "twin"


@pytest.mark.parametrize(
    "change", [renamed, redescribed, reshaped, moved, another_kind, another_agent]
)
async def test_it_does_not_hold_for_what_has_become_something_else(
    change: Callable[[Agent, HeldTool], None],
) -> None:
    store = MemoryStore()
    async with desk(store=store) as here:
        await granted(here, arguments="any")
    tool, model = HeldTool("pay", held=False), talkative()
    made = careful(model, tool)
    change(made, tool)
    async with serving(made, store=store) as server:
        there = Desk(server, here.asked, tool, model)
        assert await is_asked(there, tool=tool.spec.name, model=made.name)
    assert tool.runs == 0
    await store.close()


async def test_it_does_not_hold_against_a_rule() -> None:
    store = MemoryStore()
    async with desk(store=store) as here:
        await granted(here, arguments="any")
    for rules in (Permissions(), Permissions(ask=("pay",), deny=("pay",))):
        tool, model = HeldTool("pay", held=False), talkative()
        made = careful(model, tool)
        made.permissions = rules
        async with serving(made, store=store) as server:
            assert not await is_asked(Desk(server, here.asked, tool, model))
        assert tool.runs == 0
    await store.close()


@asynccontextmanager
async def guarded() -> AsyncIterator[tuple[Desk, dict[str, dict[str, str]]]]:
    """A desk behind keys: of an administrator, of somebody who may only talk, and of a rival."""
    store = MemoryStore()
    keys = {
        "admin": bearer(await put_key(store, Tenant("acme"), "admin", nth=1)),
        "chat": bearer(await put_key(store, Tenant("acme"), "chat", "read", nth=2)),
        "rival": bearer(await put_key(store, Tenant("rival"), "admin", nth=3)),
    }
    tool, model = HeldTool("pay", held=False), asks(("pay", FIVE))
    async with serving(careful(model, tool), store=store, auth="required") as server:
        asked = await server.chat("Pay the bill", to="trip", headers=keys["chat"])
        assert asked.status == 200
        yield Desk(server, asked, tool, model), keys
    await store.close()


async def test_only_who_may_administer_decides_for_everybody() -> None:
    async with guarded() as (here, keys):
        call = here.calls[0]
        refused = await here.decide({call: True}, remember="agent", headers=keys["chat"])
        assert (refused.status, refused.error["code"]) == (403, "insufficient_scope")
        assert here.tool.runs == 0, "nothing has begun"
        allowed = await here.decide({call: True}, remember="agent", headers=keys["admin"])
        assert allowed.status == 202
        (grant,) = await remembered(here.server, **keys["chat"])
        assert grant["made_by"].startswith("key_")
        path = f"/api/grants/{grant['id']}"
        assert (await here.server.request("DELETE", path, headers=keys["chat"])).status == 403


async def test_another_tenant_has_nothing_of_it() -> None:
    async with guarded() as (here, keys):
        await here.decide({here.calls[0]: True}, remember="agent", headers=keys["admin"])
        (grant,) = await remembered(here.server, **keys["admin"])
        assert await remembered(here.server, **keys["rival"]) == []
        path = f"/api/grants/{grant['id']}"
        theirs = await here.server.request("DELETE", path, headers=keys["rival"])
        nobodys = await here.server.request(
            "DELETE", f"/api/grants/{new_minter()(GrantId)}", headers=keys["rival"]
        )
        assert (theirs.status, theirs.error["code"]) == (nobodys.status, nobodys.error["code"])
        assert await is_asked(here, headers=keys["rival"])
        assert not await is_asked(here, headers=keys["chat"])


def pays(prompt: Prompt) -> Script:
    """Whoever asks is answered by a call, and whoever has called is done."""
    said = msgspec.json.decode(b"[" + b",".join(prompt.messages) + b"]")
    return says("Ok.") if said[-1]["role"] == "tool" else says("May I?", calls=[("pay", FIVE)])


@pytest.mark.parametrize("seed", range(6))
async def test_a_revocation_that_was_answered_lets_nothing_more_through(seed: int) -> None:
    """Revoking races with calls: those that are asked for after its answer are asked about, all of them."""
    tool, model = HeldTool("pay", held=False), ScriptedModel(otherwise=pays)
    async with serving(careful(model, tool), store=None) as server:
        here = Desk(server, await server.chat("Pay", to="trip"), tool, model)
        grant = await granted(here)
        is_revoked = asyncio.Event()

        async def revoke() -> None:
            for _ in range(seed * 5):
                await asyncio.sleep(0)
            answer = await server.request("DELETE", f"/api/grants/{grant['id']}")
            assert answer.status == 200
            is_revoked.set()

        async def ask(n: int) -> tuple[bool, bool]:
            late = is_revoked.is_set()
            answer = await server.chat("Pay", to=f"c{n}")
            return late, "approvals" in answer.json["holdfast"]

        early = asyncio.gather(*(ask(n) for n in range(4)))
        await asyncio.gather(revoke(), early)
        runs = tool.runs
        assert await asyncio.gather(*(ask(n) for n in range(10, 14))) == [(True, True)] * 4
    assert tool.runs == runs, "nothing has run since"


async def test_a_decision_sent_twice_is_remembered_once() -> None:
    async with desk() as here:
        answers = [
            await here.decide({here.calls[0]: True}, key="k1", remember="agent") for _ in range(3)
        ]
        assert [each.status for each in answers] == [202] * 3
        await here.server.ended_turn(answers[0].json["id"])
        late = await here.decide({here.calls[0]: True}, remember="agent")
        assert late.status == 409
        assert len(await remembered(here.server)) == 1


async def test_there_are_not_more_than_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "grants_max", 0)
    async with desk() as here:
        answer = await here.decide({here.calls[0]: True}, remember="agent")
        assert (answer.status, answer.error["code"]) == (409, "too_many_grants")
        assert len(await here.waiting()) == 1
    assert here.tool.runs == 0


@pytest.mark.parametrize("remember", [None, "session"])
async def test_arguments_belong_to_what_is_remembered_for_an_agent(remember: str | None) -> None:
    async with desk() as here:
        answer = await here.decide({here.calls[0]: True}, remember=remember, arguments="any")
        assert (answer.status, answer.error["param"]) == (400, "arguments")


# ── from a terminal ──────────────────────────────────────────────────────────────────────────


async def test_a_person_at_a_terminal_remembers_lists_and_takes_back() -> None:
    async with desk() as here:
        decide = ("decide", here.turn_id, "--approve", here.calls[0])
        code, _, why = await command(here.server, *decide, "--any-arguments")
        assert code == 2 and "--remember agent" in why
        code, begun, _ = await command(here.server, *decide, "--remember", "agent")
        assert code == 0
        await here.server.ended_turn(begun.strip())
        (grant,) = await remembered(here.server)
        _, listed, _ = await command(here.server, "remembered", "--agent", "root")
        assert grant["id"][:20] in listed and "pay" in listed
        code, told, _ = await command(here.server, "revoke", grant["id"])
        assert (code, told.strip()) == (0, grant["id"])
        _, listed, _ = await command(here.server, "remembered")
        assert "pay" not in listed
        _, everything, _ = await command(here.server, "remembered", "--all", "--json")
        assert msgspec.json.decode(everything)[0]["id"] == grant["id"]
        code, _, why = await command(here.server, "revoke", "nonsense")
        assert code == 2 and "does not exist" in why


async def test_what_could_not_be_remembered_at_first_is_remembered_by_the_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The turn has begun by then, and a retry with its key finds it; the approval must not be lost with the answer."""
    async with desk() as here:
        with monkeypatch.context() as context:
            context.setattr(here.server.sessions.store, "put_grant", _away)
            failed = await here.decide({here.calls[0]: True}, key="k1", remember="agent")
            assert failed.status == 503
            assert await remembered(here.server) == []
        again = await here.decide({here.calls[0]: True}, key="k1", remember="agent")
        assert again.status == 202, again.body
        await here.server.ended_turn(again.json["id"])
        assert len(await remembered(here.server)) == 1


async def _away(row: object) -> None:
    raise StoreUnavailable("away")
