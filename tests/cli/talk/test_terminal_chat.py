"""A chat's own decisions, with a server that says what a test wants."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.cli.talk.input_commands import HELP, ChatCommand
from holdfast.cli.talk.screens import PlainScreen
from holdfast.cli.talk.terminal_chat import TerminalChat
from holdfast.cli.talk.turn_view import TurnOutcome
from holdfast.client.events import ToolUse
from holdfast.core.items import EndedBy, Text, UserMessage
from holdfast.errors import ServerRefused
from holdfast.ids import MessageId
from holdfast.wire.api import objects as api


class Refusing:
    """A server that refuses everything."""

    def __init__(self, status: int) -> None:
        self.status = status

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object, **__: object) -> None:
            raise ServerRefused("no", status=self.status, reason="x")

        return refuse


def chat(client: Any, name: str = "trip") -> TerminalChat:
    return TerminalChat(client, PlainScreen(), model="demo", name=name, new_name=lambda: "fresh")


def test_a_key_that_may_only_talk_is_enough_to_talk(capsys: pytest.CaptureFixture[str]) -> None:
    chat(Refusing(403)).greet()
    assert capsys.readouterr().err == "demo, in trip\n"


@pytest.mark.parametrize(("status", "name"), [(404, "conv_" + "0" * 26), (410, "trip"), (401, "a")])
def test_what_is_not_there_by_its_id_or_gone_is_not_begun_anew(status: int, name: str) -> None:
    with pytest.raises(ServerRefused):
        chat(Refusing(status), name).greet()


class Deciding(PlainScreen):
    """Somebody who allows everything."""

    def decide(self, calls: Sequence[ToolUse]) -> dict[str, api.Decision] | None:
        return {each.id: api.Decision(approve=True) for each in calls}


def test_a_decision_that_comes_too_late_does_not_end_the_chat(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is asked about when the conversation is opened, and that may be days later."""
    waiting = ToolUse(id="fc_1", name="pay", arguments="{}")
    client: Any = Refusing(409)
    late = TerminalChat(client, Deciding(), model="demo", name="trip", new_name=lambda: "fresh")
    late.see_to(TurnOutcome(turn_id="turn_1", version=1, waiting=(waiting,)))
    assert capsys.readouterr().err == "holdfast: no\n"


class Remembering(Refusing):
    """A server with one conversation, whose turns ended so: kept ones as versions, the others as discarded."""

    def __init__(self, *turns: api.TurnObject) -> None:
        super().__init__(500)
        self.done: list[str] = []
        self.all = turns

    def session(self, name: str) -> api.Session:
        kept = [each.version for each in self.all if each.version is not None]
        return api.Session(
            id="conv_1",
            keys=(name,),
            title="",
            agent="demo",
            source="demo",
            version=max(kept, default=0),
            items=2,
            open_turn=None,
            created_at=1.0,
            active_at=2.0,
            attributes={},
        )

    def turns(self, name: str) -> api.Turns:
        return api.Turns(turns=self.all[::-1], usage=api.UsageObject())

    def turn(self, turn_id: str) -> api.TurnObject:
        (found,) = (each for each in self.all if each.id == turn_id)
        return found

    def items(self, name: str) -> api.Items:
        said = UserMessage(id=MessageId("msg_" + "0" * 26), content=(Text(text="act"),))
        return api.Items(version=1, items=(said,))

    def continue_turn(self, turn_id: str) -> api.TurnObject:
        self.done.append(f"continue {turn_id}")
        raise ServerRefused("enough", status=500, reason="x")

    def rewind(self, name: str, *, version: int) -> None:
        self.done.append(f"rewind to {version}")

    def ask(self, model: str, text: str, **_: object) -> None:
        self.done.append(f"ask {text}")
        raise ServerRefused("enough", status=500, reason="x")


def turn_that(
    ended_by: EndedBy, *, n: int = 1, version: int | None = 1, continues: str | None = None
) -> api.TurnObject:
    return api.TurnObject(
        id=f"turn_{n}",
        session_id="conv_1",
        state="committed" if version else "discarded",
        ended_by=ended_by,
        detail="",
        base=0 if version is None else version - 1,
        version=version,
        attempt=1,
        agent="demo",
        usage=api.UsageObject(),
        began_at=1.0,
        ended_at=2.0,
        continues=continues,
    )


FAILED = turn_that("model_error")
NOT_KEPT = turn_that("model_error", n=2, version=None)
STOPPED = turn_that("cancelled", n=2, version=2, continues="turn_1")


@pytest.mark.parametrize(
    ("turns", "asked", "done"),
    [
        ([FAILED], ("act", "turn_1"), ["continue turn_1"]),
        ([turn_that("limit")], ("act", "turn_1"), ["continue turn_1"]),
        ([turn_that("cancelled")], ("act", "turn_1"), ["rewind to 0", "ask act"]),
        ([turn_that("completed")], ("act", "turn_1"), ["rewind to 0", "ask act"]),
        # What failed last is tried again, and not what failed before it.
        ([FAILED, NOT_KEPT], ("hello", "turn_2"), ["ask hello"]),
        ([FAILED], ("hello", None), ["ask hello"]),
        ([FAILED], ("act", None), ["continue turn_1"]),
        ([turn_that("completed")], ("act", None), ["ask act"]),
        # Chats that were opened again.
        ([FAILED], None, ["continue turn_1"]),
        ([turn_that("cancelled")], None, []),
        ([turn_that("completed")], None, []),
        # A continuation was stopped, and was kept or not.
        ([FAILED, STOPPED], ("act", "turn_1"), ["continue turn_2"]),
        ([FAILED, turn_that("cancelled", n=2, version=None)], ("act", "turn_1"), ["continue turn_1"]),
    ],
)  # fmt: skip
def test_retry_asks_again_what_was_not_kept_and_goes_on_with_what_nobody_has_stopped(
    turns: list[api.TurnObject], asked: tuple[str, str | None] | None, done: list[str]
) -> None:
    server = Remembering(*turns)
    talking = chat(server)
    talking._asked = asked
    with contextlib.suppress(ServerRefused):
        talking.do(ChatCommand(name="retry"))
    assert server.done == done


def test_nothing_to_retry_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    chat(Refusing(500)).do(ChatCommand(name="retry"))
    assert "Nothing was asked here yet" in capsys.readouterr().err


def test_help_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    chat(Refusing(500)).do(ChatCommand(name="help"))
    told = capsys.readouterr().out
    assert all(name in told for name, _ in HELP)
