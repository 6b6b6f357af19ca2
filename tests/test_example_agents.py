"""The examples of agent files do what their pages say: served as they stand, with a model that is scripted."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from holdfast.agents.file.agent_file import check_agent_file
from holdfast.server.agents.source_directory import load_directory
from holdfast.testing import ScriptedModel, says
from tests import repository
from tests.server.stubs import Answer, Serving, serving
from tests.tools import mcp_means as means

EXAMPLES = repository.ROOT / "examples"
FILES = sorted(EXAMPLES.glob("*/*.yaml"))


@asynccontextmanager
async def served(
    name: str, here: Path, model: ScriptedModel, *, environ: Mapping[str, str] = os.environ
) -> AsyncIterator[Serving]:
    """A copy of an example, served."""
    shutil.copytree(EXAMPLES / name, here, dirs_exist_ok=True)
    directory = await load_directory(
        [str(here / f"{name}.yaml")], make_model=lambda config: model, environ=environ
    )
    try:
        async with serving(directory=directory) as server:
            yield server
    finally:
        await directory.close()


async def approve(server: Serving, asked: Answer) -> None:
    """Allow the one call that waits, and wait for the turn in which it runs."""
    (waiting,) = asked.json["holdfast"]["approvals"]
    answer = await server.request(
        "POST",
        f"/api/turns/{asked.headers['x-turn-id']}/approvals/{waiting['id']}",
        data=b'{"approve": true}',
    )
    assert answer.status == 202
    assert (await server.ended_turn(answer.json["id"]))["state"] == "committed"


async def results(server: Serving, name: str) -> list[tuple[str, str]]:
    return [
        (each["outcome"], each["content"][0]["text"])
        for each in await server.items(name)
        if each["type"] == "result"
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_every_example_is_free_of_problems_and_warnings(path: Path) -> None:
    checked = check_agent_file(
        path.read_bytes(), place=str(path), directory=path.parent, environment={}
    )
    assert (checked.problems, checked.warnings) == ((), ())
    assert (path.parent / "README.md").exists()


def test_there_are_three_of_them() -> None:
    assert [path.parent.name for path in FILES] == ["coding", "support", "team"]


async def test_a_refund_waits_for_a_person_and_is_paid_once(tmp_path: Path) -> None:
    refund = ("refund", '{"number": "1042", "cents": 2800, "reason": "lost"}')
    model = ScriptedModel(
        says(calls=[("find_order", '{"number": "1042"}')]),
        says("It was lost; I propose a refund.", calls=[refund]),
        says("The money is on its way."),
    )
    async with served("support", tmp_path, model) as server:
        asked = await server.chat("Order 1042 never came.", to="ticket-7")
        assert not (tmp_path / "data/refunds.csv").exists()
        await approve(server, asked)
        told = await results(server, "ticket-7")
        (listed,) = (await server.get("/api/agents")).json["agents"]
    (looked_up, refunded) = told
    assert looked_up[0] == "ok" and "A Field Guide to Mosses" in looked_up[1]
    assert refunded == ("ok", "refunded 2800 cents for order 1042\n")
    (line,) = (tmp_path / "data/refunds.csv").read_text().splitlines()
    assert line.endswith(",1042,2800")
    assert "Today's date: " in model.prompts[0].system
    assert listed["commands"][0]["name"] == "status"


async def test_an_order_that_is_no_number_reaches_no_command(tmp_path: Path) -> None:
    model = ScriptedModel(
        says(calls=[("find_order", '{"number": "1; cat refund.sh"}')]), says("Sorry?")
    )
    async with served("support", tmp_path, model) as server:
        await server.chat("Order '1; cat refund.sh'", to="ticket-8")
        ((outcome, words),) = await results(server, "ticket-8")
    assert outcome == "error" and "number" in words


def task(to: str, what: str) -> tuple[str, str]:
    return ("transfer_task", msgspec.json.encode({"agent": to, "task": what}).decode())


async def test_a_team_looks_things_up_and_hands_over(tmp_path: Path) -> None:
    """One model plays them all: it tells by its instruction who it is."""
    model = ScriptedModel(
        says(calls=[task("trains", "Morning trains to Bergen")]),
        says(calls=[("connections", '{"to": "Bergen"}')]),
        says("08:25, 49.00."),
        says("Take the 08:25."),
        says(calls=[("handoff", '{"agent": "complaints"}')]),
        says(calls=[("create_todo", '{"description": "Late train"}')]),
        says("I am sorry. Somebody will call you."),
        says("Anything else?"),
    )
    async with served("team", tmp_path, model) as server:
        first = await server.chat("A morning train to Bergen, please.", to="trip")
        second = await server.chat("It was late. I want to complain.", to="trip")
        third = await server.chat("Thanks.", to="trip")
        items = await server.items("trip")
        turns = await server.turns("trip")
        told = await results(server, "trip")
    assert first.text == "Take the 08:25."
    assert second.text == "I am sorry. Somebody will call you."
    assert third.text == "Anything else?"
    assert turns[0]["agent"] == "complaints"
    said_by = [each["agent"] for each in items if each["type"] == "assistant"]
    assert said_by[-2:] == ["complaints", "complaints"]
    assert any("08:25,15:10" in words for _, words in told), "the sub-agent's work is in the turn"
    assert {outcome for outcome, _ in told} == {"ok"}


async def test_a_coding_agent_reads_asks_before_it_writes_and_leaves_tests_alone(
    tmp_path: Path,
) -> None:
    code, test = "greet.py", "test_greet.py"
    workspace = tmp_path / "workspace"
    write = [
        ("write_file", msgspec.json.encode({"path": path, "content": "new"}).decode())
        for path in (code, test)
    ]
    model = ScriptedModel(
        says(calls=[("read_text_file", f'{{"path": "{code}"}}')]),
        says("May I?", calls=write[:1]),
        says("Done."),
        says("And the test?", calls=write[1:]),
        says("Then not."),
    )
    async with served("coding", tmp_path, model, environ=_with_npx(tmp_path / "npm")) as server:
        asked = await server.chat("Rewrite greet.py", to="fix")
        assert 'return "Hello " + name' in (workspace / code).read_text()
        await approve(server, asked)
        refused = await server.chat("And its test", to="fix")
        told = await results(server, "fix")
    assert refused.text.endswith("Then not."), "nobody is asked about what the hook refuses"
    assert "approvals" not in refused.json["holdfast"]
    assert (workspace / code).read_text() == "new"
    assert "def test_greet" in (workspace / test).read_text()
    assert [outcome for outcome, _ in told] == ["ok", "ok", "refused"]
    assert told[0][1].startswith("def greet(name: str)")
    assert told[2][1] == "Refused: tests are changed by people only"
    assert "Every function has a docstring" in model.prompts[0].system


def _with_npx(prefix: Path) -> dict[str, str]:
    """An environment whose `npx -y PACKAGE …` runs the server that tests have installed, without a network."""
    node, server = means.node(), means.filesystem()
    script = prefix / "bin" / "npx"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nshift 2\nexec "{node}" "{server}" "$@"\n')
    script.chmod(0o755)
    # What lies beside the programs of a PATH can be read in a sandbox, as it is with a real npx.
    (prefix / "lib").symlink_to(means.HERE)
    path = os.pathsep.join((str(script.parent), str(node.parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(prefix / "cache")}
