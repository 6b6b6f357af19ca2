"""Decides which web addresses a tool may request, so that no model or web server gets into the private network.

The model or a web server chooses where an address leads (its text, DNS, redirects). So:

1. Only http and https, and only allowed ports.
2. A name is resolved once, and the connection goes to exactly the IP addresses that were checked: the name's meaning
   cannot change between the check and the connection.
3. Private, loopback, link-local and other special addresses are refused, in every notation, unless allowed. A number
   in an unusual notation (`2130706433`, `0x7f.1`, `0177.0.0.1`) is always refused: another parser
   might take it for a different address.
4. Messages show an address without its query and user part: these hold tokens.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias
from urllib.parse import quote, urlsplit

from holdfast.core.codec import Value
from holdfast.errors import HoldfastError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a host name to its IP addresses."""

WEB_PORTS = frozenset({80, 443, 8080, 8443})

_EMBEDDING = (
    ipaddress.IPv6Network("64:ff9b::/96"),  # NAT64: an IPv4 address in an IPv6-only network
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
"""IANA's special-purpose addresses. Python's `is_global` knows fewer of them, and changes between versions."""
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*", re.ASCII)


class FetchFailed(HoldfastError):
    """The request failed. `transient`: it may succeed later, so a stored copy may serve until then."""

    code = "fetch_failed"

    def __init__(self, url: str, why: str, *, transient: bool) -> None:
        super().__init__(f"{shown(url)}: {why}")
        self.why = why
        self.transient = transient


class Domains(Value):
    """The hosts that may be requested.

    A domain includes all of its subdomains; `.example.com` and `*.example.com` are the subdomains alone, and
    `10.0.0.0/8` is every address in that network.
    """

    allowed: tuple[str, ...] = ()
    """If not empty, only these domains."""
    blocked: tuple[str, ...] = ()

    def refuse(self, host: str) -> str:
        """Why this host is refused; empty if it is allowed."""
        if _is_below(host, self.blocked):
            return "its domain is blocked"
        if self.allowed and not _is_below(host, self.allowed):
            return f"only these domains are allowed: {', '.join(self.allowed)}"
        return ""


class AddressGuard:
    """Decides where a request may go."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        resolve: Resolve | None = None,
        ports: Collection[int] = (),
        domains: Domains = Domains(),  # noqa: B008
    ) -> None:
        """`ports`: if given, only these."""
        self._allow_private = allow_private
        self._resolve = resolve or resolve_by_system
        self._ports = frozenset(ports)
        self._domains = domains

    async def addresses(self, url: str) -> list[str]:
        """The IP addresses that a request for this URL may connect to. Raises FetchFailed."""
        host, port = host_of(url)
        if why := self._domains.refuse(host):
            raise FetchFailed(url, why, transient=False)
        if self._ports and port not in self._ports:
            why = f"only these ports are allowed: {', '.join(map(str, sorted(self._ports)))}"
            raise FetchFailed(url, why, transient=False)
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


def shown(url: str) -> str:
    """A URL as messages may show it: without its user part, query and fragment."""
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
    """Whether this is an address of the public internet, and so is any address embedded in it."""
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


def host_of(url: str) -> tuple[str, int]:
    """The host and port of a URL that may be fetched. Raises FetchFailed."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise FetchFailed(url, "it is not an address", transient=False) from error
    if parts.scheme not in ("http", "https"):
        raise FetchFailed(url, "only http and https are fetched", transient=False)
    # urlsplit and the HTTP client may parse a strange URL differently; so strange URLs are refused.
    if not host or not url.isascii() or not url.isprintable() or "\\" in url or " " in url:
        raise FetchFailed(url, "it is not an address", transient=False)
    if parts.netloc.count("@") > 1 or "%" in host:
        raise FetchFailed(url, "it is not an address", transient=False)
    if _is_odd_number(host):
        why = "its host is a number in an unusual form; write it as 93.184.216.34"
        raise FetchFailed(url, why, transient=False)
    return host, port or (443 if parts.scheme == "https" else 80)


def ascii_address(url: str) -> str:
    """The same address in ASCII, as it is sent: names in their IDNA form, other characters as UTF-8 in percents.

    Raises FetchFailed for a name that has no such form.
    """
    if url.isascii():
        return url
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode()
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError as error:  # a UnicodeError, too
        raise FetchFailed(url, "it is not an address", transient=False) from error
    user = f"{quote(parts.netloc.rpartition('@')[0], safe=_KEPT)}@" if "@" in parts.netloc else ""
    return parts._replace(
        netloc=f"{user}{f'[{host}]' if ':' in host else host}{port}",
        path=quote(parts.path, safe=_KEPT),
        query=quote(parts.query, safe=_KEPT),
        fragment="",
    ).geturl()


_KEPT = "/%:@!$&'()*+,;=~?"
"""Characters that mean something in an address, or are in percents already."""


async def resolve_by_system(host: str, port: int) -> list[str]:
    """The IP addresses of a host, by the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def _is_odd_number(host: str) -> bool:
    """Whether a host ends in a number, as no name does, but is not a plain IPv4 address."""
    if ":" in host or _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]) is None:
        return False
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return True
    return False


def domain_problem(domain: str) -> str:
    """Why this names no hosts; empty if it does."""
    if "/" in domain:
        return "" if _network(domain) else "this is no network: 10.0.0.0/8"
    return "expected a host, or '*.host'" if "*" in domain.removeprefix("*.") else ""


def _is_below(host: str, domains: tuple[str, ...]) -> bool:
    name = host.rstrip(".").lower()
    return any(_is_one_of(name, each.strip().rstrip(".").lower()) for each in domains)


def _is_one_of(name: str, domain: str) -> bool:
    if "/" in domain:
        return _is_in(name, _network(domain))
    if domain.startswith((".", "*.")):
        return name.endswith(domain.removeprefix("*"))
    return name == domain or name.endswith(f".{domain}")


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        return None


def _is_in(host: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network | None) -> bool:
    try:
        return network is not None and ipaddress.ip_address(host.strip("[]")) in network
    except ValueError:
        return False


def _is_public_text(text: str) -> bool:
    try:
        return is_public(ipaddress.ip_address(text))
    except ValueError:
        return False
