"""A server of one's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.private_server import private_server
from holdfast.client.address import parse_address
from holdfast.client.events import AnswerFinished
from holdfast.client.sync import Client
from holdfast.errors import HoldfastError, ServerUnreachable


def test_it_is_there_while_it_is_needed_and_for_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_LISTEN", "0.0.0.0:80")
    monkeypatch.setenv("HOLDFAST_AUTH", "required")
    monkeypatch.setenv("HOLDFAST_TLS_CERT", "/nowhere")
    with private_server((), "memory:") as address:
        client = Client(address)
        folder = Path(parse_address(address).socket).parent
        assert folder.stat().st_mode & 0o077 == 0
        with client.ask("demo", "my name is Ada", session="a") as answer:
            assert isinstance(list(answer)[-1], AnswerFinished)
        assert client.session("a").version == 1
    assert not folder.exists()
    with pytest.raises(ServerUnreachable):
        client.session("a")


@pytest.mark.parametrize(
    ("sources", "store"), [(("nobody.yaml",), "memory:"), ((), "sqlite:///no/such/folder/x.db")]
)
def test_what_keeps_it_from_starting_is_raised(sources: tuple[str, ...], store: str) -> None:
    with pytest.raises(HoldfastError), private_server(sources, store):
        pytest.fail("it has started")
