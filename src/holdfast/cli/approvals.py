"""`holdfast approvals`: decide on calls that wait for a person, on a server that runs."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from urllib.parse import quote

import aiohttp
import click

from holdfast.cli import showing
from holdfast.errors import InvalidValue

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
    """Decide on calls that wait for a person.

    An answer with such calls names its turn (X-Turn-Id) and the calls.
    """
    ctx.obj = server


@approvals.command("list", short_help="Which calls of a turn wait.")
@click.argument("turn")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
@click.pass_obj
def list_command(server: str, turn: str, as_json: bool) -> None:
    """Which calls of a turn wait for a decision, and what they would do."""
    found = asyncio.run(_ask(server, "GET", turn))["approvals"]
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
    "--remember", is_flag=True, help="Do not ask about these tools in this session again."
)
@click.pass_obj
def decide(
    server: str, turn: str, approve: tuple[str, ...], deny: tuple[str, ...], remember: bool
) -> None:
    """Allow or refuse the calls of a turn that wait, all of them at once.

    The next turn begins with it; its id is printed.
    """
    if set(approve) & set(deny) or not (approve or deny):
        raise click.UsageError("name each call once, by --approve or --deny")
    kept = "session" if remember else None
    decisions = {
        **{call: {"approve": True, "remember": kept} for call in approve},
        **{call: {"approve": False} for call in deny},
    }
    begun = asyncio.run(_ask(server, "POST", turn, {"decisions": decisions}))
    click.echo(str(begun["id"]))


async def _ask(
    server: str, method: str, turn: str, body: Mapping[str, object] | None = None
) -> dict[str, object]:
    key = os.environ.get("HOLDFAST_API_KEY", "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    url = f"{server.rstrip('/')}/api/turns/{quote(turn, safe='')}/approvals"
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
