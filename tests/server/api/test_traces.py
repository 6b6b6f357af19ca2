"""Where the time and the tokens of a turn went: by its journal, and, once that is gone, by the ids of its items."""

from __future__ import annotations

from typing import Any

from holdfast.agents.agent import Agent
from holdfast.core.turns.events import Answered, Ended, Event, StepStarted, Usage
from holdfast.core.turns.journal import Record
from holdfast.ids import Tenant
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel, fails, says
from holdfast.wire.api.objects import TurnObject, UsageObject
from holdfast.wire.api.traces import traced_records
from tests.server.access.test_authentication import bearer, put_key
from tests.server.stubs import HeldTool, Serving, agent, serving


async def trace(server: Serving, turn_id: str) -> Any:
    return (await server.get(f"/api/turns/{turn_id}/trace")).json


def shape(found: Any) -> list[tuple[str, str, str, int | None]]:
    return [(each["kind"], each["name"], each["outcome"], each["step"]) for each in found["spans"]]


def in_order(found: Any) -> bool:
    """Every span lies inside its turn, and none ends before it began."""
    turn = found["turn"]
    return all(
        turn["began_at"] <= each["began_at"] <= each["ended_at"] <= turn["ended_at"]
        for each in found["spans"]
    )


async def test_a_turn_is_a_trace_with_its_journal_and_without() -> None:
    """Promise: the same steps and calls; the models' names and each step's tokens are the journal's alone."""
    asks = says("Let me look.", calls=[("act", "{}")], usage=Usage(input_tokens=3, output_tokens=2))
    ends = says("Done.", usage=Usage(input_tokens=9, output_tokens=4, cost_micros=70))
    model = ScriptedModel(asks, ends, asks, ends, "Plain.", name="test/one")
    act = HeldTool("act", held=False)
    async with serving(agent(model, act)) as server:
        plain = await server.chat("Go", to="a")
        keyed = await server.chat("Go", to="b", headers={"idempotency-key": "k"})
        alone = await server.chat("Go", to="c")
        of_items = await trace(server, plain.headers["x-turn-id"])
        of_records = await trace(server, keyed.headers["x-turn-id"])
        of_one = await trace(server, alone.headers["x-turn-id"])
    assert shape(of_items) == [
        ("step", "", "done", 1),
        ("call", "act", "ok", None),
        ("step", "", "done", 2),
    ]
    assert shape(of_records) == [
        ("step", "test/one", "done", 1),
        ("call", "act", "ok", None),
        ("step", "test/one", "done", 2),
    ]
    assert (of_items["timed_by"], of_records["timed_by"]) == ("ids", "journal")
    assert in_order(of_items) and in_order(of_records)
    assert [each["usage"]["cost_micros"] for each in of_records["spans"] if each["usage"]] == [
        0,
        70,
    ]
    assert [each["usage"] for each in of_items["spans"]] == [None] * 3, "only the turn's are known"
    assert of_one["spans"][0]["usage"] == of_one["turn"]["usage"], "one step's are the turn's"
    assert all(each["first_at"] for each in of_records["spans"] if each["kind"] == "step")


def test_a_node_whose_clock_is_off_records_nothing_outside_its_turn() -> None:
    """A turn begins and ends by the store's clock; its records have the node's, which may be another machine's."""
    turn = TurnObject(
        id="turn_1", session_id="conv_1", state="committed", ended_by="completed", detail="",
        base=0, version=1, attempt=1, agent="root", usage=UsageObject.of(Usage()),
        began_at=10.0, ended_at=20.0,
    )  # fmt: skip
    events: tuple[Event, ...] = (
        StepStarted(),
        Answered(items=()),
        Ended(by="completed", kept=True),
    )
    for behind_s in (-100, 0, 100):
        times_ms = [(at_s + behind_s) * 1000 for at_s in (11, 12, 13)]
        records = [Record(n=n, at_ms=times_ms[n], event=event) for n, event in enumerate(events)]
        (step,) = traced_records(records, turn).spans
        assert step.ended_at and 10 <= step.began_at <= step.ended_at <= 20


async def test_a_discarded_turn_has_a_trace_with_the_step_that_failed() -> None:
    async with serving(agent(ScriptedModel(fails(status=500)))) as server:
        failed = await server.chat("Go", to="a")
        found = await trace(server, failed.headers["x-turn-id"])
        told = (await server.get(f"/api/turns/{found['turn']['id']}/prompt")).json
    assert [(each["kind"], each["outcome"]) for each in found["spans"]] == [("step", "broken_off")]
    assert told["instructions"] == "be nice" and len(told["items"]) == 1


async def test_the_work_of_a_sub_agent_lies_inside_its_call() -> None:
    task = '{"agent": "helper", "task": "Dig"}'
    model = ScriptedModel(says(calls=[("transfer_task", task)]), "Dug.", "All done.")
    root = Agent("root", model, instruction="Lead.", sub_agents=("helper",))
    helper = Agent("helper", model, instruction="Help.")
    async with serving(root, helper) as server:
        answer = await server.chat("Go", to="a")
        found = await trace(server, answer.headers["x-turn-id"])
        inner = (await server.get(f"/api/turns/{found['turn']['id']}/prompt?step=2")).json
    kinds = [(each["kind"], len(each["path"]), each["agent"]) for each in found["spans"]]
    assert sorted(kinds) == [
        ("call", 0, "root"),
        ("step", 0, "root"),
        ("step", 0, "root"),
        ("step", 1, "helper"),
    ]
    assert in_order(found)
    assert [each["type"] for each in inner["items"]] == ["user"], "a sub-agent sees its task alone"


async def test_the_prompt_of_a_step_is_for_admins() -> None:
    model = ScriptedModel("One.", says(calls=[("act", "{}")]), "Two.")
    store, act = MemoryStore(), HeldTool("act", held=False)
    reader = await put_key(store, Tenant("acme"), "read", "chat", nth=1)
    admin = await put_key(store, Tenant("acme"), "admin", nth=2)
    async with serving(agent(model, act), store=store, auth="required") as server:
        await server.chat("First", to="a", headers=bearer(reader))
        turn = (await server.chat("Second", to="a", headers=bearer(reader))).headers["x-turn-id"]
        path = f"/api/turns/{turn}/prompt"
        refused = await server.request("GET", path, headers=bearer(reader))
        first = await server.request("GET", path, headers=bearer(admin))
        second = await server.request("GET", f"{path}?step=2", headers=bearer(admin))
        third = await server.request("GET", f"{path}?step=3", headers=bearer(admin))
    assert refused.status == 403
    assert first.json["instructions"] == "be nice" and not first.json["agent_changed"]
    assert [each["type"] for each in first.json["items"]] == ["user", "assistant", "user"]
    assert [each["type"] for each in second.json["items"]][3:] == ["call", "result"]
    assert third.status == 400 and third.error["param"] == "step"
