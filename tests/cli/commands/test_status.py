"""`holdfast status`, `turns` and `approvals`: what an operator at a terminal finds, copies and decides on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from holdfast.cli.private_server import private_server
from holdfast.client.sync import Client
from holdfast.errors import ServerRefused
from holdfast.ids import Minter, Tenant
from holdfast.store.sqlite import SqliteStore
from tests.cli.conftest import Run
from tests.cli.terminal import Terminal
from tests.store.builders import Player

STORE = "sqlite:///holdfast.db"
FILE = """\
agents:
  clerk:
    model: demo/parrot
    instruction: Help.
    toolsets: [{type: python, file: tools.py}]
    permissions: {ask: [order], allow: [wait]}
"""
TOOLS = """\
import asyncio
from holdfast import tool

@tool
async def wait() -> str:
    await asyncio.sleep(50)
    return "waited"

@tool
def order(what: str) -> str:
    return f"ordered {what}"
"""


@pytest.fixture
def server(elsewhere: Path) -> Iterator[str]:
    (elsewhere / "clerk.yaml").write_text(FILE)
    (elsewhere / "tools.py").write_text(TOOLS)
    with private_server(("clerk.yaml",), STORE) as address:
        yield address


def ask(server: str, session: str, said: str) -> str:
    """Say something to the clerk; the id of the turn."""
    with Client(server).ask("clerk", said, session=session) as answer:
        list(answer)
        return answer.turn_id or ""


@contextmanager
def stuck(server: str, run: Run) -> Iterator[str]:
    """A first turn whose tool does not come back; its id."""

    def wait() -> None:
        with pytest.raises(ServerRefused, match="cancelled"):
            ask(server, "stuck", "call wait with {}")

    waiting = threading.Thread(target=wait)
    waiting.start()
    try:
        open_turns: list[dict[str, str]] = []
        while not (open_turns and open_turns[0]["tool"]):
            open_turns = json.loads(run("turns", "list", "--json").stdout)["turns"]
        yield open_turns[0]["id"]
    finally:
        waiting.join()


def test_a_stuck_first_turn_is_found_and_stopped(run: Run, server: str) -> None:
    with stuck(server, run) as turn:
        told = run("status").stdout.splitlines()
        assert told[0].startswith("1 open: `holdfast turns cancel TURN`")
        row = told[1].split("\t")
        assert (row[0], row[1], row[4], row[5]) == (turn, "stuck", "clerk", "wait")
        assert row[6].startswith("open, on node_")
        assert run("turns", "cancel", turn).exit_code == 0
    shown = run("turns", "show", turn).stdout
    assert "cancelled (by a command on the store)" in shown
    assert "closed: The assistant was interrupted" in shown and '{"type"' not in shown
    assert "1 broke off" in run("status").stdout


def test_an_id_at_a_terminal_can_be_copied_however_narrow_it_is(run: Run, server: str) -> None:
    turn = ask(server, "tea", 'call order with {"what": "tea"}')
    (call,) = [each.id for each in Client(server).open_approvals().approvals]
    for columns in (60, 80, 130):
        with Terminal("approvals", "list", "--server", server, columns=columns) as terminal:
            terminal.expect(turn)
            terminal.expect(call)
            assert terminal.end() == 0
        with Terminal("status", columns=columns) as terminal:
            terminal.expect(turn)
            assert terminal.end() == 0


def test_a_call_is_decided_about_from_the_inbox(run: Run, server: str) -> None:
    turn = ask(server, "tea", 'call order with {"what": "tea"}')
    (line,) = run("approvals", "list", "--server", server).stdout.splitlines()
    assert line == run("approvals", "--server", server, "list").stdout.rstrip("\n")
    found, call, conversation, _, agent, tool, arguments = line.split("\t")
    assert (found, conversation, agent, tool) == (turn, "tea", "clerk", "order")
    assert json.loads(arguments) == {"what": "tea"}
    told = run("approvals", "decide", turn, "--approve", call, "--server", server)
    assert told.exit_code == 0, told.output
    assert run("approvals", "list", "--server", server).stdout == ""


def test_all_tenants_of_a_store_are_shown_unless_one_is_named(run: Run, elsewhere: Path) -> None:
    async def make() -> None:
        store, steps = await SqliteStore.open(elsewhere / "holdfast.db"), count()
        mint = Minter(now_ms=lambda: 1_795_000_000_000, random_bits=lambda bits: next(steps))
        for name in ("acme", "globex"):
            player = Player(store, mint, tenant=Tenant(name))
            await player.renew()
            await player.play("trip", "Hello")
        await store.close()

    asyncio.run(make())
    told = run("status")
    assert told.exit_code == 0, told.stderr
    heads = [each for each in told.stdout.splitlines() if each.startswith("──")]
    assert [each.split()[2] for each in heads] == ["acme:", "globex:"]
    assert set(json.loads(run("status", "--json").stdout)) == {"acme", "globex"}
    one = run("status", "--tenant", "acme").stdout
    assert "──" not in one and one.startswith("0 open")
