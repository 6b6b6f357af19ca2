"""`holdfast connect`: prints the settings of a client for a server, after checking that the server answers."""

from __future__ import annotations

import shutil

import click

from holdfast.cli import output
from holdfast.cli.options import key_option, server_option
from holdfast.cli.setup.client_snippets import SNIPPETS, ConnectedServer
from holdfast.client.sync import Client
from holdfast.config import load_config
from holdfast.errors import InvalidValue

NO_KEY, SOME_KEY = "local", "YOUR-API-KEY"
"""What stands for the API key in a snippet: a server without keys takes any."""


@click.command(short_help="Print the settings of a client for a server.")
@click.argument("client", type=click.Choice(sorted(SNIPPETS)))
@click.option(
    "--model", metavar="NAME", help="The agent to ask first; without it, the server's first."
)
@click.option(
    "--try", "tries", is_flag=True, help="Also ask the agent something, as the client would."
)
@server_option
@key_option
def connect(
    client: str, model: str | None, tries: bool, server: str | None, api_key: str | None
) -> None:
    """Print what CLIENT needs to know to talk to a server, and check that the server answers.

    The server is asked for its models with the key that you give; the key itself is not printed.

    \b
    Examples:
      holdfast connect opencode
      holdfast connect open-webui --server https://agents.example.org --key "$KEY" --try
    """
    url = (server or _own_address()).rstrip("/")
    reached = Client(url, key=api_key)
    models = tuple(each.id for each in reached.models().data)
    if model is not None and model not in models:
        raise InvalidValue(f"{url} has no {model!r}; it has {', '.join(models) or 'no agents'}")
    if not models:
        raise InvalidValue(f"{url} has no agents; look at its log")
    ordered = (model, *(each for each in models if each != model)) if model else models
    place = ConnectedServer(
        url=url,
        models=ordered,
        key=SOME_KEY if api_key else NO_KEY,
        needs_key=bool(api_key),
        program=shutil.which("holdfast") or "holdfast",
    )
    snippet = SNIPPETS[client]
    output.say(f"{snippet.title}: {snippet.where}", err=True)
    output.say_lines(snippet.text(place))
    if snippet.note:
        output.say(snippet.note, err=True)
    if tries:
        _ask(reached, place.model)
    told = "answers, and has answered a question" if tries else "answers"
    output.say(f"checked: {url} {told}; models: {', '.join(ordered)}", err=True)


def _ask(client: Client, model: str) -> None:
    """Ask an agent something in no conversation, so that nothing is stored. Raises what the server answers."""
    with client.ask(model, "Say hello.") as answer:
        for _ in answer:
            pass


def _own_address() -> str:
    """The address of a server that runs here with the default settings."""
    listen = load_config({}, {}, ()).listen
    return f"http://{listen.host}:{listen.port}"
