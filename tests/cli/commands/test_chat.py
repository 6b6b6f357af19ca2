"""`holdfast chat`: somebody at a terminal, and a pipe. Real processes, on the demo agent."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.terminal import CTRL_C, CTRL_D, TAB, UP, Terminal

pytestmark = pytest.mark.slow

Spawn = Callable[..., subprocess.CompletedProcess[str]]

CLERK = """
models:
  parrot: {provider: demo, model: parrot}
agents:
  clerk:
    model: parrot
    instruction: Be brief.
    permissions:
      ask: [pay]
    toolsets:
      - type: script
        shell:
          pay:
            cmd: echo paid >> till/paid; echo paid
            description: Pays.
"""


@pytest.fixture(autouse=True)
def clerk(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent that has to ask before it pays; and nobody else's history of typed lines."""
    monkeypatch.setenv("XDG_STATE_HOME", str(elsewhere / "state"))
    for name in ("HOLDFAST_SERVER", "HOLDFAST_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (elsewhere / "till").mkdir()
    path = elsewhere / "clerk.yaml"
    path.write_text(CLERK)
    return path


def said(run: Run, name: str) -> list[str]:
    """What a conversation holds."""
    shown = run("sessions", "show", name)
    assert shown.exit_code == 0, shown.output
    return [line.strip() for line in shown.stdout.splitlines() if line.startswith("   ")]


def chat(*arguments: str) -> Terminal:
    terminal = Terminal("chat", *arguments)
    terminal.expect("› ")
    return terminal


def test_an_answer_is_stopped_and_kept_and_the_chat_goes_on_after_a_restart(run: Run) -> None:
    with chat("--session", "trip") as terminal:
        terminal.type("my name is Ada")
        terminal.expect("Pleased to meet you, Ada")
        terminal.expect("› ")
        terminal.type("stall")
        terminal.expect("a very long time")
        terminal.press(CTRL_C)
        terminal.expect("Stopped; what was said is kept, as version 2.")
        terminal.expect("› ")
        terminal.press(CTRL_D)
        terminal.expect("goes on with --session trip")
        assert terminal.end() == 0
    kept = said(run, "trip")
    assert kept[2] == "User: stall"
    assert kept[3].startswith("Assistant: Let me think about that")
    assert any("interrupted: cancelled" in each for each in kept)

    with chat("--session", "trip") as terminal:
        assert "2 turns so far" in terminal.shown
        terminal.type("what is my name?")
        terminal.expect("Your name is Ada")
        terminal.expect("› ")
        terminal.type("/fork 1")
        terminal.expect("at version 1.")
        terminal.expect("› ")
        terminal.type("and now?")
        terminal.expect("This is turn 2")
        terminal.expect("› ")
        terminal.type("/quit")
        assert terminal.end() == 0
    assert len([each for each in said(run, "trip") if each.startswith("User:")]) == 3


def test_lines_are_completed_continued_and_remembered(elsewhere: Path) -> None:
    """Keys are pressed once what they are pressed at is drawn: a key that comes before can be lost. How Ctrl-C
    leaves is held where no terminal takes part (`talk/test_talking.py`): one that comes between a prompt that is
    drawn and a reader that waits may be missed."""
    with chat("--session", "a") as terminal:
        terminal.press("/he" + TAB)
        terminal.expect("/help")
        terminal.press("\r")
        terminal.expect("stops an answer, and keeps what was said")
        terminal.expect("› ")
        terminal.type("one\\")
        terminal.expect("… ")
        terminal.type("two")
        terminal.expect("You said “one")
        terminal.expect("› ")
        terminal.press(UP)
        terminal.expect("two")
        terminal.press("\r")
        terminal.expect("You said “two”")
        terminal.expect("› ")
        terminal.type("/quit")
        assert terminal.end() == 0
    history = elsewhere / "state" / "holdfast" / "history"
    assert history.read_text().splitlines()[-2:] == ["two", "/quit"]
    assert history.stat().st_mode & 0o777 == 0o600, "it is nobody else's business"

    with chat("--session", "a") as terminal:
        terminal.press(UP)
        terminal.expect("/quit")
        terminal.press("\r")
        assert terminal.end() == 0


def test_calls_are_asked_about_in_place(elsewhere: Path, run: Run) -> None:
    paid = elsewhere / "till" / "paid"
    with chat("clerk.yaml", "--session", "till") as terminal:
        terminal.type("call pay with {}")
        terminal.expect("clerk wants to use pay")
        terminal.expect("Allow it?")
        terminal.type("n")
        terminal.expect("› ")
        assert not paid.exists()
        terminal.type("call pay with {}")
        terminal.expect("Allow it?")
        terminal.type("what?")
        terminal.expect("Allow it?")
        terminal.type("y")
        terminal.expect("⚙ pay")
        terminal.expect("pay says: paid")
        terminal.expect("› ")
        assert paid.read_text() == "paid\n"
        terminal.type("call pay with {}")
        terminal.expect("Allow it?")
        terminal.interrupt("waiting for a decision")
        terminal.expect("› ")
        terminal.press(CTRL_D)
        terminal.end()
    with Terminal("chat", "clerk.yaml", "--session", "till") as terminal:
        terminal.expect("Allow it?")  # it still waits, and is asked about first
        terminal.type("a")
        terminal.expect("pay says: paid")
        terminal.expect("› ")
        terminal.type("call pay with {}")
        terminal.expect("pay says: paid")  # always means always
        terminal.expect("› ")
        terminal.press(CTRL_D)
        terminal.end()
    assert paid.read_text() == "paid\n" * 3


def talk(*lines: str, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Talk through a pipe."""
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "chat", *arguments],
        input="".join(f"{each}\n" for each in lines),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_pipe_has_plain_answers_and_every_command(run: Run) -> None:
    told = talk(
        "my name is Ada",
        "what is my name?",
        "/rewind 1",
        "/retry",
        "/fork",
        "/rewind 0",
        "/sessions Ada",
        "/model",
        "/model nobody",
        "/model demo",
        "/new b",
        "please fail",
        "/retry",
        "/open a",
        "/open nowhere",
        "/show",
        "/rewnd",
        "",
        "/quit",
        "never said",
        arguments=("--session", "a"),
    )
    assert told.returncode == 0, told.stderr
    assert "\x1b" not in told.stdout
    assert told.stdout.startswith("Pleased to meet you, Ada.")
    assert told.stdout.count("Your name is Ada. You told me so") == 4, (
        "asked, asked again, met again, shown"
    )
    assert "a\tmy name is Ada\tdemo\t2" in told.stdout
    assert "→\tdemo" in told.stdout
    for note in (
        "Back at version 1",
        "a stays as it is.",
        "From here on in a copy, conv_",
        "There is no nobody; there are: demo",
        "A new conversation: b",
        "the demo model failed",
        "did you mean /rewind?",
        "nowhere",
        "goes on with --session a",
    ):
        assert note in told.stderr, note
    assert "never said" not in json.dumps(said(run, "a"))


def test_trouble_is_one_sentence_with_the_way_out(spawn: Spawn) -> None:
    for arguments, sentence in (
        (("nobody.yaml",), "nobody.yaml"),
        (("--server", "http://127.0.0.1:1"), "check that it runs there"),
        (("--server", "nonsense"), "is not the address of a server"),
        (("--store", "nonsense"), "is not the URL of a store"),
    ):
        told = spawn("chat", *arguments)
        assert told.returncode == 2
        assert sentence in told.stderr and told.stderr.count("\n") == 1, told.stderr


def test_an_answer_that_has_not_begun_is_stopped_too(elsewhere: Path, run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        model = f"{{provider: mine, model: m, base_url: 'http://127.0.0.1:{port}/v1'}}"
        agents = "agents: {root: {model: m, instruction: x, fallback: {retries: -1}}}"
        (elsewhere / "silent.yaml").write_text(f"models: {{m: {model}}}\n{agents}\n")
        with chat("silent.yaml", "--session", "a") as terminal:
            terminal.type("Hello?")
            connection, _ = silent.accept()
            terminal.press(CTRL_C)
            terminal.expect("Stopped")
            terminal.expect("› ")
            terminal.press(CTRL_D)
            assert terminal.end() == 0
            connection.close()
    (turn,) = json.loads(run("turns", "list", "a", "--json").stdout)["turns"]
    assert turn["state"] in ("committed", "discarded"), "it has ended, whichever way it was told"
