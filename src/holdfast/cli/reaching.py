"""Whom a command talks to: a server that runs, or one of its own over a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

from holdfast.cli.private import private_server
from holdfast.client.sync import Client
from holdfast.core.codec import Value
from holdfast.errors import InvalidValue

F = TypeVar("F", bound=Callable[..., object])


def server_options(command: F) -> F:
    """`--server` and `--key`: a server in place of a store."""
    command = click.option(
        "--key",
        envvar="HOLDFAST_API_KEY",
        show_envvar=True,
        metavar="KEY",
        help="The API key that the server wants, if it does.",
    )(command)
    return click.option(
        "--server",
        envvar="HOLDFAST_SERVER",
        show_envvar=True,
        metavar="URL",
        help="A server that runs, in place of a store: http://HOST:PORT.",
    )(command)


class Reached(Value):
    """Somebody to talk to."""

    client: Client
    model: str
    """Who answers, if nobody else is named."""
    where: str
    """Where conversations are kept, for people."""


@contextmanager
def reach(
    agent: str | None, *, server: str | None, key: str | None, store: str
) -> Iterator[Reached]:
    """An agent to talk to: of a server that runs, by its name; or else of a source, as `serve` takes it."""
    if server is not None:
        client = Client(server, key=key)
        yield Reached(client=client, model=agent or _first(client), where=server)
        return
    with private_server((agent,) if agent else (), store) as address:
        client = Client(address)
        yield Reached(client=client, model=_first(client), where=store)


def _first(client: Client) -> str:
    found = client.models().data
    if not found:
        raise InvalidValue("this server has no agents; name a source, or look at its log")
    return found[0].id
