"""`holdfast sessions`: conversations, in a store or on a server. Nothing here loads an agent."""

from __future__ import annotations

from typing import Literal

import click

from holdfast import limits
from holdfast.cli import display, output
from holdfast.cli.commands.session_changes import (
    annotate,
    delete,
    export,
    fork,
    import_command,
    name_command,
    rebind,
    rewind,
)
from holdfast.cli.conversation_text import flat_lines, model_lines, turn_lines, when
from holdfast.cli.options import ConversationPlace, conversation_options
from holdfast.cli.session_backend import StoreBackend, open_backend
from holdfast.core.codec import encode
from holdfast.wire.api import objects as api

limit_option = click.option(
    "--limit",
    type=click.IntRange(1, limits.page_size_max),
    default=limits.page_size_default,
    show_default=True,
    help="How many at most.",
)


@click.group()
def sessions() -> None:
    """Look after conversations, also while a server uses their store.

    \b
    Examples:
      holdfast sessions list --agent clerk
      holdfast sessions show trip-to-oslo
      holdfast sessions rewind trip-to-oslo 3
      holdfast sessions list --server https://agents.example --key hf_…
    """


for command in (export, import_command, fork, name_command, rewind, rebind, annotate, delete):
    sessions.add_command(command)


# ── list and search ──────────────────────────────────────────────────────────────────────────


@sessions.command("list", short_help="List conversations, the last active first.")
@click.option("--agent", metavar="NAME", help="Only conversations with this agent.")
@click.option("--key-prefix", metavar="TEXT", help="Only conversations whose key begins so.")
@click.option("--anonymous", is_flag=True, help="Only conversations without a key.")
@limit_option
@conversation_options
def list_command(
    agent: str | None,
    key_prefix: str | None,
    anonymous: bool,
    limit: int,
    as_json: bool,
    at: ConversationPlace,
) -> None:
    """List conversations, the last active first.

    \b
    Example:
      holdfast sessions list --key-prefix kitchen/ --limit 50
    """
    with open_backend(at) as here:
        found = here.sessions(
            agent=agent, key_prefix=key_prefix, anonymous=anonymous, limit=limit
        ).sessions
    if as_json:
        output.give(encode(found))
    else:
        display.rows(_HEADINGS, map(_row, found))


@sessions.command(short_help="Find conversations by what was said in them.")
@click.argument("words", nargs=-1, required=True)
@limit_option
@conversation_options
def search(words: tuple[str, ...], limit: int, as_json: bool, at: ConversationPlace) -> None:
    """Find conversations in which one message, or the title, has all these WORDS.

    Quotes keep words together, and a star at the end of a word matches every word that begins so.

    \b
    Example:
      holdfast sessions search '"north sea"' 'ferr*'
    """
    found: list[api.Session] = []
    cursor: str | None = None
    with open_backend(at) as here:
        while len(found) < limit:
            page = here.sessions(q=" ".join(words), cursor=cursor, limit=limit - len(found))
            found += page.sessions
            cursor = page.cursor
            if cursor is None:
                break
    if as_json:
        output.give(encode(found))
    else:
        display.rows((*_HEADINGS, "found"), ((*_row(each), _excerpt(each)) for each in found))


_HEADINGS = ("conversation", "title", "agent", "version", "last active")


def _row(session: api.Session) -> tuple[str, ...]:
    name = ", ".join(session.keys) or session.id
    busy = " (busy)" if session.open_turn else ""
    version = f"{session.version}{busy}"
    return name, session.title, session.agent, version, when(session.active_at)


def _excerpt(session: api.Session) -> str:
    if not isinstance(session.match, api.Match):
        return ""
    marked = (f"[{each.text}]" if each.hit else each.text for each in session.match.excerpt)
    words = " ".join("".join(marked).split())
    return f"{words} (in {session.match.line})" if session.match.line else words


# ── show ─────────────────────────────────────────────────────────────────────────────────────


@sessions.command(short_help="Show a conversation, turn by turn.")
@click.argument("name", metavar="KEY|ID")
@click.option(
    "--view",
    type=click.Choice(["people", "model"]),
    default="people",
    show_default=True,
    help="As people see it, or as its model does.",
)
@conversation_options
def show(name: str, view: Literal["people", "model"], as_json: bool, at: ConversationPlace) -> None:
    """Show a conversation, turn by turn, and from where on its model sees it in full.

    The model knows everything above that line by a summary only; people see everything.
    With --server the turns are not marked; `holdfast turns list` shows them.

    \b
    Examples:
      holdfast sessions show trip-to-oslo
      holdfast sessions show trip-to-oslo --view model --json
    """
    with open_backend(at) as here:
        if as_json:
            output.give(encode(here.items(name, view=view)))
            return
        if isinstance(here, StoreBackend):
            snapshot = here.snapshot(name)
            lines = model_lines(snapshot) if view == "model" else turn_lines(snapshot)
            empty = not snapshot.items
        else:
            items = here.items(name, view=view)
            lines = flat_lines(items)
            empty = not items.items
    display.prose(lines)
    if empty:
        output.say(f"{name} is empty", err=True)
