"""Sends web requests for tools, guarded and bounded.

1. Every address, the first and those of redirects, passes the guard. No redirect leads from https to http.
2. Size, time and the number of redirects are bounded. Nothing is decompressed.
3. No proxy, no cookies, no credentials but the given ones, and those go to the first server only.
4. Errors show the host and path, never the query or the user part.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from string import punctuation
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urljoin, urlsplit

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.libraries import aiohttp, yarl
from holdfast.observe.events import trace_headers
from holdfast.tools.web.address_guard import AddressGuard, FetchFailed, ascii_address, host_of

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver, ResolveResult

_MOVED = (301, 302, 303, 307, 308)
_FOLLOWED = ("GET", "HEAD")


class WebAnswer(Value):
    """A server's answer."""

    url: str
    """The URL after all redirects."""
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    cut: bool = False
    """The body was longer, and was cut."""


class WebClient:
    """Sends requests. Keeps no connection between two requests."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        bytes_max: int,
        timeout_s: float = limits.fetch_timeout_s,
        cuts: bool = False,
        quoted: bool = False,
    ) -> None:
        """`cuts`: a body longer than `bytes_max` is cut, instead of being an error.
        `quoted`: URLs are sent exactly as written; otherwise needless quoting is removed.
        """
        self._guard = guard
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._cuts = cuts
        self._quoted = quoted

    async def ask(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        credentials: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = 0.0,
    ) -> WebAnswer:
        """The answer; redirects are followed if the request only reads. Raises FetchFailed.

        `credentials` are headers for the first server alone.
        """
        patience_s = timeout_s or self._timeout_s
        try:
            async with asyncio.timeout(patience_s):
                return await self._follow(url, method, headers or {}, credentials or {}, body)
        except TimeoutError as error:
            raise FetchFailed(url, f"no answer within {patience_s:g} s", transient=True) from error

    async def _follow(
        self,
        url: str,
        method: str,
        headers: Mapping[str, str],
        credentials: Mapping[str, str],
        body: bytes | None,
    ) -> WebAnswer:
        at, authority = url, _authority(url)
        for _ in range(limits.fetch_redirects_max + 1):
            if _authority(at) == authority:
                answer = await self._ask_once(at, method, {**headers, **credentials}, body)
            else:
                answer = await self._ask_once(_without_user(at), method, headers, body)
            if answer.status not in _MOVED or method not in _FOLLOWED:
                return answer
            at = _redirected(at, answer.headers.get("location", ""))
        why = f"more than {limits.fetch_redirects_max} redirects"
        raise FetchFailed(url, why, transient=False)

    async def _ask_once(
        self, url: str, method: str, headers: Mapping[str, str], body: bytes | None
    ) -> WebAnswer:
        resolver = _Pinned(await self._guard.addresses(url))
        connector = aiohttp.TCPConnector(
            resolver=cast("AbstractResolver", resolver), use_dns_cache=False, force_close=True
        )
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),
        )
        try:
            async with session:
                async with session.request(
                    method,
                    as_written(url) if self._quoted else url,
                    headers={"Accept-Encoding": "identity", **trace_headers(), **headers},
                    data=body,
                    allow_redirects=False,
                    max_line_size=8190,
                ) as response:
                    return await self._answer(url, response)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise FetchFailed(url, _why(error), transient=True) from error

    async def _answer(self, url: str, response: aiohttp.ClientResponse) -> WebAnswer:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if response.status in _MOVED:
            return WebAnswer(url=url, status=response.status, headers=headers, body=b"")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise FetchFailed(url, "it sends compressed data, unasked", transient=False)
        body = bytearray()
        async for chunk in response.content.iter_chunked(64 * 1024):
            body += chunk
            if len(body) > self._bytes_max and not self._cuts:
                why = f"it has more than {self._bytes_max} bytes"
                raise FetchFailed(url, why, transient=False)
            if len(body) > self._bytes_max:
                break
        return WebAnswer(
            url=url,
            status=response.status,
            headers=headers,
            body=bytes(body[: self._bytes_max]),
            cut=len(body) > self._bytes_max,
        )


class _Pinned:
    """A resolver for aiohttp that knows only the addresses that were checked."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": socket.IPPROTO_TCP,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing to close."""


def as_written(url: str) -> yarl.URL:
    """A URL whose path and query stay as they are; only characters that no request may hold are quoted."""
    parts = urlsplit(url)
    return yarl.URL.build(
        scheme=parts.scheme,
        authority=yarl.URL(url).raw_authority,
        path=quote(parts.path, safe=punctuation) or "/",
        query_string=quote(parts.query, safe=punctuation),
        encoded=True,
    )


def _authority(url: str) -> tuple[str, str, int]:
    host, port = host_of(url)
    return urlsplit(url).scheme, host, port


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _redirected(at: str, location: str) -> str:
    if not location:
        raise FetchFailed(at, "it redirects nowhere", transient=False)
    try:
        target = ascii_address(urljoin(at, location))
        is_https = urlsplit(target).scheme == "https"
    except ValueError as error:
        raise FetchFailed(at, "it redirects to no address", transient=False) from error
    if urlsplit(at).scheme == "https" and not is_https:
        raise FetchFailed(at, "it redirects from https to something else", transient=False)
    return target


def _why(error: Exception) -> str:
    """The error's message, without library texts that repeat the URL."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return "its certificate is not accepted"
        case aiohttp.ClientConnectorError() | OSError():
            return "it cannot be connected to"
        case aiohttp.ClientPayloadError():
            return "the answer broke off"
        case _:
            return f"it does not speak HTTP as expected ({type(error).__name__})"
