"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import click
from click.core import ParameterSource

from holdfast.core.codec import Value
from holdfast.environment import API_KEY, SERVER, variable
from holdfast.store.store_url import DEFAULT_URL

F = TypeVar("F", bound=Callable[..., object])


def store_option(command: F) -> F:
    return click.option(
        "--store",
        "url",
        envvar=variable("store"),
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="Which store: sqlite:///PATH or postgresql://…",
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def tenant_option(command: F) -> F:
    return click.option(
        "--tenant", metavar="NAME", help="Whose sessions; needed if the store has several tenants."
    )(command)


class ConversationPlace(Value):
    """The server, or else the store, that a command finds conversations in."""

    server: str | None
    key: str | None
    store: str
    tenant: str | None = None


def where_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--store`, `--server` and `--key`, together as `at`. The command line beats the environment."""

    @wraps(command)
    def placed(
        *args: object, url: str, server: str | None, api_key: str | None, **rest: object
    ) -> None:
        tenant = rest.pop("tenant", None)
        assert tenant is None or isinstance(tenant, str)
        given = _is_given("url"), _is_given("server")
        if given == (True, True):
            raise click.UsageError("--store and --server name two places; use one of them")
        found = None if given[0] else server
        command(
            *args, at=ConversationPlace(server=found, key=api_key, store=url, tenant=tenant), **rest
        )

    for option in (server_option, key_option):
        placed = option(placed)
    return store_option(placed)


def conversation_options(command: Callable[..., None]) -> Callable[..., None]:
    """`--tenant`, `--json` and what `where_options` has."""
    return tenant_option(json_option(where_options(command)))


def _is_given(name: str) -> bool:
    """Whether an option is on the command line, rather than from the environment."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


server_option = click.option(
    "--server",
    envvar=SERVER,
    show_envvar=True,
    metavar="URL",
    help="A running server, in place of a store: http://HOST:PORT.",
)
key_option = click.option(
    "--key",
    "api_key",
    envvar=API_KEY,
    show_envvar=True,
    metavar="KEY",
    help="The API key for the server, if it needs one.",
)
