"""An MCP server and its authorization server on loopback, which speak OAuth as the RFCs say, or as `faults` says."""

from __future__ import annotations

import hashlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Literal, TypeAlias
from urllib.parse import parse_qs, quote, urlsplit

from aiohttp import ClientSession, web

Fault: TypeAlias = Literal[
    "wrong issuer",
    "wrong resource",
    "other iss",
    "no PKCE",
    "no metadata",
    "no registration",
    "asks nobody",
    "refuses the person",
    "replayed code",
    "bad verifier",
    "a proxy refuses",
]


class OauthServer:
    """Both servers, and a browser whose person always agrees."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.faults: set[Fault] = set()
        self.registered: list[dict[str, object]] = []
        self.token_requests: list[dict[str, str]] = []
        self.expires_in: int | None = 3600
        self.access: set[str] = set()
        """Access tokens that the MCP server takes."""
        self.refresh: set[str] = set()
        self.secrets: dict[str, str] = {}
        """Clients that were registered by hand, and their secrets."""
        self.methods: list[str] | None = None
        """How a client may show its secret; None: unsaid, which means Basic alone (RFC 8414)."""
        self._codes: dict[str, dict[str, str]] = {}
        self._numbers = count(1)

    # ── the MCP server ──

    async def mcp(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.access and "asks nobody" not in self.faults:
            metadata = f"{self.url}/.well-known/oauth-protected-resource/mcp"
            told = {"WWW-Authenticate": f'Bearer resource_metadata="{metadata}"'}
            return web.Response(status=401, headers=told)
        if request.method != "POST":
            return web.Response(status=405)
        asked = await request.json()
        match asked["method"]:
            case "initialize":
                result: dict[str, object] = {
                    "protocolVersion": asked["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "vault", "version": "1"},
                }
            case "tools/list":
                tool = {"name": "whoami", "inputSchema": {"type": "object"}}
                result = {"tools": [tool]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": f"you are {token}"}]}
            case _:
                return web.Response(status=202)
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    async def resource(self, _: web.Request) -> web.Response:
        named = (
            "https://other.example/mcp" if "wrong resource" in self.faults else f"{self.url}/mcp"
        )
        return web.json_response({"resource": named, "authorization_servers": [f"{self.url}/as"]})

    # ── the authorization server ──

    async def metadata(self, _: web.Request) -> web.Response:
        if "no metadata" in self.faults:
            return web.Response(status=404)
        issuer = "https://other.example/as" if "wrong issuer" in self.faults else f"{self.url}/as"
        said: dict[str, object] = {
            "issuer": issuer,
            "authorization_endpoint": f"{self.url}/as/authorize",
            "token_endpoint": f"{self.url}/as/token",
            "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": True,
        }
        if self.methods is not None:
            said["token_endpoint_auth_methods_supported"] = self.methods
        if "no PKCE" not in self.faults:
            said["code_challenge_methods_supported"] = ["S256"]
        if "no registration" not in self.faults:
            said["registration_endpoint"] = f"{self.url}/as/register"
        return web.json_response(said)

    async def register(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.registered.append(asked)
        return web.json_response(
            {**asked, "client_id": f"client {next(self._numbers)}"}, status=201
        )

    async def token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.token_requests.append(form)
        if "a proxy refuses" in self.faults:
            return web.Response(status=403)
        if not self._is_client(form, request.headers.get("Authorization", "")):
            return web.json_response({"error": "invalid_client"}, status=401)
        if form.get("resource") != f"{self.url}/mcp" or not self._is_granted(form):
            return web.json_response({"error": "invalid_grant"}, status=400)
        number = next(self._numbers)
        access, refresh = f"access-{number}", f"refresh-{number}"
        self.access.add(access)
        self.refresh.add(refresh)
        told: dict[str, object] = {
            "access_token": access,
            "refresh_token": refresh,
            "token_type": "Bearer",
        }
        if self.expires_in is not None:
            told["expires_in"] = self.expires_in
        return web.json_response(told)

    def _is_client(self, form: dict[str, str], header: str) -> bool:
        """Whether the client shows its secret in a way that this server takes: RFC 6749, section 2.3.1."""
        client = form.get("client_id", "")
        secret = self.secrets.get(client)
        if secret is None:
            return not header
        pair = b64encode(f"{quote(client, safe='')}:{quote(secret, safe='')}".encode()).decode()
        shown = {
            "client_secret_basic": header == f"Basic {pair}",
            "client_secret_post": form.get("client_secret") == secret,
        }
        used = [method for method, is_right in shown.items() if is_right]
        return len(used) == 1 and used[0] in (self.methods or ["client_secret_basic"])

    def _is_granted(self, form: dict[str, str]) -> bool:
        """Whether a code or a refresh token is good; each is good once."""
        if form["grant_type"] == "refresh_token":
            used = form["refresh_token"] in self.refresh
            self.refresh.discard(form["refresh_token"])
            return used
        asked = self._codes.pop(form["code"], None)
        if asked is None or "replayed code" in self.faults:
            return False
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = urlsafe_b64encode(digest).decode().rstrip("=")
        matches = challenge == asked["code_challenge"] and "bad verifier" not in self.faults
        return matches and form["redirect_uri"] == asked["redirect_uri"]

    # ── the browser ──

    def agreed(self, address: str, **changed: str) -> str:
        """The address that a browser is sent to after its person has agreed at this one; some of it `changed`."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert asked["code_challenge_method"] == "S256"
        assert asked["resource"] == f"{self.url}/mcp"
        code = f"code-{next(self._numbers)}"
        self._codes[code] = asked
        said = {"code": code, "state": asked["state"], "iss": f"{self.url}/as"}
        if "other iss" in self.faults:
            said["iss"] = "https://other.example/as"
        if "refuses the person" in self.faults:
            said = {"error": "access_denied", "state": asked["state"], "iss": said["iss"]}
        query = "&".join(f"{name}={value}" for name, value in {**said, **changed}.items())
        return f"{asked['redirect_uri']}?{query}"


@asynccontextmanager
async def oauth_server() -> AsyncIterator[OauthServer]:
    """Both servers, on a port of their own."""
    application = web.Application()
    runner = web.AppRunner(application)
    here = OauthServer("")
    application.add_routes(
        [
            web.route("*", "/mcp", here.mcp),
            web.get("/.well-known/oauth-protected-resource/mcp", here.resource),
            web.get("/.well-known/oauth-authorization-server/as", here.metadata),
            web.post("/as/register", here.register),
            web.post("/as/token", here.token),
        ]
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    here.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield here
    finally:
        await runner.cleanup()


async def visit(address: str) -> int:
    """The status that a browser gets at this address."""
    async with ClientSession() as browser, browser.get(address) as answer:
        return answer.status
