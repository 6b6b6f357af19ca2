"""Signs the requests to an MCP server with a tenant's login, and refreshes the login when it expires.

1. A token is sent to the server that it was given for, and to no other origin.
2. A refresh token is sent to the token endpoint that the login was made at.
3. No login begins here: a request that needs one is answered as refused, at once, and `is_refused` says so.
"""

from __future__ import annotations

import shlex
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable
from urllib.parse import quote

import httpx2
import msgspec

from holdfast.environment import variable
from holdfast.ids import LOCAL
from holdfast.tools.mcp.logins import Login, TenantLogins

_REFRESH_S = 30.0
"""How long a token endpoint may take for each step of its answer: other users of the login wait meanwhile."""


class SignedRequests(httpx2.Auth):
    """Signs the requests to one server."""

    def __init__(
        self,
        server: str,
        logins: TenantLogins | None,
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`logins`: None if the operator keeps none."""
        self._server = server
        self._origin = _origin(httpx2.URL(server))
        self._logins = logins
        self._now_s = now_s
        self.is_refused = False
        """Whether the server has refused the last request for want of a login."""

    def way_out(self, command: str) -> str:
        """Why the server has refused, and the command that helps."""
        if self._logins is None:
            return (
                f"it needs a login, and this server keeps none: name a file with a key in {variable('login_key')}, "
                f"and run `{command}`; or give a token in the toolset's 'headers'"
            )
        whose = (
            "" if self._logins.tenant == LOCAL else f" --tenant {shlex.quote(self._logins.tenant)}"
        )
        had = self._logins.read(self._server) is not None
        why = "its login is not taken any more" if had else "it needs a login"
        return f"{why}: run `{command}{whose}`"

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        login = self._read(request)
        fresh = login is None or not login.is_stale(self._now_s())
        for attempt in ("as it is", "refreshed"):
            if login is not None and login.refresh_token and not fresh:
                refresh = self._refreshed(login)
                answer: httpx2.Response | None = None
                try:
                    while True:
                        answer = yield await refresh.asend(answer)
                except StopAsyncIteration:
                    fresh, login = True, self._read(request)
            if login is not None:
                request.headers["Authorization"] = f"Bearer {login.access_token}"
            response = yield request
            self.is_refused = response.status_code == 401
            if not self.is_refused or login is None or attempt == "refreshed":
                return
            fresh = (
                False  # it was withdrawn before its time, or its server has not said when it ends
            )

    def _read(self, request: httpx2.Request) -> Login | None:
        if self._logins is None or _origin(request.url) != self._origin:
            return None
        return self._logins.read(self._server)

    async def _refreshed(
        self, old: Login
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response | None]:
        """Refresh a login, unless another process has done so meanwhile."""
        assert self._logins is not None
        async with self._logins.locked(old.server):
            if self._logins.read(old.server) != old:
                return
            answer = yield refresh_request(old)
            assert answer is not None
            if (new := await _login_of(old, answer, self._now_s())) is not None:
                self._logins.write(new)


def refresh_request(login: Login) -> httpx2.Request:
    """The request for new tokens: RFC 6749, section 6, for the same resource (RFC 8707)."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": login.refresh_token,
        "client_id": login.client_id,
        "resource": login.resource,
    }
    headers = {}
    if login.auth_method == "client_secret_post":
        form["client_secret"] = login.client_secret
    elif login.auth_method == "client_secret_basic":
        pair = f"{quote(login.client_id, safe='')}:{quote(login.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    within = {
        "timeout": httpx2.Timeout(_REFRESH_S).as_dict()
    }  # a client adds its own to no request of others
    return httpx2.Request(
        "POST", login.token_endpoint, data=form, headers=headers, extensions=within
    )


class _Tokens(msgspec.Struct):
    """An answer of a token endpoint."""

    access_token: str
    refresh_token: str | None = None
    expires_in: float | None = None
    scope: str | None = None


async def _login_of(old: Login, answer: httpx2.Response, now_s: float) -> Login | None:
    """The login with the tokens of this answer; without its refresh token if that was refused, None if nothing is known.

    A refused refresh token is not tried again: some servers take a second try for a theft. RFC 6749 refuses with 400 or
    401; another status may come from a proxy on the way.
    """
    if answer.status_code in (400, 401):
        return msgspec.structs.replace(old, refresh_token="")
    try:
        tokens = msgspec.json.decode(await answer.aread(), type=_Tokens)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    if answer.status_code != 200 or not tokens.access_token:
        return None
    return msgspec.structs.replace(
        old,
        access_token=tokens.access_token,
        refresh_token=tokens.refresh_token or old.refresh_token,
        expires_s=None if tokens.expires_in is None else now_s + tokens.expires_in,
        scope=tokens.scope or old.scope,
    )


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
