"""The table of providers, and the page that people read instead of it."""

from __future__ import annotations

import re

import pytest

from holdfast.models.servers import SERVERS, ProviderServer
from tests import repository

PAGE = (repository.ROOT / "docs/guides/models.md").read_text(encoding="utf-8")
ROWS = dict(reversed(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", PAGE, re.MULTILINE)))
"""The first row of each name: tables after the first one say other things of the same providers."""


@pytest.mark.parametrize(("name", "server"), SERVERS.items(), ids=SERVERS)
def test_the_guide_names_every_provider_and_its_keys(name: str, server: ProviderServer) -> None:
    assert re.findall(r"`([A-Z_]+)`", ROWS[name]) == list(server.token_keys)
    words = {"chat": "chat completions", "anthropic": "Messages", "google": "Gemini"}
    assert words[server.api] in ROWS[name]


@pytest.mark.parametrize(("name", "server"), SERVERS.items(), ids=SERVERS)
def test_keys_travel_encrypted(name: str, server: ProviderServer) -> None:
    """Who wants a key is asked over TLS; who has no key is on this machine."""
    if server.token_keys:
        assert not server.base_url or server.base_url.startswith("https://")
    else:
        assert server.base_url.startswith("http://127.0.0.1:")
    assert not server.base_url.endswith("/")
