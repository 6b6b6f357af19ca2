"""Fetching an agent file over HTTP, without becoming somebody's way into the network.

The address comes from the operator, but where it leads (DNS, redirects) does not. So:

1. Only http and https. Where an address resolves to is checked, and exactly those numbers are connected to: what a
   name means cannot change between the check and the connection.
2. Private, loopback, link-local and other special addresses are refused, in every notation, unless allowed.
3. Each redirect is a new address, checked like the first. None leads from https to http.
4. Size, time and the number of redirects are bounded. Nothing is unpacked.
5. No proxy, no cookies, no credentials but those in the given address, and those to its own server only.
   Errors tell the host and path, never the query or the user part: tokens are there.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.errors import HoldfastError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Finds the numbers that a host's name stands for."""

_EMBEDDING = (
    ipaddress.IPv6Network("64:ff9b::/96"),  # NAT64: how IPv4 looks in a network without it
    ipaddress.IPv6Network("::/96"),
)
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_SPECIAL = tuple(
    ipaddress.ip_network(each)
    for each in """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
    192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
    2001::/23 2001:db8::/32 2002::/16 3fff::/20
    """.split()
)
"""IANA's special-purpose addresses. Python's own `is_global` knows fewer of them, and others in every version."""
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


class FetchFailed(HoldfastError):
    """It could not be fetched. `transient`: the same request may succeed later, so a copy may serve until then."""

    code = "fetch_failed"

    def __init__(self, url: str, why: str, *, transient: bool) -> None:
        super().__init__(f"{shown(url)}: {why}")
        self.why = why
        self.transient = transient


class Fetched(Value):
    """What was there. `body` is None if it has not changed."""

    body: bytes | None
    etag: str = ""
    last_modified: str = ""


def shown(url: str) -> str:
    """An address as it may be shown: without its user part, query and fragment."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "a broken address"
    hidden = "?…" if parts.query else ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{port}{parts.path}{hidden}"


def is_public(address: Address) -> bool:
    """Whether this is an address of the open internet, also by what is embedded in it."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return False
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if any(address in network for network in _EMBEDDING):
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in _GLOBAL_V6:
            return False
    return not any(address in network for network in _SPECIAL)


async def resolve_by_system(host: str, port: int) -> list[str]:
    """What the system says a name stands for. Also reads `127.1` and `0x7f000001`, as browsers do."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class Fetcher:
    """Fetches agent files. Holds no connection between two of them."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        resolve: Resolve = resolve_by_system,
        timeout_s: float = limits.fetch_timeout_s,
    ) -> None:
        self._allow_private = allow_private
        self._resolve = resolve
        self._timeout_s = timeout_s

    async def fetch(self, url: str, *, etag: str = "", last_modified: str = "") -> Fetched:
        """Fetch what is there, unless it is what the validators say is known. Raises FetchFailed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(url, _conditions(etag, last_modified))
        except TimeoutError as error:
            why = f"no answer within {self._timeout_s:g} s"
            raise FetchFailed(url, why, transient=True) from error

    async def _follow(self, url: str, headers: dict[str, str]) -> Fetched:
        at, authority = url, _authority(url)
        for _ in range(limits.fetch_redirects_max + 1):
            answer = await self._get(at, headers, with_user=_authority(at) == authority)
            if isinstance(answer, Fetched):
                return answer
            at = _redirected(at, answer)
        why = f"more than {limits.fetch_redirects_max} redirects"
        raise FetchFailed(url, why, transient=False)

    async def _get(self, url: str, headers: dict[str, str], *, with_user: bool) -> Fetched | str:
        """What is at this address, or where it says to look instead."""
        resolver = _Pinned(await self.addresses(url))
        connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True)
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),
        )
        try:
            async with session:
                async with session.get(
                    url if with_user else _without_user(url),
                    headers={"Accept-Encoding": "identity", **headers},
                    allow_redirects=False,
                    max_line_size=8190,
                ) as response:
                    return await _answer(url, response)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise FetchFailed(url, _why(error), transient=True) from error

    async def addresses(self, url: str) -> list[str]:
        """The numbers that may be connected to for this address. Raises FetchFailed."""
        host, port = _host(url)
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise FetchFailed(url, "its host cannot be found", transient=True) from error
        if not found:
            raise FetchFailed(url, "its host cannot be found", transient=True)
        for text in found:
            if not self._allow_private and not _is_public_text(text):
                why = "it leads to a private or special address; allow that if it is meant"
                raise FetchFailed(url, why, transient=False)
        return found


class _Pinned(AbstractResolver):
    """Knows the addresses that were checked, and no others."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing to close."""


def _is_public_text(text: str) -> bool:
    try:
        return is_public(ipaddress.ip_address(text))
    except ValueError:
        return False


def _host(url: str) -> tuple[str, int]:
    """The host and port of an address that may be fetched. Raises FetchFailed."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise FetchFailed(url, "it is not an address", transient=False) from error
    if parts.scheme not in ("http", "https"):
        raise FetchFailed(url, "only http and https are fetched", transient=False)
    # urlsplit and the HTTP client may read a strange address differently; so strange ones are not read at all.
    if not host or not url.isascii() or not url.isprintable() or "\\" in url or " " in url:
        raise FetchFailed(url, "it is not an address", transient=False)
    if parts.netloc.count("@") > 1 or "%" in host:
        raise FetchFailed(url, "it is not an address", transient=False)
    return host, port or (443 if parts.scheme == "https" else 80)


def _conditions(etag: str, last_modified: str) -> dict[str, str]:
    conditions = {"If-None-Match": etag, "If-Modified-Since": last_modified}
    return {name: value for name, value in conditions.items() if value}


def _authority(url: str) -> tuple[str, str, int]:
    host, port = _host(url)
    return urlsplit(url).scheme, host, port


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _redirected(at: str, location: str) -> str:
    target = urljoin(at, location)
    if urlsplit(at).scheme == "https" and urlsplit(target).scheme != "https":
        raise FetchFailed(at, "it redirects from https to something else", transient=False)
    return target


async def _answer(url: str, response: aiohttp.ClientResponse) -> Fetched | str:
    status = response.status
    if status in (301, 302, 303, 307, 308):
        location = response.headers.get("Location", "")
        if not location:
            raise FetchFailed(url, "it redirects nowhere", transient=False)
        return location
    etag = response.headers.get("ETag", "")[:1000]
    last_modified = response.headers.get("Last-Modified", "")[:100]
    if status == 304:
        return Fetched(body=None, etag=etag, last_modified=last_modified)
    if status != 200:
        raise FetchFailed(url, f"it answers {status}", transient=status in _TRANSIENT)
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise FetchFailed(url, "it sends compressed data, unasked", transient=False)
    return Fetched(body=await _body(url, response), etag=etag, last_modified=last_modified)


async def _body(url: str, response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > limits.agent_file_bytes_max:
            why = f"it has more than {limits.agent_file_bytes_max} bytes"
            raise FetchFailed(url, why, transient=False)
    return bytes(body)


def _why(error: Exception) -> str:
    """What went wrong, without the words of a library that repeat the address."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return "its certificate is not accepted"
        case aiohttp.ClientConnectorError() | OSError():
            return "it cannot be connected to"
        case aiohttp.ClientPayloadError():
            return "the answer broke off"
        case _:
            return f"it does not speak HTTP as expected ({type(error).__name__})"
