"""Logins at MCP servers, against an authorization server that speaks OAuth, and one that does not keep to it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from holdfast.cli.setup.agent_logins import _log_out
from holdfast.core.items import text_of
from holdfast.tools.mcp.config import McpServer, OauthClient, Remote
from holdfast.tools.mcp.login_callback import LoginFailed, callback_address, callback_in
from holdfast.tools.mcp.logins import KeyUnusable, Login, Logins, kept_logins, login_files
from holdfast.tools.mcp.sign_in import _Provider, sign_in
from holdfast.tools.mcp.signed_requests import SignedRequests, refresh_request
from holdfast.tools.mcp.toolset import McpToolset
from tests.tools.oauth_server import Fault, OauthServer, oauth_server, visit
from tests.tools.tool_calls import call_of

COMMAND = "holdfast agents login shop.yaml"


@pytest.fixture
async def there() -> AsyncIterator[OauthServer]:
    async with oauth_server() as server:
        yield server


@pytest.fixture
def logins(tmp_path: Path) -> Logins:
    return Logins(tmp_path / "logins", b"k" * 32)


def remote(there: OauthServer, oauth: OauthClient | None = None) -> Remote:
    return Remote(url=f"{there.url}/mcp", oauth=oauth, login=COMMAND)


async def logged_in(there: OauthServer, oauth: OauthClient | None = None, **changed: str) -> Login:
    """A login by a person who agrees, in a browser that comes back to the callback."""
    state: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    shown: list[str] = []
    async with asyncio.timeout(10), callback_address(state, 0) as address:

        async def browse() -> object:
            back = there.agreed(shown[0], **changed)
            if await visit(back) != 200 and changed:
                raise LoginFailed("the callback is refused")
            return await address.wait()

        return await sign_in(
            remote(there, oauth),
            redirect=f"http://127.0.0.1:{address.port}/callback",
            state=state,
            show=shown.append,
            callback=browse,  # type: ignore[arg-type]  # a Callback, in the end
        )


async def asked(there: OauthServer, logins: Logins | None, tenant: str = "local") -> str:
    """What a tool of the server says, or why there is none."""
    server = McpServer(transport=remote(there), start_s=10)
    toolset = McpToolset(server, logins=logins)
    try:
        mine = toolset.for_tenant(tenant)
        tools = await mine.tools()
        return text_of((await tools[0].run(call_of())).content) if tools else mine.trouble
    finally:
        await toolset.close()


# ── the whole way ────────────────────────────────────────────────────────────────────────────


async def test_a_login_is_made_used_and_refreshed(there: OauthServer, logins: Logins) -> None:
    there.expires_in = 20  # it is about to expire from the beginning
    first = await logged_in(there)
    assert there.registered[0]["client_name"] == "Holdfast"
    logins.of_tenant("local").write(first)
    there.expires_in = 3600
    told = await asked(there, logins)
    kept = logins.of_tenant("local").read(first.server)
    assert kept is not None and kept.access_token != first.access_token
    assert told == f"you are {kept.access_token}"
    assert [each["grant_type"] for each in there.token_requests] == [
        "authorization_code",
        "refresh_token",
    ]


async def test_a_token_that_is_withdrawn_before_its_time_is_refreshed(
    there: OauthServer, logins: Logins
) -> None:
    there.expires_in = None
    logins.of_tenant("local").write(await logged_in(there))
    there.access.clear()
    assert (await asked(there, logins)).startswith("you are access-")


async def test_a_client_of_the_file_is_not_registered(there: OauthServer) -> None:
    there.faults.add("no registration")
    client = OauthClient(client_id="mine", scopes=("read", "write"))
    login = await logged_in(there, client)
    assert (login.client_id, login.scope) == ("mine", "read write")
    assert there.registered == []


@pytest.mark.parametrize(
    ("methods", "chosen"),
    [
        (None, "client_secret_basic"),
        (["client_secret_basic"], "client_secret_basic"),
        (["none", "client_secret_post"], "client_secret_post"),
        (["client_secret_post", "client_secret_basic"], "client_secret_basic"),
    ],
)
async def test_a_secret_is_shown_as_the_server_takes_it(
    there: OauthServer, logins: Logins, methods: list[str] | None, chosen: str
) -> None:
    """RFC 8414: a server that does not say takes Basic alone. It counts for refreshes, too."""
    there.secrets["mi:ne"], there.methods = "hu sh/", methods
    login = await logged_in(there, OauthClient(client_id="mi:ne", client_secret="hu sh/"))
    assert login.auth_method == chosen
    logins.of_tenant("local").write(login)
    there.access.clear()
    assert (await asked(there, logins)).startswith("you are access-")
    assert [each["grant_type"] for each in there.token_requests] == [
        "authorization_code",
        "refresh_token",
    ]


# ── what is refused ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("wrong issuer", "issuer mismatch"),
        ("wrong resource", "does not match"),
        ("other iss", "iss mismatch"),
        ("no PKCE", "does not say that it takes PKCE"),
        ("no metadata", "does not say where to log in"),
        ("no registration", "under remote.oauth.clientId"),
        ("asks nobody", "asks for no login"),
        ("refuses the person", "access_denied"),
        ("replayed code", "invalid_grant"),
        ("bad verifier", "invalid_grant"),
    ],
)
async def test_a_server_that_does_not_keep_to_the_rules_gets_no_login(
    there: OauthServer, fault: Fault, why: str
) -> None:
    there.faults.add(fault)
    with pytest.raises(LoginFailed, match=why):
        await logged_in(there)


async def test_an_answer_to_another_login_is_refused(there: OauthServer) -> None:
    with pytest.raises(LoginFailed, match="callback is refused"):
        await logged_in(there, state="of-another-login")
    with pytest.raises(LoginFailed, match="state is another one"):
        callback_in("http://127.0.0.1/callback?code=a&state=other", state="mine")


async def test_the_callback_waits_on_after_a_wrong_answer() -> None:
    state: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with callback_address(state, 0) as address:
        here = f"http://127.0.0.1:{address.port}"
        assert await visit(f"{here}/callback?code=early&state=mine") == 404
        state.set_result("mine")
        assert await visit(f"{here}/callback?code=forged&state=other") == 400
        assert await visit(f"{here}/?code=forged&state=mine") == 404
        assert await visit(f"{here}/callback?code=right&state=mine&iss=i") == 200
        assert (await address.wait()).code == "right"


async def test_a_login_over_a_connection_that_others_can_read_is_refused() -> None:
    state: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with pytest.raises(LoginFailed, match="is not HTTPS"):
        await sign_in(
            Remote(url="http://mcp.example/mcp"),
            redirect="http://127.0.0.1/callback",
            state=state,
            show=print,
            callback=asyncio.Event().wait,  # type: ignore[arg-type]  # never asked
        )


async def test_a_foreign_server_sends_no_request_to_this_machine() -> None:
    """Its metadata say where to log in, and could name what listens here."""
    never: Any = asyncio.Event().wait
    server = Remote(url="https://mcp.example/mcp")
    provider = _Provider(server, "http://127.0.0.1/callback", never, never)
    for address in ("http://127.0.0.1:11434/as", "http://localhost/as", "https://[::1]/as"):
        with pytest.raises(LoginFailed, match="which is this machine"):
            provider._check(httpx2.Request("GET", address))
    provider._check(httpx2.Request("GET", "https://login.example/as"))


async def test_an_odd_address_is_no_answer(there: OauthServer) -> None:
    with pytest.raises(LoginFailed, match="state is another one"):
        callback_in("http://[", state="mine")
    state: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    state.set_result("mine")
    async with callback_address(state, 0) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        writer.write(b"GET //[ HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 404")
        writer.close()


async def test_a_server_that_asks_for_a_second_login_is_refused(there: OauthServer) -> None:
    state: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    state.set_result("of the first")
    with pytest.raises(LoginFailed, match="a second login"):
        await sign_in(
            remote(there),
            redirect="http://127.0.0.1/callback",
            state=state,
            show=print,
            callback=asyncio.Event().wait,  # type: ignore[arg-type]  # never asked
        )


# ── a turn never waits for a login ───────────────────────────────────────────────────────────


async def test_a_tenant_without_a_login_is_told_the_command(
    there: OauthServer, logins: Logins
) -> None:
    logins.of_tenant("local").write(await logged_in(there))
    assert (await asked(there, logins)).startswith("you are")
    told = await asked(there, logins, tenant="acme")
    assert f"it needs a login: run `{COMMAND} --tenant acme`" in told


async def test_tenants_that_share_a_server_act_each_as_their_own_person(
    there: OauthServer, logins: Logins
) -> None:
    """Also in the same moment, and after the login of one was withdrawn for good."""
    tenants = ("acme", "beta")
    tokens: dict[str, str] = {}
    for tenant in tenants:
        login = await logged_in(there)
        logins.of_tenant(tenant).write(login)
        tokens[tenant] = login.access_token
    toolset = McpToolset(McpServer(transport=remote(there), start_s=10), logins=logins)

    async def who(tenant: str) -> str:
        (tool,) = await toolset.for_tenant(tenant).tools()
        return text_of((await tool.run(call_of())).content)

    try:
        told = await asyncio.gather(*(who(each) for each in tenants * 5))
        assert told == [f"you are {tokens[each]}" for each in tenants * 5]
        there.access = {tokens["acme"]}
        there.refresh.clear()
        told = await asyncio.gather(*(who(each) for each in tenants))
    finally:
        await toolset.close()
    assert told[0] == f"you are {tokens['acme']}"
    assert f"its login is not taken any more: run `{COMMAND} --tenant beta`" in told[1]


async def test_without_a_key_the_way_to_logins_is_told(there: OauthServer) -> None:
    told = await asked(there, None)
    assert f"name a file with a key in HOLDFAST_LOGIN_KEY, and run `{COMMAND}`" in told


async def test_a_refresh_token_that_was_refused_is_not_tried_again(
    there: OauthServer, logins: Logins
) -> None:
    logins.of_tenant("local").write(await logged_in(there))
    there.access.clear()
    there.refresh.clear()
    for _ in range(2):
        assert f"its login is not taken any more: run `{COMMAND}`" in await asked(there, logins)
    assert len(there.token_requests) == 2  # the login's, and one refresh


async def test_of_two_users_of_one_login_one_refreshes_it(
    there: OauthServer, logins: Logins
) -> None:
    """A refresh token is good once: the second user would lose the login."""
    there.expires_in = 20
    logins.of_tenant("local").write(await logged_in(there))
    there.expires_in = 3600
    told = await asyncio.gather(asked(there, logins), asked(there, logins))
    assert all(each.startswith("you are access-") for each in told)
    assert len(there.token_requests) == 2


async def test_a_proxy_that_refuses_a_refresh_ends_no_login(
    there: OauthServer, logins: Logins
) -> None:
    logins.of_tenant("local").write(await logged_in(there))
    there.access.clear()
    there.faults.add("a proxy refuses")
    assert "its login is not taken any more" in await asked(there, logins)
    there.faults.clear()
    assert (await asked(there, logins)).startswith("you are access-")


async def test_a_token_endpoint_that_does_not_answer_is_not_waited_for_without_end() -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(stall, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    login = msgspec.structs.replace(LOGIN, token_endpoint=f"http://127.0.0.1:{port}/token")
    asked = refresh_request(login)
    assert set(asked.extensions["timeout"].values()) == {30.0}
    asked.extensions["timeout"] = dict.fromkeys(asked.extensions["timeout"], 0.05)
    async with server, asyncio.timeout(10), httpx2.AsyncClient(trust_env=False) as client:
        with pytest.raises(httpx2.ReadTimeout):
            await client.send(asked)
        await ended.wait()


async def test_a_logout_waits_for_a_refresh(logins: Logins) -> None:
    """The refresh would bring the login back."""
    mine = logins.of_tenant("local")
    async with mine.locked(LOGIN.server):
        ending = asyncio.create_task(_log_out(Remote(url=LOGIN.server), mine))
        await asyncio.to_thread(lambda: None)
        mine.write(LOGIN)
        assert not ending.done()
    assert await ending
    assert mine.read(LOGIN.server) is None


async def test_a_login_is_found_however_its_url_is_written(logins: Logins) -> None:
    url = "https://A.example:443/m cp"
    logins.of_tenant("local").write(msgspec.structs.replace(LOGIN, server=url))
    signed = SignedRequests(url, logins.of_tenant("local"))
    request = await anext(signed.async_auth_flow(httpx2.Request("POST", url)))
    assert request.headers["Authorization"] == "Bearer precious"


async def test_a_token_goes_to_no_other_origin(logins: Logins) -> None:
    logins.of_tenant("local").write(LOGIN)
    signed = SignedRequests(LOGIN.server, logins.of_tenant("local"))
    for url, is_sent in ((LOGIN.server, True), ("https://b.example/mcp", False)):
        request = await anext(signed.async_auth_flow(httpx2.Request("POST", url)))
        assert ("Authorization" in request.headers) == is_sent


# ── at rest ──────────────────────────────────────────────────────────────────────────────────

LOGIN = Login(
    server="https://a.example/mcp",
    issuer="https://a.example",
    token_endpoint="https://a.example/token",
    resource="https://a.example/mcp",
    client_id="c",
    access_token="precious",
)


def test_a_login_is_sealed_for_one_tenant_and_one_server(tmp_path: Path) -> None:
    logins = Logins(tmp_path, b"k" * 32)
    logins.of_tenant("acme").write(LOGIN)
    (file,) = tmp_path.iterdir()
    assert b"precious" not in file.read_bytes() and file.stat().st_mode & 0o077 == 0
    assert "precious" not in repr(LOGIN)
    assert logins.of_tenant("acme").read(LOGIN.server) == LOGIN
    assert logins.of_tenant("other").read(LOGIN.server) is None
    for tenant, server, key in (
        ("other", LOGIN.server, b"k" * 32),
        ("acme", "https://b.example/mcp", b"k" * 32),
        ("acme", LOGIN.server, b"l" * 32),
    ):
        thief = Logins(tmp_path, key).of_tenant(tenant)
        moved = thief._path(server)
        if moved != file:
            moved.write_bytes(file.read_bytes())
        assert thief.read(server) is None
    assert logins.of_tenant("acme").remove(LOGIN.server)
    assert not logins.of_tenant("acme").remove(LOGIN.server)


def test_the_key_is_the_operators(tmp_path: Path) -> None:
    assert kept_logins({}) is None
    with pytest.raises(KeyUnusable, match="No such file"):
        kept_logins({"HOLDFAST_LOGIN_KEY": str(tmp_path / "none")})
    short = tmp_path / "short"
    short.write_text("abc\n")
    with pytest.raises(KeyUnusable, match="openssl rand -hex 32"):
        kept_logins({"HOLDFAST_LOGIN_KEY": str(short)})
    key = tmp_path / "key"
    key.write_text("0" * 64)
    environment = {"HOLDFAST_LOGIN_KEY": str(key), "HOLDFAST_LOGINS": str(tmp_path / "l")}
    assert kept_logins(environment) is not None
    reserved = login_files(str(key), str(tmp_path / "l"))
    assert reserved.files == {str(key)} and reserved.trees == {str(tmp_path / "l")}
    assert os.path.isabs(next(iter(login_files("key", "").trees)))
