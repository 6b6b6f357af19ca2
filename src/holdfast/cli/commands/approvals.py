"""`holdfast approvals`: decide on calls that wait for a person, on a running server."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Literal

import click

from holdfast.cli import display, output
from holdfast.cli.conversation_text import when
from holdfast.cli.options import json_option, key_option
from holdfast.client.sync import Client
from holdfast.core.codec import Value, encode
from holdfast.environment import SERVER
from holdfast.wire.api.objects import Decision, GrantObject


class _Server(Value):
    """The server that the group's options name."""

    url: str
    key: str | None


def on_server(command: Callable[..., None]) -> Callable[..., None]:
    """`--server` and `--key` after a subcommand's name; where they are not, those of the group count."""

    @wraps(command)
    def placed(
        at: _Server, /, *args: object, server: str | None, api_key: str | None, **rest: object
    ) -> None:
        command(Client(server or at.url, key=api_key or at.key), *args, **rest)

    made = click.pass_obj(placed)
    made = click.option(
        "--server", metavar="URL", help="Which server; also before the subcommand."
    )(made)
    return click.option("--key", "api_key", metavar="KEY", help="The API key for it.")(made)


@click.group()
@click.option(
    "--server",
    envvar=SERVER,
    default="http://127.0.0.1:8484",
    show_default=True,
    show_envvar=True,
    metavar="URL",
    help="Which server.",
)
@key_option
@click.pass_context
def approvals(ctx: click.Context, server: str, api_key: str | None) -> None:
    """Decide on calls that wait for a person, and see remembered approvals.

    An answer with such calls names its turn (X-Turn-Id) and the calls; `holdfast chat` asks about them in place.

    \b
    Example:
      holdfast approvals list --server https://agents.example
    """
    ctx.obj = _Server(url=server, key=api_key)


@approvals.command("list", short_help="Which calls wait, of a turn or of all.")
@click.argument("turn", required=False)
@json_option
@on_server
def list_command(client: Client, turn: str | None, as_json: bool) -> None:
    """Which calls wait for a decision, and what they would do: those of a turn, or of all conversations.

    \b
    Examples:
      holdfast approvals list
      holdfast approvals list turn_01m7fex2vh0000000000000004
    """
    if turn is None:
        inbox = client.open_approvals().approvals
        if as_json:
            output.give(encode(inbox))
        else:
            display.rows(
                ("turn", "call", "conversation", "asked", "agent", "tool", "arguments"),
                (
                    (
                        each.turn_id,
                        each.id,
                        each.session_key or each.session_id,
                        when(each.asked_at),
                        each.agent,
                        each.name,
                        each.arguments,
                    )
                    for each in inbox
                ),
            )
        return
    found = client.approvals(turn).approvals
    if as_json:
        output.give(encode(found))
    else:
        rows = ((each.id, each.agent, each.name, each.arguments) for each in found)
        display.rows(("call", "agent", "tool", "arguments"), rows)


@approvals.command(short_help="Allow or refuse all calls of a turn that wait.")
@click.argument("turn")
@click.option("--approve", multiple=True, metavar="CALL", help="Let this call run.")
@click.option("--deny", multiple=True, metavar="CALL", help="Do not let this call run.")
@click.option(
    "--remember",
    type=click.Choice(("session", "agent")),
    is_flag=False,
    flag_value="session",
    help="Do not ask again: about these tools in this session, or about these very calls of this agent.",
)
@click.option(
    "--any-arguments",
    is_flag=True,
    help="With --remember agent: for all arguments. Think twice.",
)
@on_server
def decide(
    client: Client,
    turn: str,
    approve: tuple[str, ...],
    deny: tuple[str, ...],
    remember: Literal["session", "agent"] | None,
    any_arguments: bool,
) -> None:
    """Allow or refuse the calls of a turn that wait, all of them at once.

    The next turn begins with it; its id is printed.

    \b
    Example:
      holdfast approvals decide turn_01m7fex2vh0000000000000004 --approve fc_01m7fex2vh0000000000000007
    """
    if any_arguments and remember != "agent":
        raise click.UsageError("--any-arguments belongs to --remember agent")
    if set(approve) & set(deny) or not (approve or deny):
        raise click.UsageError("name each call once, by --approve or --deny")
    yes = Decision(approve=True, remember=remember, arguments="any" if any_arguments else "exact")
    decisions = dict.fromkeys(approve, yes) | dict.fromkeys(deny, Decision(approve=False))
    output.say(client.decide(turn, decisions).id)


@approvals.command(short_help="List remembered approvals.")
@click.option("--agent", help="Of this agent only.")
@click.option("--all", "everything", is_flag=True, help="Revoked ones, too.")
@json_option
@on_server
def remembered(client: Client, agent: str | None, everything: bool, as_json: bool) -> None:
    """List the remembered approvals, of an agent everywhere or in one session: the tool, the exact arguments that it
    holds for, and since when.

    \b
    Example:
      holdfast approvals remembered --agent clerk
    """
    rows = [each for each in _all(client, agent) if everything or each.revoked_at is None]
    if as_json:
        output.give(encode(rows))
        return
    display.rows(
        ("id", "agent", "session", "tool", "arguments", "since", "taken back"),
        (
            (
                each.id,
                each.agent,
                each.session or "every",
                each.tool,
                "any" if each.arguments is None else each.arguments,
                when(each.made_at),
                "" if each.revoked_at is None else when(each.revoked_at),
            )
            for each in rows
        ),
    )


@approvals.command(short_help="Take a remembered approval back.")
@click.argument("grant")
@on_server
def revoke(client: Client, grant: str) -> None:
    """Take a remembered approval back: such calls wait for a person again.

    \b
    Example:
      holdfast approvals revoke grant_01m7fex2vh0000000000000004
    """
    client.revoke_grant(grant)
    output.say(grant)


def _all(client: Client, agent: str | None) -> list[GrantObject]:
    found: list[GrantObject] = []
    more = True
    while more:
        page = client.grants(agent=agent, after=found[-1].id if found else None)
        found += page.grants
        more = page.has_more
    return found
