"""`holdfast status`: what goes on in all conversations, and what wants a person."""

from __future__ import annotations

import click

from holdfast.cli import output
from holdfast.cli.commands.turns import show_listed
from holdfast.cli.options import ConversationPlace, json_option, tenant_option, where_options
from holdfast.cli.session_backend import open_backend
from holdfast.core.codec import encode
from holdfast.server.api.turn_lists import ListedState

HEADS: dict[ListedState, str] = {
    "open": "open: `holdfast turns cancel TURN` stops one",
    "waiting": "wait for a person: `holdfast approvals list` shows the calls",
    "unfinished": "broke off: `holdfast turns continue TURN` goes on with one",
    "failed": "failed in the last week: `holdfast turns show TURN` says why",
}
"""What is told of each state, and what can be done about it."""


@click.command()
@tenant_option
@json_option
@where_options
def status(as_json: bool, at: ConversationPlace) -> None:
    """See what goes on in all conversations: turns that run, wait for a person, broke off, or failed.

    \b
    Examples:
      holdfast status
      holdfast status --server http://127.0.0.1:8484
    """
    with open_backend(at) as here:
        found = {state: here.listed_turns(state=state).turns for state in HEADS}
    if as_json:
        output.give(encode(found))
        return
    for state, turns in found.items():
        output.say(f"{len(turns)} {HEADS[state] if turns else state}")
        if turns:
            show_listed(turns)
