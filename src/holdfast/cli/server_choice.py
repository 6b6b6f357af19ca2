"""Whom a command talks to: a server that runs, or one of its own over a store."""

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
    """Somebody to talk to."""

    client: Client
    model: str
    """Who answers, if nobody else is named."""
    where: str
    """Where conversations are kept, for people."""


@contextmanager
def reach(agent: str | None, at: ConversationPlace) -> Iterator[ChosenServer]:
    """An agent to talk to: of a server that runs, by its name; or else of a source, as `serve` takes it."""
    if at.server is not None:
        client = Client(at.server, key=at.key)
        yield ChosenServer(client=client, model=agent or _first(client), where=at.server)
        return
    with own_server((agent,) if agent else (), at.store) as address:
        client = Client(address)
        yield ChosenServer(client=client, model=_first(client), where=without_password(at.store))


def _first(client: Client) -> str:
    found = client.models().data
    if not found:
        raise InvalidValue("this server has no agents; name a source, or look at its log")
    return found[0].id
