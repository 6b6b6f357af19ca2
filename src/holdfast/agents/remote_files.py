"""Agent files over HTTP, fetched without giving a foreign server a way into this network.

The URL comes from the operator, but its target (by DNS and redirects) does not: `tools/web/address_guard.py` decides
where a request may go, and `tools/web/web_client.py` sends it.
"""

from __future__ import annotations

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.core.identity import portable_key
from holdfast.tools.web.address_guard import AddressGuard
from holdfast.tools.web.address_guard import FetchFailed as FetchFailed
from holdfast.tools.web.address_guard import shown as shown
from holdfast.tools.web.web_client import WebAnswer, WebClient

_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}


class Fetched(Value):
    """The answer to a fetch. `body` is None if the file has not changed."""

    body: bytes | None
    etag: str = ""
    last_modified: str = ""


class Fetcher:
    """Fetches agent files. Keeps no connection between two fetches."""

    def __init__(
        self, guard: AddressGuard | None = None, *, timeout_s: float = limits.fetch_timeout_s
    ) -> None:
        self._web = WebClient(
            guard or AddressGuard(), bytes_max=limits.agent_file_bytes_max, timeout_s=timeout_s
        )

    async def fetch(self, url: str, *, etag: str = "", last_modified: str = "") -> Fetched:
        """Fetch a file, unless it still matches the validators. Raises FetchFailed."""
        answer = await self._web.ask(url, headers=_conditions(etag, last_modified))
        return _fetched(url, answer)


def _conditions(etag: str, last_modified: str) -> dict[str, str]:
    conditions = {"If-None-Match": etag, "If-Modified-Since": last_modified}
    return {name: value for name, value in conditions.items() if value}


def _fetched(url: str, answer: WebAnswer) -> Fetched:
    status = answer.status
    if status not in (200, 304):
        raise FetchFailed(url, f"it answers {status}", transient=status in _TRANSIENT)
    return Fetched(
        body=None if status == 304 else answer.body,
        etag=answer.headers.get("etag", "")[:1000],
        last_modified=answer.headers.get("last-modified", "")[:100],
    )


def shown_key(key: str) -> str:
    """A source's key without secrets and local paths, so that every client may see it."""
    return shown(key) if "://" in key else portable_key(key)


def source_shown(key: str, name: str | None) -> str:
    """A session's source, as every client may see it: the name that the operator gave it, else its key."""
    return name or shown_key(key)
