"""`holdfast turns`: the outcome of turns, discarded ones too; and how to stop or continue a turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import click

from holdfast.cli import display, output
from holdfast.cli.conversation_text import fate_of, journal_lines, trace_lines, when
from holdfast.cli.options import ConversationPlace, conversation_options
from holdfast.cli.session_backend import open_backend
from holdfast.client.events import AnswerRefusal, AnswerText
from holdfast.client.sync import Client
from holdfast.core.codec import encode
from holdfast.errors import InvalidValue
from holdfast.server.api.turn_lists import ListedState
from holdfast.wire.api import objects as api

STILL_OPEN = 1
"""The exit code of a `cancel` whose turn has not ended yet."""

BROKE_OFF = 1
"""The exit code of a `continue` whose turn broke off, too."""


@click.group()
def turns() -> None:
    """See the outcome of turns, stop one, and continue one that broke off.

    \b
    Examples:
      holdfast turns list
      holdfast turns list trip-to-oslo
      holdfast turns show turn_01m7fex2vh0000000000000004
      holdfast turns cancel turn_01m7fex2vh0000000000000004
      holdfast turns continue turn_01m7fex2vh0000000000000004 --server http://127.0.0.1:8484
    """


@turns.command(
    "list", short_help="List the turns of a conversation, or what goes on in all of them."
)
@click.argument("session", metavar="[KEY|ID]", required=False)
@click.option(
    "--state",
    type=click.Choice(get_args(ListedState)),
    help="Over all conversations: the turns in this state; open ones, if nothing is said.",
)
@conversation_options
def list_command(
    session: str | None, state: ListedState | None, as_json: bool, at: ConversationPlace
) -> None:
    """List the last turns of a conversation, the newest first: committed, discarded and open.

    Without a conversation: the turns of all conversations that are open now, first turns too, or those that wait for
    approval, are unfinished, or have failed in the last week. A discarded turn stays readable for a week.

    \b
    Examples:
      holdfast turns list
      holdfast turns list --state failed
      holdfast turns list trip-to-oslo
    """
    if session is not None and state is not None:
        raise click.UsageError("--state is about all conversations; leave the conversation out")
    with open_backend(at) as here:
        if session is None:
            listed = here.listed_turns(state=state or "open")
            if as_json:
                output.give(encode(listed))
            else:
                show_listed(listed.turns)
            return
        found = here.turns(session)
    if as_json:
        output.give(encode(found))
    else:
        rows = (
            (each.id, when(each.began_at), each.agent, _tokens(each.usage), fate_of(each))
            for each in found.turns
        )
        display.rows(("turn", "began", "agent", "tokens", "what became of it"), rows)


@turns.command(short_help="Show a turn, and what happened in it.")
@click.argument("turn")
@conversation_options
def show(turn: str, as_json: bool, at: ConversationPlace) -> None:
    """Show the outcome of TURN with its reason, what took how long in it, and its journal, if that is kept.

    The journal of a turn is kept while it is open, of a discarded one for a week, and of a committed one if
    its request had an idempotency key, ran in the background or broke off.

    \b
    Example:
      holdfast turns show turn_01m7fex2vh0000000000000004
    """
    with open_backend(at) as here:
        trace = here.trace(turn)
        journal = here.journal(turn)
    found = trace.turn
    if as_json:
        records = b",".join(map(encode, journal))
        parts = (encode(found), encode(trace), records)
        output.give(b'{"turn":%b,"trace":%b,"journal":[%b]}' % parts)
        return
    lines = [
        f"{found.id}, in {found.session_id}",
        f"  {fate_of(found)}",
        f"  began {when(found.began_at)}, from version {found.base}"
        + (f", ended {when(found.ended_at)}" if found.ended_at else ""),
        f"  by {found.agent or 'no agent yet'}, attempt {found.attempt}, {_tokens(found.usage)} tokens",
        *(["", *trace_lines(trace)] if trace.spans else ()),
        *(["", *journal_lines(journal)] if journal else ()),
    ]
    display.prose(lines)


@turns.command(short_help="Stop a turn, wherever it is played.")
@click.argument("turn")
@conversation_options
@click.pass_context
def cancel(ctx: click.Context, turn: str, as_json: bool, at: ConversationPlace) -> None:
    """Stop TURN, on whichever server it is played, and show its outcome. A turn that has ended before stays as it is.

    Ends with 1 if it has not ended after ten seconds.

    \b
    Example:
      holdfast turns cancel $(holdfast sessions list --json | jq -r '.[0].open_turn')
    """
    with open_backend(at) as here:
        found = here.cancel(turn)
    if as_json:
        output.give(encode(found))
    else:
        output.say(fate_of(found))
    if found.state not in ("committed", "discarded"):
        output.say(
            "it was told to stop; if no server plays it, the next one that starts ends it", err=True
        )
        ctx.exit(STILL_OPEN)


@turns.command("continue", short_help="Go on with a turn that broke off, on a server.")
@click.argument("turn")
@conversation_options
@click.pass_context
def continue_command(ctx: click.Context, turn: str, as_json: bool, at: ConversationPlace) -> None:
    """Continue TURN, which broke off and was kept, and show the outcome and the answer.

    No message and no tool call of it is repeated. Only the last turn of a conversation can be continued, and only by a
    server that has its agent: name one with --server. Ends with 1 if this broke off, too.

    \b
    Example:
      holdfast turns continue turn_01m7fex2vh0000000000000004 --server http://127.0.0.1:8484
    """
    if at.server is None:
        raise InvalidValue(
            "a turn is played by a server that has its agent; name one with --server"
        )
    client = Client(at.server, key=at.key)
    watched = client.events(client.continue_turn(turn).id)
    said = "".join(each.text for each in watched if isinstance(each, AnswerText | AnswerRefusal))
    found = watched.turn
    if as_json:
        output.give(encode(found))
    else:
        output.say(f"{found.id}: {fate_of(found)}")
        if said:
            output.say_lines(said)
    if found.ended_by != "completed":
        ctx.exit(BROKE_OFF)


def show_listed(turns: Iterable[api.ListedTurn]) -> None:
    """Print turns of several conversations, one a line."""
    rows = (
        (
            each.id,
            each.session_key or each.session_id,
            when(each.began_at),
            f"{each.age_s:.0f} s",
            each.agent,
            each.tool or "",
            fate_of(each),
        )
        for each in turns
    )
    heads = ("turn", "conversation", "began", "took", "agent", "tool", "what became of it")
    display.rows(heads, rows)


def _tokens(usage: api.UsageObject) -> str:
    """Their number; with a mark if some of them are an estimate."""
    mark = "~" if usage.estimated_tokens else ""
    return f"{mark}{usage.input_tokens + usage.output_tokens:,}"
