"""One turn on the screen of a chat: its events, Ctrl-C, and the calls in it that wait for approval."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from holdfast.cli.talk.interrupts import stopping
from holdfast.cli.talk.screens import Screen
from holdfast.client.events import (
    AnswerBegan,
    AnswerEvent,
    AnswerFinished,
    AnswerRefusal,
    AnswerText,
    ToolUse,
    ToolUseFinished,
    ToolUseStarted,
)
from holdfast.client.sync import AnswerStream, Client, WatchedTurn
from holdfast.core.codec import Value
from holdfast.errors import ServerRefused, ServerUnreachable
from holdfast.wire.api import objects as api

KEEPING = "cancel=keep, disconnect=keep"
"""The turn policy of a chat: a person who stops an answer has read its beginning, so the agent should know it, too."""


class TurnOutcome(Value):
    turn_id: str | None
    version: int | None = None
    """The version that the turn made; None if nothing was kept."""
    waiting: tuple[ToolUse, ...] = ()
    """Calls that wait for a person."""


def play(client: Client, screen: Screen, answer: AnswerStream) -> TurnOutcome:
    """Show a turn to its end. Raises ServerRefused and ServerUnreachable, but not after Ctrl-C."""
    screen.wait()
    with answer, stopping(answer, client.cancel) as stop:
        try:
            finished = show(screen, answer)
        except (ServerRefused, ServerUnreachable) as error:
            if not stop.pressed:
                raise
            return _stopped(client, screen, answer.turn_id, error)
    assert finished is not None, "an answer that ends without an error has finished"
    if finished.reason == "length":
        screen.note("The answer reached a limit, and is cut short; /retry goes on.")
    return TurnOutcome(
        turn_id=finished.turn_id, version=finished.version, waiting=finished.approvals
    )


def play_decided(client: Client, screen: Screen, turn_id: str) -> TurnOutcome:
    """Show a turn that began with a decision or continues another one."""
    screen.wait()
    watched = _Following(client.events(turn_id), turn_id)
    with stopping(watched, client.cancel) as stop:
        try:
            show(screen, watched.watched)
        except ServerUnreachable as error:
            if not stop.pressed:
                raise
            return _stopped(client, screen, turn_id, error)
    turn = watched.watched.turn
    if stop.pressed or turn.ended_by != "completed":
        return _told(screen, turn_id, turn.version, turn.ended_by or turn.state, turn.detail)
    return waiting_in(client, turn)


def waiting_in(client: Client, turn: api.TurnObject) -> TurnOutcome:
    """The outcome of an ended turn, with its calls that still wait for a person."""
    calls = tuple(
        ToolUse(id=each.id, name=each.name, arguments=each.arguments, agent=each.agent)
        for each in client.approvals(turn.id).approvals
    )
    return TurnOutcome(turn_id=turn.id, version=turn.version, waiting=calls)


class _Following:
    """A watched turn as a `StoppableAnswer`."""

    def __init__(self, watched: WatchedTurn, turn_id: str) -> None:
        self.watched = watched
        self.turn_id: str | None = turn_id

    def hang_up(self) -> None:
        pass  # its turn is known, so Ctrl-C cancels it


def show(screen: Screen, events: Iterable[AnswerEvent]) -> AnswerFinished | None:
    """Show events as they come. Returns the last one if the turn is committed."""
    finished: AnswerFinished | None = None
    try:
        for event in events:
            match event:
                case AnswerText(text=text) | AnswerRefusal(text=text):
                    screen.say(text)
                case ToolUseStarted(call=call):
                    screen.tool(call)
                case ToolUseFinished(call=call, outcome=outcome):
                    screen.tool(call, outcome)
                case AnswerFinished():
                    finished = event
                case AnswerBegan():
                    pass
                case _:
                    assert_never(event)
    finally:
        screen.settle()
    return finished


def _stopped(
    client: Client, screen: Screen, turn_id: str | None, error: ServerRefused | ServerUnreachable
) -> TurnOutcome:
    if turn_id is None:
        screen.note("Stopped, before there was an answer.")
        return TurnOutcome(turn_id=None)
    if isinstance(error, ServerRefused) and error.reason != "turn_cancelled":
        try:
            raise error  # the turn ended in another way before it could be cancelled
        finally:
            del error
    turn = client.turn(turn_id)
    return _told(screen, turn_id, turn.version, turn.ended_by or turn.state, turn.detail)


def _told(screen: Screen, turn_id: str, version: int | None, how: str, detail: str) -> TurnOutcome:
    why = f" ({detail})" if detail else ""
    if how == "cancelled":
        kept = f"kept, as version {version}" if version is not None else "not kept"
        screen.note(f"Stopped; what was said is {kept}.")
    else:
        kept = f"kept, as version {version}" if version is not None else "discarded"
        screen.note(f"The turn ended by {how}{why}, and is {kept}.")
    return TurnOutcome(turn_id=turn_id, version=version)
