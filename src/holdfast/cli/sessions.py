"""`holdfast sessions`: look at conversations. Nothing here loads an agent or changes a store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

import click

from holdfast import limits
from holdfast.cli import showing
from holdfast.cli.finding import find_session, find_tenant
from holdfast.cli.options import json_option, store_option, tenant_option
from holdfast.core.codec import Unreadable, encode
from holdfast.core.conversation import Snapshot, TurnMark, seen_by_model, summary_seen
from holdfast.core.items import StoredItem, Summary, item_id
from holdfast.core.transcript import entry_of
from holdfast.errors import SessionMissing
from holdfast.ids import Tenant
from holdfast.server.shown import match_shown, session_shown
from holdfast.store.base import Match, SessionFilter, SessionInfo, Store
from holdfast.store.open import open_existing
from holdfast.store.searching import parse_query
from holdfast.wire.api import items_of

T = TypeVar("T")

limit_option = click.option(
    "--limit",
    type=click.IntRange(1, limits.page_size_max),
    default=limits.page_size_default,
    show_default=True,
    help="How many at most.",
)


@click.group()
def sessions() -> None:
    """Look at the conversations of a store, also while a server uses it."""


# ── list and search ──────────────────────────────────────────────────────────────────────────


@sessions.command("list", short_help="List conversations, the last active first.")
@click.option("--agent", metavar="NAME", help="Only those that this agent speaks in.")
@click.option("--key-prefix", metavar="TEXT", help="Only those with a key that begins so.")
@click.option("--anonymous", is_flag=True, help="Those that nobody named, in place of the others.")
@limit_option
@tenant_option
@json_option
@store_option
def list_command(
    agent: str | None,
    key_prefix: str | None,
    anonymous: bool,
    limit: int,
    tenant: str | None,
    as_json: bool,
    url: str,
) -> None:
    """List conversations, the last active first."""
    where = SessionFilter(agent=agent, key_prefix=key_prefix, anonymous=anonymous)

    async def read(store: Store, whose: Tenant) -> tuple[SessionInfo, ...]:
        return (await store.sessions(whose, where=where, limit=limit)).sessions

    found = _look(url, tenant, read)
    if as_json:
        click.echo(encode(list(map(session_shown, found))))
    else:
        showing.table(_HEADINGS, map(_row, found))


@sessions.command(short_help="Find conversations by what was said in them.")
@click.argument("words", nargs=-1, required=True)
@limit_option
@tenant_option
@json_option
@store_option
def search(words: tuple[str, ...], limit: int, tenant: str | None, as_json: bool, url: str) -> None:
    """Find conversations in which one message, or the title, has all these WORDS.

    Quotes keep words together, and a star ends a word that only begins so: "north sea" ferr*
    """
    query = parse_query(" ".join(words))

    async def read(store: Store, whose: Tenant) -> list[Match]:
        found: list[Match] = []
        cursor: str | None = None
        while len(found) < limit:
            page = await store.search(whose, query, cursor=cursor, limit=limit - len(found))
            found += page.matches
            cursor = page.cursor
            if cursor is None:
                break
        return found

    matches = _look(url, tenant, read)
    if as_json:
        click.echo(encode(list(map(match_shown, matches))))
    else:
        showing.table(
            (*_HEADINGS, "found"), ((*_row(each.info), _excerpt(each)) for each in matches)
        )


_HEADINGS = ("conversation", "title", "agent", "turns", "last active")


def _row(info: SessionInfo) -> tuple[str, ...]:
    row = info.session
    name = ", ".join(info.keys) or str(row.id)
    busy = " (busy)" if row.open_turn else ""
    return name, row.title or row.opening, row.agent, f"{int(row.head)}{busy}", _when(row.active_ms)


def _excerpt(match: Match) -> str:
    marked = (f"[{piece.text}]" if piece.hit else piece.text for piece in match.excerpt)
    return " ".join("".join(marked).split())


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
@tenant_option
@json_option
@store_option
def show(name: str, view: str, tenant: str | None, as_json: bool, url: str) -> None:
    """Show a conversation, turn by turn, and from where on its model sees it in full.

    What stands above that line the model knows by a summary only; people see everything.
    """

    async def read(store: Store, whose: Tenant) -> Snapshot:
        found = await store.snapshot(whose, await find_session(store, whose, name))
        if found is None:
            raise SessionMissing("session", name)
        return found

    snapshot = _look(url, tenant, read)
    if as_json:
        click.echo(encode(items_of(snapshot, as_model=view == "model")))
    else:
        click.echo("\n".join(_model_lines(snapshot) if view == "model" else _lines(snapshot)))


def _lines(snapshot: Snapshot) -> Iterator[str]:
    """The whole conversation, and where the model's full view of it begins."""
    summary = summary_seen(snapshot)
    hidden = snapshot.notes.hidden_from_people
    for mark in snapshot.marks:
        if summary is not None and mark.start == summary.covers_to:
            yield from _boundary(summary)
        yield _heading(mark)
        for item in snapshot.items[mark.start : mark.end]:
            if item_id(item) not in hidden and not isinstance(item, Summary):
                yield from _said(item)
        yield ""
    if summary is not None and summary.covers_to == len(snapshot.items):
        yield from _boundary(summary)


def _model_lines(snapshot: Snapshot) -> Iterator[str]:
    for item in seen_by_model(snapshot):
        yield from _said(item)


def _heading(mark: TurnMark) -> str:
    ended = "" if mark.ended_by == "completed" else f", {mark.ended_by}"
    when = _when(mark.turn_id.minted_at_ms)
    return f"── version {int(mark.version)}, {when}, {mark.turn_id}{ended}"


def _boundary(summary: Summary) -> Iterator[str]:
    yield "══ what is above, the model knows by this summary:"
    yield from (f"   {line}" for line in summary.text.splitlines())
    yield "══ what is below, it sees in full"
    yield ""


def _said(item: StoredItem) -> Iterator[str]:
    if isinstance(item, Unreadable):
        yield "   [this cannot be read; `holdfast db verify` says more]"
        return
    indent = "   " * (1 + len(item.path))
    yield from (indent + line for line in entry_of(item).splitlines())


# ── small things ─────────────────────────────────────────────────────────────────────────────


def _look(url: str, tenant: str | None, read: Callable[[Store, Tenant], Awaitable[T]]) -> T:
    async def look() -> T:
        store = await open_existing(url)
        try:
            return await read(store, await find_tenant(store, tenant))
        finally:
            await store.close()

    return asyncio.run(look())


def _when(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
