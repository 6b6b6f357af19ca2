"""A small web server for tests: it holds files, counts requests, and misbehaves when asked to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Web:
    """Serves what a test puts there, on a loopback port."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.handlers: dict[str, Handler] = {}
        self.requests: list[web.Request] = []
        self.status = 0
        """Answer everything with this, if it is not 0."""
        self.port = 0

    def url(self, path: str, *, host: str = "127.0.0.1", user: str = "") -> str:
        return f"http://{user}{host}:{self.port}{path}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        if self.status:
            return web.Response(status=self.status)
        if request.path in self.handlers:
            return await self.handlers[request.path](request)
        body = self.files.get(request.path)
        if body is None:
            return web.Response(status=404)
        etag = f'"{hash(body) & 0xFFFF:x}"'
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag})
        return web.Response(body=body, headers={"ETag": etag})


@asynccontextmanager
async def serving() -> AsyncIterator[Web]:
    made = Web()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.05)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        made.port = runner.addresses[0][1]
        yield made
    finally:
        await runner.cleanup()
