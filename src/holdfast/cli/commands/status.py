"""`holdfast status`: what goes on in all conversations, and what wants a person."""

from __future__ import annotations

import click

from holdfast.cli import output
from holdfast.cli.commands.turns import show_listed
from holdfast.cli.options import ConversationPlace, conversation_options
from holdfast.cli.session_backend import SessionBackend, open_backends
from holdfast.core.codec import encode
from holdfast.server.api.turn_lists import ListedState
from holdfast.wire.api import objects as api

HEADS: dict[ListedState, str] = {
    "open": "open: `holdfast turns cancel TURN` stops one",
    "waiting": "waiting for a person: `holdfast approvals list` shows the calls",
    "unfinished": "broke off: `holdfast turns continue TURN` goes on with one",
    "failed": "failed in the last week: `holdfast turns show TURN` says why",
}
"""What is told of each state, and what can be done about it."""


@click.command()
@conversation_options
def status(as_json: bool, at: ConversationPlace) -> None:
    """See what goes on in all conversations: turns that run, wait for a person, broke off, or failed.

    On a store with several tenants these are all of them, one after the other; a server's key shows its own.

    \b
    Examples:
      holdfast status
      holdfast status --server http://127.0.0.1:8484
    """
    with open_backends(at) as backends:
        found = {tenant: _listed(here) for tenant, here in backends.items()}
    if as_json:
        (only, *others) = found.values()
        output.give(encode(found if others else only))
        return
    for tenant, by_state in found.items():
        if len(found) > 1:
            output.say(f"── tenant {tenant}: say --tenant {tenant} to commands about its turns")
        for state, turns in by_state.items():
            output.say(f"{len(turns)} {HEADS[state] if turns else state}")
            if turns:
                show_listed(turns)


def _listed(here: SessionBackend) -> dict[ListedState, tuple[api.ListedTurn, ...]]:
    return {state: here.listed_turns(state=state).turns for state in HEADS}
