"""Who may talk to us from where: what keeps a web page in somebody's browser from using their own server.

A page can make a browser send requests to loopback, and a name that its owner points there makes them look like
its own. So the name that a request is addressed to must be one of ours, and whoever says that it comes from a
page must come from a page of ours.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast.server.exchange import Exchange
from holdfast.wire.problems import Problem, Refused


class Guard:
    """Checks where requests come from."""

    def __init__(self, hosts: frozenset[str] | None = None) -> None:
        """`hosts` are the names that we go by; None if nobody knows them, as behind a proxy."""
        self._hosts = hosts

    def check(self, exchange: Exchange) -> None:
        """Raise Refused (403) for a request that is not meant for us, or that a strange page has made."""
        addressed = exchange.headers.get("host", "")
        if self._hosts is not None and _name(addressed) not in self._hosts:
            raise _refused(
                "host_not_allowed",
                f"this server does not go by the name {addressed[:100]!r}; "
                "if it should, start it with HOLDFAST_ALLOWED_HOSTS",
            )
        origin = exchange.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != addressed.lower():
            raise _refused(
                "origin_not_allowed", f"pages of {origin[:100]!r} may not use this server"
            )


def _name(addressed: str) -> str:
    try:
        return (urlsplit(f"//{addressed}").hostname or "").lower()
    except ValueError:
        return ""


def _refused(code: str, message: str) -> Refused:
    return Refused(
        Problem(status=403, code=code, message=message, kind="permission_error", should_retry=False)
    )
