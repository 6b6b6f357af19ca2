"""The origin guard: it keeps a strange web page in a user's browser from using the user's own server.

A page can make a browser send requests to loopback, and a host name that the page's owner points there makes them look
like requests to the page's own site. So the host that a request names must be one of ours, and a request with an
`Origin` must come from a page of ours, or from an origin that the operator has allowed (CORS, which is off by default).
For pictures, scripts, forms and frames a page can leave out its origin, but the browser itself says whether another
site made it send the request (`Sec-Fetch-Site`). Such a request is refused unless pages of every origin are allowed.
Routes without a key may still be opened by a link, which is how users come to the console.

What a proxy says about where a request comes from counts only if the operator has named that proxy: every client can
write `X-Forwarded-For`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv6Address
from urllib.parse import urlsplit

from holdfast.environment import variable
from holdfast.server.http.exchange import Exchange
from holdfast.wire.headers import EXPOSED, NAMES, allowed
from holdfast.wire.problems import Refused, bad_request, permanent


class OriginGuard:
    """Checks where requests come from."""

    def __init__(
        self,
        hosts: frozenset[str] | None = None,
        *,
        origins: frozenset[str] = frozenset(),
        proxies: frozenset[str] = frozenset(),
        names: tuple[str, ...] = NAMES,
    ) -> None:
        """`hosts` are the host names of this server; None if they are not known, as behind a proxy.
        `origins` are the origins whose pages may use this server besides its own, or `*`.
        `names` are the headers that name a conversation.
        """
        self._hosts = hosts
        self._origins = origins
        self._proxies = proxies
        self._names = names

    def check(self, exchange: Exchange) -> None:
        """Raise Refused: 403 for a request that names another host, or that a strange page has made; 400 for
        one that names no host."""
        addressed = self._addressed(exchange)
        name = _host_name(addressed or "")
        if name is None or (addressed is None and exchange.http_version != "1.0"):
            raise bad_request(
                "invalid_host", f"the name of a host, and perhaps a port, not {addressed!r:.100}"
            )
        # Every browser names a host: a request without one is no page's.
        if self._hosts is not None and addressed is not None and name not in self._hosts:
            raise _refused(
                "host_not_allowed",
                f"this server does not go by the name {addressed!r:.100}; "
                f"if it should, start it with {variable('allowed_hosts')}",
            )
        origin = exchange.headers.get("origin")
        if origin is None:
            self._refuse_other_sites(exchange)
        elif origin.lower() in self._origins or "*" in self._origins:
            exchange.about["access-control-allow-origin"] = origin
            exchange.about["access-control-expose-headers"] = EXPOSED
            exchange.about["vary"] = "origin"
        elif not addressed or _netloc(origin) != addressed.lower():
            raise _refused(
                "origin_not_allowed",
                f"pages of {origin[:100]!r} may not use this server; if they should, start it with "
                f"{variable('cors_origins')}",
            )

    def check_open(self, exchange: Exchange) -> None:
        """The same for routes without a key: another site may link to them, and do nothing else."""
        if not _is_link(exchange):
            self._refuse_other_sites(exchange)

    def _refuse_other_sites(self, exchange: Exchange) -> None:
        allowed = (
            "*" in self._origins or exchange.headers.get("origin", "").lower() in self._origins
        )
        if exchange.headers.get("sec-fetch-site") == "cross-site" and not allowed:
            raise _refused(
                "origin_not_allowed",
                "a page of another site may not use this server; if pages of some origins should, start it with "
                f"{variable('cors_origins')}",
            )

    def preflight(self, methods: tuple[str, ...]) -> Mapping[str, str]:
        """The headers that answer a browser's preflight request for an allowed page."""
        return {
            "access-control-allow-methods": ", ".join(methods),
            "access-control-allow-headers": allowed(self._names),
            "access-control-max-age": "600",
        }

    def base_url(self, exchange: Exchange) -> str:
        """The URL by which the client has reached this server. Only after `check`."""
        scheme = self._forwarded(exchange, "x-forwarded-proto") or exchange.scheme
        host = self._addressed(exchange) or ""
        return f"{'https' if scheme == 'https' else 'http'}://{host}"

    def client_of(self, exchange: Exchange) -> str:
        """The client's address, as far as the operator's proxies vouch for it."""
        told = self._forwarded(exchange, "x-forwarded-for")
        # From the right: each proxy appends the address that it got the request from. The first address that is no
        # proxy of ours is the client's; a client may have made up all that stands before it.
        for address in reversed([each.strip() for each in told.split(",") if each.strip()]):
            if address not in self._proxies:
                return address[:64]
        return exchange.peer

    def _addressed(self, exchange: Exchange) -> str | None:
        """The host that a request names, with its port; None if it names none."""
        return self._forwarded(exchange, "x-forwarded-host") or exchange.headers.get("host")

    def _forwarded(self, exchange: Exchange, name: str) -> str:
        return exchange.headers.get(name, "") if exchange.peer in self._proxies else ""


def is_preflight(exchange: Exchange) -> bool:
    """Whether this is a CORS preflight request: a browser asks whether a page may send the real one."""
    asks = "access-control-request-method" in exchange.headers
    return exchange.method == "OPTIONS" and asks and "origin" in exchange.headers


def _is_link(exchange: Exchange) -> bool:
    """Whether a user opens this as a page of its own: not in a frame, and not by sending a form."""
    said = exchange.headers
    to_a_page = (
        said.get("sec-fetch-mode") == "navigate" and said.get("sec-fetch-dest") == "document"
    )
    return exchange.method == "GET" and to_a_page


_HOST = re.compile(
    r"(?:\[([0-9a-f:.]+)\]|([0-9a-z_](?:[0-9a-z_.-]{0,253}[0-9a-z_.])?))(?::(\d{0,5}))?"
)


def _host_name(addressed: str) -> str | None:
    """The name in `name:port`, in lower case; empty for an empty text, None if it is malformed.

    Nothing is read leniently: if a proxy, a cache or a browser reads another name than we do, one of the checks fails.
    """
    if not addressed:
        return ""
    found = _HOST.fullmatch(addressed.lower())
    if found is None or int(found[3] or 0) > 65535:
        return None
    if found[1] is None:
        return found[2]
    try:
        return str(IPv6Address(found[1]))
    except ValueError:
        return None


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _refused(code: str, message: str) -> Refused:
    return Refused(permanent(403, code, message, kind="permission_error"))
