"""Whatever clients, models, tools and agent files say, a command only shows it; and JSON is as it was.

Made of the table of commands: a new one is looked at by itself, or the test says that it is not known.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from holdfast.agents.agent import Agent
from holdfast.cli import main
from holdfast.core.items import Permissions
from holdfast.testing import ScriptedModel, says
from tests.server.stubs import HeldTool, Serving, StubTools, serving

HOSTILE = (
    "Zoë 👩\u200d👧\n\x1b[2J\x1b]0;owned\x07\x9b1A\r\u202egnp.exe\u2028holdfast: all is well\x7f"
)
LETTERS = "Zoë 👩\u200d👧"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
CLI = Path(__file__).parents[2] / "src" / "holdfast" / "cli"

OF_A_SERVER = {
    "sessions list": [], "sessions search": ["Zoë"], "sessions show": ["trip"], "sessions fork": ["trip"],
    "sessions annotate": ["trip", "--title", HOSTILE, "--set", f"who={HOSTILE}"], "turns list": ["trip"], "status": [],
    "turns show": ["{turn}"], "turns cancel": ["{turn}"], "turns continue": ["{turn}"],
    "approvals list": ["{turn}"],
    "approvals decide": ["{turn}", "--approve", "{call}", "--remember", "agent"], "approvals remembered": [],
    "approvals revoke": ["{grant}"], "sessions rewind": ["trip", "0"], "sessions import": ["hostile.jsonl"],
    "sessions name": ["trip", "other"],
    "sessions delete": ["trip", "--yes"], "connect": ["zed"], "sessions rebind": ["trip", "--to", HOSTILE],
}  # fmt: skip
OF_A_STORE = {
    "db migrate": [], "keys create": ["k\u00e9y", "--tenant", "acme"], "keys list": [], "keys revoke": [HOSTILE],
    "keys rotate": [],
    "db verify": [], "db stats": [], "db prune": [], "db import": ["hostile.jsonl"], "db backup": ["copy.db"],
    "db heads": ["copy.heads"], "db copy": ["sqlite:///holdfast.db", "sqlite:///none.db"],
}  # fmt: skip
OF_FILES = {
    "agents check": ["hostile.yaml"], "agents list": ["hostile.yaml"], "agents login": ["hostile.yaml"],
    "agents logout": ["hostile.yaml", "--server", HOSTILE], "doctor": ["hostile.yaml", "--offline"],
    "init": ["--name", HOSTILE], "serve": ["hostile.yaml"], "run": ["hostile.yaml", HOSTILE], "chat": ["hostile.yaml"],
}  # fmt: skip
FOR_PROGRAMS = {"acp", "agents schema", "completion", "db export", "mcp", "sessions export"}
"""They print JSON, or a script, and nothing that somebody else has said in any other form."""
OUR_OWN = {"demo"}


def commands() -> Iterator[str]:
    context = click.Context(main)

    def below(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                yield from below(found, (*path, name))
        else:
            yield " ".join(path)

    return below(main, ())


def test_every_command_is_looked_at() -> None:
    known = {*OF_A_SERVER, *OF_A_STORE, *OF_FILES, *FOR_PROGRAMS, *OUR_OWN}
    assert set(commands()) == known


def run(command: str, *arguments: str, server: str | None = None) -> Result:
    runner = CliRunner(env={"HOLDFAST_SERVER": server})
    return runner.invoke(main, [*command.split(), *arguments])


def demand_harmless(result: Result, command: str) -> None:
    for text in (result.stdout, result.stderr):
        found = UNSAFE.search(text)
        assert found is None, f"{command} prints {found[0]!r}: {text!r}"
        assert not re.search("^holdfast: all is well", text, re.MULTILINE), f"{command}: {text!r}"


class World:
    """A server that hostile words have come into in every way."""

    def __init__(self, server: Serving, names: dict[str, str]) -> None:
        self.server = server
        self.names = names

    async def run(self, command: str, *arguments: str) -> Result:
        named = [each.format(**self.names) if each[0] == "{" else each for each in arguments]
        return await asyncio.to_thread(run, command, *named, server=self.server.url)


async def test_what_a_server_has_is_shown_and_does_nothing(elsewhere: Path) -> None:
    (elsewhere / "hostile.jsonl").write_text(json.dumps({"type": HOSTILE}) + "\n")
    tool = HeldTool("pay", held=False)
    arguments = json.dumps({"to": HOSTILE}, ensure_ascii=False)
    model = ScriptedModel(
        says(HOSTILE, calls=[("pay", arguments), (HOSTILE, arguments)]), otherwise=lambda _: HOSTILE
    )
    made = Agent("root", model, toolsets=(StubTools(tool),), permissions=Permissions(ask=("pay",)))
    async with serving(made) as server:
        asked = await server.chat(HOSTILE, to="trip")
        assert asked.status == 200
        (call,) = asked.json["holdfast"]["approvals"]
        names = {"turn": asked.headers["x-turn-id"], "call": call["id"]}
        names["grant"] = call["id"].replace("fc_", "grant_")
        world = World(server, names)
        shown: dict[str, str] = {}
        for command, arguments_of in OF_A_SERVER.items():
            result = await world.run(command, *arguments_of)
            demand_harmless(result, command)
            shown[command] = result.stdout
            if command == "sessions annotate":
                told = await world.run("sessions list", "--json")
                titles = [each["title"] for each in json.loads(told.stdout)]
                assert HOSTILE in titles, "JSON is as it was"
            demand_harmless(await world.run(command, *[HOSTILE] * 2), command)
    assert LETTERS in shown["sessions show"] and LETTERS in shown["sessions search"]
    assert "\\x1b[2J" in shown["sessions show"] and "\\u202e" in shown["approvals list"]


@pytest.mark.parametrize("where", ["store", "files"])
def test_what_lies_on_this_machine_is_shown_and_does_nothing(elsewhere: Path, where: str) -> None:
    (elsewhere / "hostile.jsonl").write_text(json.dumps({"type": HOSTILE}) + "\n")
    quoted = json.dumps(HOSTILE)
    (elsewhere / "hostile.yaml").write_text(
        f"agents: {{root: {{model: {quoted}, {quoted}: 1, description: {quoted}, sub_agents: [{quoted}]}}}}"
    )
    for command, arguments in (OF_A_STORE if where == "store" else OF_FILES).items():
        demand_harmless(run(command, *arguments), command)
        demand_harmless(run(command, HOSTILE, HOSTILE), command)
    if where == "store":
        assert "k\u00e9y" in run("keys list").stdout


MAY_PRINT = {"output.py", "display.py", "screens.py", "input_lines.py"}


def test_commands_print_through_one_place() -> None:
    """Else a new line of code would be a new place to forget."""
    for path in CLI.rglob("*.py"):
        if path.name in MAY_PRINT or "tour" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in ("print", "click.echo", "click.secho", "click.confirm", "click.prompt",
                                    "sys.stdout.write", "sys.stderr.write"), f"{path.name}:{node.lineno}"  # fmt: skip
