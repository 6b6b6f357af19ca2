"""The server and the agent that a command talks to: a running server, or a private one over a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.cli import own_server
from holdfast.cli.options import ConversationPlace
from holdfast.client.sync import Client
from holdfast.core.codec import Value
from holdfast.errors import InvalidValue
from holdfast.store.store_url import without_password


class ChosenServer(Value):
    client: Client
    address: str
    """Where the server is, for other clients."""
    model: str
    """The agent that a request asks for."""
    where: str
    """The server or store with the conversations, to be shown to people."""


@contextmanager
def reach(agent: str | None, at: ConversationPlace) -> Iterator[ChosenServer]:
    """Connect to an agent: by its name on a running server, or else from a source as `serve` takes it."""
    if at.server is not None:
        client = Client(at.server, key=at.key)
        yield ChosenServer(
            client=client,
            address=at.server,
            model=agent or _first(client),
            where=at.server,
        )
        return
    with own_server((agent,) if agent else (), at.store) as address:
        client = Client(address)
        yield ChosenServer(
            client=client,
            address=address,
            model=_first(client),
            where=without_password(at.store),
        )


def _first(client: Client) -> str:
    found = client.models().data
    if not found:
        raise InvalidValue("this server has no agents; name a source, or look at its log")
    return found[0].id
