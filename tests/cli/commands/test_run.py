"""`holdfast run`: the exit code is the truth about the turn."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self
from unittest.mock import Mock

import pytest

from holdfast.cli.commands.run import MEANINGS, PlainRunOutput, _run, code_of
from holdfast.client.events import AnswerEvent
from holdfast.errors import HoldfastError, ServerRefused, ServerUnreachable
from tests.cli.commands.test_chat import clerk, said  # noqa: F401
from tests.cli.conftest import Run

pytestmark = pytest.mark.slow

Spawn = Callable[..., subprocess.CompletedProcess[str]]
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def lines(told: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(each) for each in told.stdout.splitlines()]


def test_a_turn_that_is_committed_and_complete_ends_with_0(spawn: Spawn, run: Run) -> None:
    told = spawn("run", "demo", "my name is Ada", "--session", "trip")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == "Pleased to meet you, Ada. Ask me for your name whenever you like.\n"
    assert said(run, "trip")[0] == "User: my name is Ada"


def test_events_are_lines_of_json_and_a_key_makes_a_request_one_turn(spawn: Spawn) -> None:
    asked = ("run", "demo", 'call add_note with {"text": "x"}', "--json", "--idempotency-key", "k")
    first, again = lines(spawn(*asked)), lines(spawn(*asked))
    kinds = [each["event"] for each in first]
    assert kinds[0] == "began" and kinds[-1] == "finished"
    assert {"tool_started", "tool_finished", "said"} <= set(kinds)
    assert first[-1]["reason"] == "stop" and first[-1]["version"] == 1
    assert again[-1] == first[-1], "the same turn"
    other = spawn("run", "demo", "something else", "--json", "--idempotency-key", "k")
    assert other.returncode == 6
    assert lines(other)[-1]["code"] == "idempotency_key_reused"
    assert lines(other)[-1]["exit_code"] == 6


def test_a_turn_that_fails_ends_with_3_and_says_why(spawn: Spawn) -> None:
    told = spawn("run", "demo", "please fail")
    assert told.returncode == 3
    assert "as it was asked to. Nothing was stored." in told.stderr


def test_a_call_that_waits_for_a_person_ends_with_5(spawn: Spawn, elsewhere: Path) -> None:
    told = spawn("run", "clerk.yaml", "call pay with {}", "--session", "till")
    assert told.returncode == 5
    assert "holdfast chat --session till" in told.stderr
    assert not (elsewhere / "paid").exists()


@pytest.mark.parametrize("prompt", ["   ", "-"])
def test_a_request_that_never_became_a_turn_ends_with_6(prompt: str) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "demo", prompt],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 6
    assert "nothing new" in told.stderr


def test_a_server_that_is_not_there_ends_with_7(spawn: Spawn) -> None:
    told = spawn("run", "demo", "Hello", "--server", "http://127.0.0.1:1", "--json")
    assert told.returncode == 7
    assert lines(told) == [
        {
            "event": "failed",
            "code": "server_unreachable",
            "message": lines(told)[0]["message"],
            "exit_code": 7,
            "turn_id": None,
        }
    ]


def test_an_agent_that_cannot_be_loaded_ends_with_2(spawn: Spawn) -> None:
    told = spawn("run", "nobody.yaml", "Hello")
    assert told.returncode == 2
    assert told.stderr.count("\n") == 1


def test_ctrl_c_cancels_the_turn_and_ends_with_130(run: Run) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "demo", "stall", "--json", "--session", "a"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "long" in line:
                break
        process.send_signal(signal.SIGINT)
        last = json.loads(list(process.stdout)[-1])
    assert process.returncode == 130
    assert (last["event"], last["code"], last["exit_code"]) == ("failed", "turn_cancelled", 130)
    assert said(run, "a")[0] == "User: stall", "kept, by the policy for what is cancelled"


class Unanswered:
    """An answer that has not begun when Ctrl-C is pressed."""

    turn_id: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[AnswerEvent]:
        signal.raise_signal(signal.SIGINT)
        raise ServerUnreachable("http://a", "the connection was closed")

    def hang_up(self) -> None:
        pass


def test_ctrl_c_before_there_is_an_answer_says_what_becomes_of_the_turn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The turn has no name yet that it could be cancelled by; its client goes away."""
    reached: Any = Mock()
    unanswered: Any = Unanswered()
    assert _run(reached, unanswered, PlainRunOutput(), "a") == 130
    assert "ends as one whose client went away" in capsys.readouterr().err
    assert not reached.client.cancel.called


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ServerUnreachable("http://a", "x"), 7),
        (ServerRefused("x", status=409, reason="conversation_locked"), 6),
        (ServerRefused("x", status=504, reason="turn_deadline_exceeded", turn_id="turn_1"), 4),
        (ServerRefused("x", status=409, reason="turn_cancelled", turn_id="turn_1"), 4),
        (ServerRefused("x", status=502, reason="upstream_error", turn_id="turn_1"), 3),
    ],
)
def test_every_end_has_its_code(error: HoldfastError, code: int) -> None:
    assert code_of(error) == code


def test_every_exit_code_is_in_the_reference() -> None:
    reference = REFERENCE.read_text(encoding="utf-8")
    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |" in reference
