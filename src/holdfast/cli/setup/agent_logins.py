"""`holdfast agents login` and `logout`: a tenant's login at the MCP servers of an agent file."""

from __future__ import annotations

import asyncio
import os
import threading
import webbrowser
from functools import partial

import click

from holdfast.cli import output
from holdfast.cli.agent_checks import check_sources, server_trouble
from holdfast.environment import variable
from holdfast.ids import LOCAL
from holdfast.tools.mcp.config import OauthClient, Remote
from holdfast.tools.mcp.lazy_sdk import load_sdk
from holdfast.tools.mcp.login_callback import (
    PATH,
    Callback,
    LoginFailed,
    callback_address,
    callback_in,
)
from holdfast.tools.mcp.logins import KeyUnusable, TenantLogins, kept_logins
from holdfast.tools.mcp.toolset import McpToolset

_WAIT_S = 600.0
"""How long a login waits for a person."""

_file = click.argument("file", metavar="FILE")
_server = click.option(
    "--server", metavar="NAME", help="Only this server of the file: its name or URL."
)
_tenant = click.option("--tenant", default=LOCAL, show_default=True, help="Whose login it is.")


@click.command(short_help="Log in at MCP servers that want it.")
@_file
@_server
@_tenant
@click.option("--paste", is_flag=True, help="Ask for the address that the browser ended at.")
def login(file: str, server: str | None, tenant: str, paste: bool) -> None:
    """Log in at the remote MCP servers of an agent file.

    A browser is opened at each server's login, and sent back to this machine. Where the browser is on another machine,
    use --paste. The tokens are sealed with the key that HOLDFAST_LOGIN_KEY names, for one tenant and one server.

    \b
    Example:
      openssl rand -hex 32 > login.key
      HOLDFAST_LOGIN_KEY=login.key holdfast agents login shop.yaml
    """
    logins = _logins(tenant)
    for toolset in asyncio.run(_servers(file, server)):
        remote = toolset.server.transport
        assert isinstance(remote, Remote)
        try:
            asyncio.run(_log_in(toolset, remote, logins, paste=paste))
        except (LoginFailed, TimeoutError) as error:
            why = str(error) or f"there was no login within {_WAIT_S:g} s"
            raise click.ClickException(f"{toolset.server.shown}: no login: {why}") from error


@click.command(short_help="Forget logins at MCP servers.")
@_file
@_server
@_tenant
def logout(file: str, server: str | None, tenant: str) -> None:
    """Forget a tenant's logins at the remote MCP servers of an agent file. The servers are not told.

    \b
    Example:
      holdfast agents logout shop.yaml --tenant acme
    """
    logins = _logins(tenant)
    for toolset in asyncio.run(_servers(file, server)):
        remote = toolset.server.transport
        assert isinstance(remote, Remote)
        told = "logged out" if asyncio.run(_log_out(remote, logins)) else "there was no login"
        output.say(f"{toolset.server.shown}: {told}")


def _logins(tenant: str) -> TenantLogins:
    try:
        logins = kept_logins(os.environ)
    except KeyUnusable as error:
        raise click.ClickException(str(error)) from error
    if logins is None:
        raise click.ClickException(
            f"{variable('login_key')} is not set: name a file with a key that seals logins, which `openssl rand -hex 32` "
            "makes, and start the server with the same"
        )
    return logins.of_tenant(tenant)


async def _servers(file: str, wanted: str | None) -> list[McpToolset]:
    """The servers of a file that a person can log in at."""
    (report, *_) = await check_sources((file,))
    for problem in (*report.unreadable, *map(str, report.problems)):
        raise click.ClickException(problem)
    found = [
        each
        for each in report.servers
        if isinstance(each.server.transport, Remote)
        and each.server.transport.takes_login
        and wanted in (None, each.server.name, each.server.transport.url)
    ]
    if not found:
        which = f" called {wanted!r}" if wanted else ""
        raise click.ClickException(
            f"{file} has no remote MCP server{which} without a token of its own"
        )
    return found


async def _log_in(
    toolset: McpToolset, remote: Remote, logins: TenantLogins, *, paste: bool
) -> None:
    client = remote.oauth or OauthClient()
    state: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(_WAIT_S), callback_address(state, client.port) as address:
        here = f"http://127.0.0.1:{address.port}{PATH}"
        _, sign_in = load_sdk()
        found = await sign_in(
            remote,
            redirect=client.redirect.replace("${callbackPort}", str(address.port)) or here,
            state=state,
            show=partial(_show, opens=not paste),
            callback=partial(_pasted, state) if paste else address.wait,
        )
    async with logins.locked(remote.url):
        logins.write(found)
    output.say(f"{toolset.server.shown}: logged in for {logins.tenant!r} at {found.issuer}")
    if trouble := await server_trouble(toolset.for_tenant(logins.tenant)):
        raise LoginFailed(trouble)


async def _log_out(remote: Remote, logins: TenantLogins) -> bool:
    async with logins.locked(remote.url):
        return logins.remove(remote.url)


def _show(address: str, *, opens: bool) -> None:
    output.say(f"Log in with a browser at\n\n  {address}\n", err=True)
    if (
        opens
    ):  # a browser in the terminal is waited for until it ends, and the callback comes before that
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


async def _pasted(state: asyncio.Future[str]) -> Callback:
    said = output.wait_line("The address that the browser ended at")
    return callback_in(said, state=state.result())
