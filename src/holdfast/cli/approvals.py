"""`holdfast approvals`: decide on calls that wait for a person, on a server that runs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

import aiohttp
import click
import msgspec

from holdfast.cli import showing
from holdfast.errors import InvalidValue
from holdfast.wire.api import Grant, Grants

TIMEOUT_S = 30.0


@click.group()
@click.option(
    "--server",
    envvar="HOLDFAST_SERVER",
    default="http://127.0.0.1:8484",
    show_default=True,
    show_envvar=True,
    metavar="URL",
    help="Which server. Its key, if it wants one, is read from HOLDFAST_API_KEY.",
)
@click.pass_context
def approvals(ctx: click.Context, server: str) -> None:
    """Decide on calls that wait for a person, and see what is remembered.

    An answer with such calls names its turn (X-Turn-Id) and the calls.
    """
    ctx.obj = server


@approvals.command("list", short_help="Which calls of a turn wait.")
@click.argument("turn")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.pass_obj
def list_command(server: str, turn: str, as_json: bool) -> None:
    """Which calls of a turn wait for a decision, and what they would do."""
    found = asyncio.run(_ask(server, "GET", _of_turn(turn)))["approvals"]
    assert isinstance(found, list)
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        rows = ((each["id"], each["agent"], each["name"], each["arguments"]) for each in found)
        showing.table(("call", "agent", "tool", "arguments"), rows)


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
    help="With --remember agent: whatever the arguments. Think twice.",
)
@click.pass_obj
def decide(
    server: str,
    turn: str,
    approve: tuple[str, ...],
    deny: tuple[str, ...],
    remember: str | None,
    any_arguments: bool,
) -> None:
    """Allow or refuse the calls of a turn that wait, all of them at once.

    The next turn begins with it; its id is printed.
    """
    if any_arguments and remember != "agent":
        raise click.UsageError("--any-arguments belongs to --remember agent")
    if set(approve) & set(deny) or not (approve or deny):
        raise click.UsageError("name each call once, by --approve or --deny")
    kept = {"remember": remember, "arguments": "any" if any_arguments else "exact"}
    decisions = {
        **{call: {"approve": True, **kept} for call in approve},
        **{call: {"approve": False} for call in deny},
    }
    begun = asyncio.run(_ask(server, "POST", _of_turn(turn), {"decisions": decisions}))
    click.echo(str(begun["id"]))


@approvals.command(short_help="What is remembered for agents.")
@click.option("--agent", help="Of this agent only.")
@click.option("--all", "everything", is_flag=True, help="Also what was taken back.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.pass_obj
def remembered(server: str, agent: str | None, everything: bool, as_json: bool) -> None:
    """Which approvals are remembered for agents: the tool, the very arguments that it is about, and since when."""
    found = asyncio.run(_remembered(server, agent))
    rows = [each for each in found if everything or each.revoked_at is None]
    if as_json:
        click.echo(msgspec.json.encode(rows).decode())
        return
    showing.table(
        ("id", "agent", "tool", "arguments", "since", "taken back"),
        (
            (
                each.id,
                each.agent,
                each.tool,
                "any" if each.arguments is None else each.arguments,
                _when(each.made_at),
                _when(each.revoked_at),
            )
            for each in rows
        ),
    )


@approvals.command(short_help="Take a remembered approval back.")
@click.argument("grant")
@click.pass_obj
def revoke(server: str, grant: str) -> None:
    """Take a remembered approval back: what it was about is asked about again."""
    asyncio.run(_ask(server, "DELETE", f"grants/{quote(grant, safe='')}"))
    click.echo(grant)


async def _remembered(server: str, agent: str | None) -> list[Grant]:
    found: list[Grant] = []
    more = True
    while more:
        asked = {"agent": agent, "after": found[-1].id if found else None, "limit": 100}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        page = msgspec.convert(await _ask(server, "GET", f"grants?{query}"), Grants)
        found += page.grants
        more = page.has_more
    return found


def _when(at_s: float | None) -> str:
    if at_s is None:
        return ""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _of_turn(turn: str) -> str:
    return f"turns/{quote(turn, safe='')}/approvals"


async def _ask(
    server: str, method: str, path: str, body: Mapping[str, object] | None = None
) -> dict[str, object]:
    key = os.environ.get("HOLDFAST_API_KEY", "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    url = f"{server.rstrip('/')}/api/{path}"
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout, headers=headers) as http:
            async with http.request(method, url, json=body) as response:
                return _read(response.status, await response.read())
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        words = str(error) or type(error).__name__
        raise InvalidValue(
            f"{server} does not answer as a server of ours would: {words}"
        ) from error


def _read(status: int, body: bytes) -> dict[str, object]:
    said = json.loads(body)
    if status >= 400:
        raise InvalidValue(said["error"]["message"])
    assert isinstance(said, dict)
    return said
