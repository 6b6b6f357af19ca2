"""`/`: the console's files. Every client gets the same files; the page asks `/api`, with a key, for what it shows.

1. The page runs our scripts and nothing else: no inline script or style, no other host, no frame, no form that
   leaves, and no way to turn a string into markup or code (trusted types, of which there are none).
2. A file is sent as gzip if the browser accepts it, and not at all if the browser has it already.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from holdfast.console import ConsoleFile, Files, load
from holdfast.server.http.routing import HttpCall, Route
from holdfast.wire.problems import not_found

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""`blob:` is for pictures that users have sent: bytes of a few known types, put there by our own script."""

HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "vary": "accept-encoding",
}

ALWAYS_ASK = "no-cache"
NEVER_ASK = "public, max-age=31536000, immutable"


class ConsoleFiles:
    """The endpoints. The files are read with the first request for one: many servers never show the console."""

    @cached_property
    def _files(self) -> Files:
        return load()

    @Route("GET /", None)
    async def page(self, call: HttpCall) -> None:
        """The [console](../guides/console.md)."""
        await _send(call, self._files.page, ALWAYS_ASK)

    @Route("GET /console/{build}/{file...}", None)
    async def file(self, call: HttpCall) -> None:
        """Its files.

        Of the build that the page named, or, while another version is rolled out, of this one.
        """
        build, name = call.names
        found = self._files.others.get(name)
        if found is None:
            raise not_found(
                "unknown_url", f"the console has no file {name[:100]!r}; load the page anew"
            )
        await _send(call, found, NEVER_ASK if build == self._files.build else ALWAYS_ASK)


async def _send(call: HttpCall, file: ConsoleFile, caching: str) -> None:
    exchange = call.exchange
    headers = {**HEADERS, "etag": file.etag, "cache-control": caching}
    if file.etag in exchange.headers.get("if-none-match", ""):
        await exchange.answer(304, b"", headers=headers, media_type=file.media_type)
        return
    body = file.plain
    if "gzip" in exchange.headers.get("accept-encoding", ""):
        body, headers["content-encoding"] = file.squeezed, "gzip"
    await exchange.answer(200, body, headers=headers, media_type=file.media_type)
