"""`holdfast run`: one turn, for scripts. The exit code tells the turn's outcome; 0 means committed and complete."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Protocol

import click
import msgspec

from holdfast.cli import output
from holdfast.cli.commands.chat import new_name
from holdfast.cli.display import seen
from holdfast.cli.options import ConversationPlace, where_options
from holdfast.cli.server_choice import ChosenServer, reach
from holdfast.cli.standard_streams import input_text
from holdfast.cli.talk.interrupts import stopping
from holdfast.client.events import AnswerEvent, AnswerFinished, AnswerRefusal, AnswerText, Event
from holdfast.client.sync import AnswerStream
from holdfast.errors import HoldfastError, ServerRefused, ServerUnreachable

COMPLETED = 0
FAILED = 3
INTERRUPTED = 4
WAITING = 5
REFUSED = 6
UNREACHABLE = 7
STOPPED = 130

MEANINGS = {
    COMPLETED: "the turn is committed, and complete",
    FAILED: "the turn began and failed; --json and stderr say how, and whether anything was kept",
    INTERRUPTED: "it was cancelled, or reached a limit or its deadline: the answer is not whole",
    WAITING: "it is committed, with calls that wait for a person",
    REFUSED: "no turn began: the request was refused",
    UNREACHABLE: "no server answers, or its answer broke off: what became of the turn is not known here",
    STOPPED: "stopped by Ctrl-C; the turn is cancelled or, if nothing was answered yet, ends as one whose client went away",
}
"""The exit codes of `run`, besides those of every command."""


BROKEN_OFF = frozenset(
    """
    turn_cancelled turn_disconnected turn_deadline_exceeded turn_limit_reached turn_crashed turn_superseded
    server_shutting_down conversation_gone answer_restarted
    """.split()
)
"""Error codes of turns that ended before they had an answer or a failure."""


class RunFailed(Event, tag="failed"):
    """The last line of `--json`, in place of `finished`."""

    code: str
    message: str
    exit_code: int
    turn_id: str | None = None


@click.command(short_help="Run one turn, for scripts.")
@click.argument("agent")
@click.argument("prompt")
@click.option(
    "--session", "name", metavar="KEY|ID", help="Which conversation; a new one by default."
)
@click.option(
    "--idempotency-key",
    metavar="TEXT",
    help="A name for this request: saying it again gives the same answer, and runs nothing twice.",
)
@click.option("--json", "as_json", is_flag=True, help="Events as lines of JSON, as they happen.")
@where_options
@click.pass_context
def run(
    ctx: click.Context,
    agent: str,
    prompt: str,
    name: str | None,
    idempotency_key: str | None,
    as_json: bool,
    at: ConversationPlace,
) -> None:
    """Ask AGENT for one turn, and write its answer to stdout as it comes.

    AGENT is a source as `serve` takes it, or with --server the name of an agent; PROMPT may be - for stdin.

    \b
    Ends with 0 only if the turn is committed and complete:
      3 it failed           4 it was interrupted, or cut short
      5 it waits for approval
      6 it was refused, and never began
      7 no server answers, or the answer broke off

    \b
    Examples:
      holdfast run demo "Hello"
      git diff | holdfast run reviewer.yaml - --session reviews
      holdfast run demo "Pay" --idempotency-key invoice-17 --json
    """
    said = input_text() if prompt == "-" else prompt
    writer: RunOutput = JsonRunOutput() if as_json else PlainRunOutput()
    try:
        with reach(agent, at) as reached:
            session = name or _name(idempotency_key)
            answer = reached.client.ask(
                reached.model, said, session=session, idempotency_key=idempotency_key
            )
            code = _run(reached, answer, writer, session)
    except ServerUnreachable as error:
        code = UNREACHABLE
        writer.failed(RunFailed(code=error.code, message=str(error), exit_code=code))
    ctx.exit(code)


def _run(reached: ChosenServer, answer: AnswerStream, writer: RunOutput, session: str) -> int:
    """Run the turn to its end, and return the exit code."""
    error: ServerRefused | ServerUnreachable
    with answer, stopping(answer, reached.client.cancel) as stop:
        try:
            return _ending(writer.write(answer), writer, session)
        except (ServerRefused, ServerUnreachable) as raised:
            error = raised
    code = STOPPED if stop.pressed else code_of(error)
    reason = error.reason if isinstance(error, ServerRefused) else error.code
    message = str(error)
    if (
        stop.pressed and answer.turn_id is None
    ):  # the server had not named the turn yet, so it could not be cancelled
        reason = "turn_disconnected"
        message = "stopped before there was an answer; the turn ends as one whose client went away"
    writer.failed(RunFailed(code=reason, message=message, turn_id=answer.turn_id, exit_code=code))
    return code


def _ending(finished: AnswerFinished, writer: RunOutput, session: str) -> int:
    if finished.approvals:
        calls = ", ".join(each.name for each in finished.approvals)
        writer.note(
            f"{calls}: waiting for approval; `holdfast chat --session {session}` asks for it"
        )
        return WAITING
    if finished.reason != "stop":
        writer.note(f"the answer is not whole: {finished.reason}")
        return INTERRUPTED
    return COMPLETED


def code_of(error: HoldfastError) -> int:
    """The exit code of a run that ended with this error."""
    match error:
        case ServerUnreachable():
            return UNREACHABLE
        case ServerRefused(turn_id=None):
            return REFUSED
        case ServerRefused(reason=reason) if reason in BROKEN_OFF:
            return INTERRUPTED
        case _:
            return FAILED


def _name(idempotency_key: str | None) -> str:
    """A session key for a run without `--session`. A repeated request must have the same one, so it is derived."""
    if idempotency_key is None:
        return new_name("run")
    return f"run-{sha256(idempotency_key.encode()).hexdigest()[:20]}"


class RunOutput(Protocol):
    """Prints the events and the end of a run."""

    def write(self, events: Iterable[AnswerEvent]) -> AnswerFinished:
        """Print events as they come, and return the last one."""
        ...

    def note(self, text: str) -> None: ...

    def failed(self, failed: RunFailed) -> None: ...


class PlainRunOutput:
    """The answer on stdout, and everything else on stderr."""

    def __init__(self) -> None:
        self._open = False

    def write(self, events: Iterable[AnswerEvent]) -> AnswerFinished:
        finished: AnswerFinished | None = None
        try:
            for event in events:
                if isinstance(event, AnswerText | AnswerRefusal):
                    output.give(seen(event.text), nl=False)
                    self._open = True
                elif isinstance(event, AnswerFinished):
                    finished = event
        finally:
            if self._open:
                output.say()
        assert finished is not None, "an answer that ends without an error has finished"
        return finished

    def note(self, text: str) -> None:
        output.say(f"holdfast: {text}", err=True)

    def failed(self, failed: RunFailed) -> None:
        self.note(failed.message)


class JsonRunOutput:
    """Every event on stdout, as a line of JSON."""

    def write(self, events: Iterable[AnswerEvent]) -> AnswerFinished:
        finished: AnswerFinished | None = None
        for event in events:
            self._line(event)
            if isinstance(event, AnswerFinished):
                finished = event
        assert finished is not None, "an answer that ends without an error has finished"
        return finished

    def note(self, text: str) -> None:
        pass  # the last event has it

    def failed(self, failed: RunFailed) -> None:
        self._line(failed)

    def _line(self, event: Event) -> None:
        output.give(msgspec.json.encode(event))
