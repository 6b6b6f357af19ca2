"""A login at an MCP server: authorization code with PKCE, by the official SDK, and what the SDK leaves open.

The SDK discovers the metadata of the server (RFC 9728) and of its authorization server (RFC 8414), checks that both
name what they were asked for, registers a client where that is offered (RFC 7591), and checks `state` and `iss`. Here
is added:

1. A login needs metadata of an authorization server that takes PKCE with S256. No address is guessed.
2. A client is registered only where registration is offered.
3. Every request of a login goes by HTTPS; to this machine only if the server is on it, else the metadata of a foreign
   server could have requests sent to what listens here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from holdfast.tools.mcp.config import OauthClient, Remote
from holdfast.tools.mcp.login_callback import Callback, LoginFailed
from holdfast.tools.mcp.logins import Login
from holdfast.wire.headers import MCP_PROTOCOL_VERSION

# The SDK logs the whole trace of a login that fails, with what the browser came back with. `LoginFailed` tells it.
logging.getLogger("mcp.client.auth").addHandler(logging.NullHandler())
logging.getLogger("mcp.client.auth").propagate = False

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_REVISION = "2025-11-25"
_GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": _REVISION,
        "capabilities": {},
        "clientInfo": {"name": "holdfast", "version": "1"},
    },
}
_HEADERS = {
    "Accept": "application/json, text/event-stream",
    MCP_PROTOCOL_VERSION.name: _REVISION,
}


async def sign_in(
    remote: Remote,
    *,
    redirect: str,
    state: asyncio.Future[str],
    show: Callable[[str], None],
    callback: Callable[[], Awaitable[Callback]],
) -> Login:
    """Log in at a server. `show` is given the address for the browser, and `callback` what the browser came back with;
    `state` is set before. Raises LoginFailed."""
    server = httpx2.URL(remote.url)
    _check_address(server, server=server)

    async def on_redirect(address: str) -> None:
        if state.done():
            raise LoginFailed("the server asks for a second login right after the first")
        state.set_result(parse_qs(urlsplit(address).query)["state"][0])
        show(address)

    async def on_callback() -> AuthorizationCodeResult:
        found = await callback()
        return AuthorizationCodeResult(code=found.code, state=found.state, iss=found.iss)

    provider = _Provider(remote, redirect, on_redirect, on_callback)
    headers = {**remote.headers, **_HEADERS}
    try:
        async with httpx2.AsyncClient(auth=provider, timeout=30.0, trust_env=False) as client:
            asked = client.stream("POST", remote.url, json=_GREETING, headers=headers)
            async with asked as response:
                status = response.status_code
    except (OAuthFlowError, httpx2.HTTPError, ValidationError) as error:
        raise LoginFailed(str(error)[:600] or type(error).__name__) from error
    return provider.login(status)


class _Provider(OAuthClientProvider):
    """One login, by the SDK."""

    def __init__(
        self,
        remote: Remote,
        redirect: str,
        on_redirect: Callable[[str], Awaitable[None]],
        on_callback: Callable[[], Awaitable[AuthorizationCodeResult]],
    ) -> None:
        client = remote.oauth or OauthClient()
        self._client = client
        self._url = remote.url
        self._server = httpx2.URL(remote.url)
        metadata = OAuthClientMetadata(
            client_name="Holdfast",
            redirect_uris=[AnyUrl(redirect)],
            grant_types=["authorization_code", "refresh_token"],
            token_endpoint_auth_method="client_secret_post" if client.client_secret else "none",
        )
        super().__init__(
            remote.url, metadata, _NewLogin(client, redirect), on_redirect, on_callback
        )

    async def _auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The SDK's flow, with every request of its own checked before it is sent."""
        flow = super()._auth_flow(request)
        try:
            asked = await flow.__anext__()
            while True:
                if asked is not request:
                    self._check(asked)
                answer = yield asked
                asked = await flow.asend(answer)
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def _check(self, asked: httpx2.Request) -> None:
        _check_address(asked.url, server=self._server)
        if asked.method != "POST":
            return  # discovery
        metadata = self.context.oauth_metadata
        if metadata is None:
            raise LoginFailed(
                "the server does not say where to log in: it has no metadata (RFC 8414)"
            )
        is_token_request = str(asked.url) == str(metadata.token_endpoint)
        if not is_token_request and metadata.registration_endpoint is None:
            raise LoginFailed(
                f"{metadata.issuer} registers no clients: register one there by hand, and give its id at the toolset, "
                "under remote.oauth.clientId"
            )

    async def _perform_authorization_code_grant(self) -> tuple[str, str]:
        metadata = self.context.oauth_metadata
        if metadata is None:
            raise LoginFailed(
                "the server does not say where to log in: it has no metadata (RFC 8414)"
            )
        if "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise LoginFailed(f"{metadata.issuer} does not say that it takes PKCE with S256")
        _check_address(httpx2.URL(str(metadata.authorization_endpoint)), server=self._server)
        if self._client.scopes:
            self.context.client_metadata.scope = " ".join(self._client.scopes)
        known = self.context.client_info
        if self._client.client_secret and known is not None:
            # A server that does not say takes Basic alone: RFC 8414, section 2.
            methods = metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
            takes_post = "client_secret_post" in methods and "client_secret_basic" not in methods
            known.token_endpoint_auth_method = (
                "client_secret_post" if takes_post else "client_secret_basic"
            )
        return await super()._perform_authorization_code_grant()

    def login(self, status: int) -> Login:
        """What was learned. Raises LoginFailed if there are no tokens, or if the server does not take them."""
        tokens, client = self.context.current_tokens, self.context.client_info
        metadata = self.context.oauth_metadata
        if tokens is None or client is None or metadata is None:
            raise LoginFailed(f"the server asks for no login: it answered with status {status}")
        if status >= 400:
            raise LoginFailed(
                f"the server does not take the new token: it answered with status {status}"
            )
        return Login(
            server=self._url,
            issuer=str(metadata.issuer),
            token_endpoint=str(metadata.token_endpoint),
            resource=self.context.get_resource_url(),
            client_id=client.client_id,
            client_secret=client.client_secret or "",
            auth_method=client.token_endpoint_auth_method or "none",
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or "",
            expires_s=None if tokens.expires_in is None else time.time() + tokens.expires_in,
            scope=tokens.scope or "",
        )


class _NewLogin:
    """The SDK's storage for one login, which begins with nothing but a client that the file names."""

    def __init__(self, client: OauthClient, redirect: str) -> None:
        self._client: OAuthClientInformationFull | None = None
        if client.client_id:
            self._client = OAuthClientInformationFull(
                client_id=client.client_id,
                client_secret=client.client_secret or None,
                token_endpoint_auth_method="client_secret_post" if client.client_secret else "none",
                redirect_uris=[AnyUrl(redirect)],
            )

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """The provider has them, too."""

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """The provider has it, too."""


def _check_address(url: httpx2.URL, *, server: httpx2.URL) -> None:
    if url.host in _LOOPBACK and server.host not in _LOOPBACK:
        raise LoginFailed(f"{server.host} wants a login at {url.host}, which is this machine")
    if url.scheme != "https" and (url.scheme != "http" or url.host not in _LOOPBACK):
        raise LoginFailed(
            f"{url.scheme}://{url.host} is not HTTPS: a login would be read on the way"
        )
