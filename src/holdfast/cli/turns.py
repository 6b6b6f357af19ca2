"""`holdfast turns`: what became of turns, discarded ones too, and how to stop one."""

from __future__ import annotations

import click

from holdfast.cli import output, showing
from holdfast.cli.desk import desk
from holdfast.cli.options import Where, json_option, tenant_option, where_options
from holdfast.cli.telling import fate_of, journal_lines, when
from holdfast.core.codec import encode
from holdfast.wire import api

STILL_OPEN = 1
"""The exit code of a `cancel` whose turn has not let go yet."""


@click.group()
def turns() -> None:
    """See what became of turns, and stop one.

    \b
    Examples:
      holdfast turns list trip-to-oslo
      holdfast turns show turn_01m7fex2vh0000000000000004
      holdfast turns cancel turn_01m7fex2vh0000000000000004
    """


@turns.command("list", short_help="List the turns of a conversation, the newest first.")
@click.argument("session", metavar="KEY|ID")
@tenant_option
@json_option
@where_options
def list_command(session: str, as_json: bool, at: Where) -> None:
    """List the last turns of a conversation, the newest first: committed, discarded and open.

    A discarded turn is kept to be looked at for a week.

    \b
    Example:
      holdfast turns list trip-to-oslo
    """
    with desk(at) as here:
        found = here.turns(session)
    if as_json:
        output.give(encode(found))
    else:
        rows = (
            (each.id, when(each.began_at), each.agent, _tokens(each.usage), fate_of(each))
            for each in found.turns
        )
        showing.rows(("turn", "began", "agent", "tokens", "what became of it"), rows)


@turns.command(short_help="Show a turn, and what happened in it.")
@click.argument("turn")
@tenant_option
@json_option
@where_options
def show(turn: str, as_json: bool, at: Where) -> None:
    """Show what became of TURN and why, and its journal, if that is kept.

    The journal of a turn is kept while it is open, of a discarded one for a week, and of a committed one if
    its request had an idempotency key or ran in the background.

    \b
    Example:
      holdfast turns show turn_01m7fex2vh0000000000000004
    """
    with desk(at) as here:
        found = here.turn(turn)
        journal = here.journal(turn)
    if as_json:
        records = b",".join(map(encode, journal))
        output.give(b'{"turn":%b,"journal":[%b]}' % (encode(found), records))
        return
    lines = [
        f"{found.id}, in {found.session_id}",
        f"  {fate_of(found)}",
        f"  began {when(found.began_at)}, from version {found.base}"
        + (f", ended {when(found.ended_at)}" if found.ended_at else ""),
        f"  by {found.agent or 'nobody yet'}, attempt {found.attempt}, {_tokens(found.usage)} tokens",
        "",
        *journal_lines(journal),
    ]
    showing.prose(lines if journal else lines[:-1])


@turns.command(short_help="Stop a turn, wherever it is played.")
@click.argument("turn")
@tenant_option
@json_option
@where_options
@click.pass_context
def cancel(ctx: click.Context, turn: str, as_json: bool, at: Where) -> None:
    """Stop TURN, wherever it is played, and say what became of it: also if it had ended before.

    Ends with 1 if it has not let go after ten seconds.

    \b
    Example:
      holdfast turns cancel $(holdfast sessions list --json | jq -r '.[0].open_turn')
    """
    with desk(at) as here:
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


def _tokens(usage: api.Usage) -> str:
    return f"{usage.input_tokens + usage.output_tokens:,}"
