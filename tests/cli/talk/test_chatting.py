"""A chat's own decisions, with a server that says what a test wants."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.cli.talk.chatting import Chat
from holdfast.cli.talk.playing import Played
from holdfast.cli.talk.saying import HELP, Command
from holdfast.cli.talk.screens import PlainScreen
from holdfast.client.events import Call
from holdfast.errors import ServerRefused
from holdfast.wire import api


class Refusing:
    """A server that refuses everything."""

    def __init__(self, status: int) -> None:
        self.status = status

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object, **__: object) -> None:
            raise ServerRefused("no", status=self.status, reason="x")

        return refuse


def chat(client: Any, name: str = "trip") -> Chat:
    return Chat(client, PlainScreen(), model="demo", name=name, new_name=lambda: "fresh")


def test_a_key_that_may_only_talk_is_enough_to_talk(capsys: pytest.CaptureFixture[str]) -> None:
    chat(Refusing(403)).greet()
    assert capsys.readouterr().err == "demo, in trip\n"


@pytest.mark.parametrize(("status", "name"), [(404, "conv_" + "0" * 26), (410, "trip"), (401, "a")])
def test_what_is_not_there_by_its_id_or_gone_is_not_begun_anew(status: int, name: str) -> None:
    with pytest.raises(ServerRefused):
        chat(Refusing(status), name).greet()


class Deciding(PlainScreen):
    """Somebody who allows everything."""

    def decide(self, calls: Sequence[Call]) -> dict[str, api.Decision] | None:
        return {each.id: api.Decision(approve=True) for each in calls}


def test_a_decision_that_comes_too_late_does_not_end_the_chat(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is asked about when the conversation is opened, and that may be days later."""
    waiting = Call(id="fc_1", name="pay", arguments="{}")
    client: Any = Refusing(409)
    late = Chat(client, Deciding(), model="demo", name="trip", new_name=lambda: "fresh")
    late.see_to(Played(turn_id="turn_1", version=1, waiting=(waiting,)))
    assert capsys.readouterr().err == "holdfast: no\n"


class BrokenOff(Refusing):
    """A server with a conversation whose last turn ended so."""

    def __init__(self, ended_by: str) -> None:
        super().__init__(500)
        self.asked: list[str] = []
        self._turn = api.Turn(
            id="turn_1",
            session_id="conv_1",
            state="committed",
            ended_by=ended_by,  # type: ignore[arg-type]
            detail="",
            base=0,
            version=1,
            attempt=1,
            agent="demo",
            usage=api.Usage(),
            began_at=1.0,
            ended_at=2.0,
        )

    def session(self, name: str) -> api.Session:
        return api.Session(
            id="conv_1",
            keys=(name,),
            title="",
            agent="demo",
            version=1,
            items=2,
            open_turn=None,
            created_at=1.0,
            active_at=2.0,
            attributes={},
        )

    def turns(self, name: str) -> api.Turns:
        return api.Turns(turns=(self._turn,), usage=api.Usage())

    def continue_turn(self, turn_id: str) -> api.Turn:
        self.asked.append(turn_id)
        raise ServerRefused("enough", status=500, reason="x")


@pytest.mark.parametrize(("ended_by", "goes_on"), [("model_error", True), ("cancelled", False)])
def test_a_turn_that_broke_off_is_gone_on_with_unless_the_person_has_stopped_it(
    ended_by: str, goes_on: bool
) -> None:
    server = BrokenOff(ended_by)
    talking = chat(server)
    talking.has_spoken = True
    with contextlib.suppress(ServerRefused):
        talking.do(Command(name="retry"))
    assert server.asked == (["turn_1"] if goes_on else [])


def test_nothing_to_retry_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    chat(Refusing(500)).do(Command(name="retry"))
    assert "Nothing was asked here yet" in capsys.readouterr().err


def test_help_has_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    chat(Refusing(500)).do(Command(name="help"))
    told = capsys.readouterr().out
    assert all(name in told for name, _ in HELP)
