"""Write what is made of the code in docs/reference: pages, the table of endpoints, `openapi.json`. `make reference`."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import msgspec

from holdfast import Sessions, limits, nobody_plays
from holdfast.config import SETTINGS, flag_of
from holdfast.core.turns import events as ev
from holdfast.environment import COMMANDS, MARKS, variable
from holdfast.server.agents.source_directory import load_directory
from holdfast.server.app import App
from holdfast.server.http.routing import Routes
from holdfast.server.openapi import document as openapi
from holdfast.server.openapi.error_codes import CODES
from holdfast.store.memory_store import MemoryStore
from holdfast.wire.headers import HEADERS

HERE = Path(__file__).parents[1] / "docs" / "reference"


def errors() -> Iterator[str]:
    """Every code that an answer can have, by status."""
    yield "# Errors"
    yield ""
    yield 'Every error has OpenAI\'s envelope: `{"error": {"message", "type", "param", "code"}}`.'
    yield "The `message` says what to do, and may get better; `code` does not change."
    yield "`X-Should-Retry` says whether the same request makes sense again, and `Retry-After` when."
    yield ""
    yield "What a model's server says about a request itself, such as `context_length_exceeded`, is passed on as it is."
    yield ""
    yield "| status | code | means |"
    yield "|---|---|---|"
    for code, told in sorted(CODES.items(), key=lambda each: (each[1].status, each[0])):
        yield f"| {told.status} | `{code}` | {told.words} |"


def bounds() -> Iterator[str]:
    """Every bound, in its group, with its reason."""
    yield "# Limits"
    yield ""
    yield "Every bound that a client or an operator may meet, with its unit at the end of its name, and its reason."
    yield "Some can be changed: [the settings](settings.md) say which."
    source = Path(limits.__file__).read_text(encoding="utf-8")
    body = ast.parse(source).body
    headings = {
        number: line.strip("# ─\n")
        for number, line in enumerate(source.splitlines(), start=1)
        if line.startswith("# ──")
    }
    for statement, reason in pairwise(body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        begun = [number for number in headings if number < statement.lineno]
        if begun:
            for number in begun:
                group = headings.pop(number)
            yield from ("", f"## {group}", "", "| bound | is | because |", "|---|---|---|")
        name = statement.target.id
        yield f"| `{name}` | {_shown(getattr(limits, name))} | {_docstring(reason)} |"


def _shown(value: object) -> str:
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _docstring(statement: ast.stmt) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return " ".join(text.split())
    return ""


def events() -> Iterator[str]:
    """Every event of a turn, with its fields."""
    yield "# Events of a turn"
    yield ""
    yield "What `GET /api/turns/{id}/events` streams and a journal holds."
    yield 'Each comes as `{"n", "at_ms", "event": {"type", …}}`; `n` counts from 0 and is the event\'s id.'
    yield "Fields that have their default are left out."
    yield ""
    yield "`fine` events are what streams are made of; a turn without an idempotency key keeps none of them."
    for kind in get_args(ev.Event):
        config = kind.__struct_config__
        fine = " (fine)" if kind in (ev.Grew, ev.ItemOpened) else ""
        yield from ("", f"## {config.tag}{fine}", "", *_paragraph(kind), "")
        yield from ("| field | type |", "|---|---|")
        hints = get_type_hints(kind, include_extras=False)
        for field in msgspec.structs.fields(kind):
            yield f"| `{field.encode_name}` | `{_type(hints[field.name])}` |"


def _paragraph(kind: type) -> list[str]:
    text = (kind.__doc__ or "The turn begins, with everything that was decided before.").strip()
    return [" ".join(text.split()).removeprefix("Fine. ")]


def _type(hint: object) -> str:
    text = str(hint) if get_args(hint) else getattr(hint, "__name__", str(hint))
    for prefix in (
        "holdfast.core.items.",
        "holdfast.core.turns.events.",
        "holdfast.ids.",
        "typing.",
    ):
        text = text.replace(prefix, "")
    return text.replace("|", "\\|")


def routes() -> Routes:
    """The table of a server."""

    async def table() -> Routes:
        directory = await load_directory(["demo"])
        app = App(Sessions(MemoryStore(), nobody_plays), directory)
        await directory.close()
        return app.routes

    return asyncio.run(table())


def http() -> Iterator[str]:
    """The page about the HTTP API; its table of endpoints is made anew."""
    text = (HERE / "http.md").read_text(encoding="utf-8")
    rows = ["| endpoint | scope | what it does |", "|---|---|---|"]
    for route in routes():
        summary, more = route.words
        scope = f"`{route.scope}` " if route.scope else ""
        words = f"{summary}. {more}" if more else summary
        rows.append(f"| `{route.label}` | {scope}| {words} |")
    table = re.compile(r"^\| endpoint \| scope \|.*?(?=\n\n)", re.MULTILINE | re.DOTALL)
    yield table.sub(lambda _: "\n".join(rows), text).removesuffix("\n")


def document() -> Iterator[str]:
    """What `GET /openapi.json` answers with."""
    yield openapi.rendered(openapi.document(routes())).decode().removesuffix("\n")


def headers() -> Iterator[str]:
    """Every header of requests and of answers."""
    yield "# Headers"
    yield ""
    yield "A header of a request that is ours but for a slip is a 400, which says which one was probably meant."
    yield "Pages of origins that [`cors_origins`](settings.md) allows may send and see all of these."
    yield from ("", "## Of a request", "")
    yield from ("| header | values | says | without it |", "|---|---|---|---|")
    for each in HEADERS:
        if each.request:
            names = ", ".join(f"`{name.title()}`" for name in (each.name, *each.aliases))
            yield f"| {names} | {_values(each.kind)} | {each.request} | {each.absent} |"
    yield from ("", "## Of an answer", "", "| header | says |", "|---|---|")
    yield from (f"| `{each.title}` | {each.answer} |" for each in HEADERS if each.answer)


def _values(kind: object) -> str:
    return ", ".join(f"`{each}`" for each in get_args(kind) if get_origin(kind) is Literal)


def settings() -> Iterator[str]:
    """Every setting of a server, and the other variables."""
    yield "# Settings"
    yield ""
    yield "What [`holdfast serve`](cli.md#holdfast-serve) can be told, by a flag or by a variable of the environment."
    yield "A flag beats the environment, and the environment beats the default; an empty variable means the default."
    yield "`holdfast serve --print-config` shows every setting, its value and who said it, and stops."
    yield ""
    yield "| setting | variable | flag | default | is |"
    yield "|---|---|---|---|---|"
    for name, row in SETTINGS.items():
        flag = f"`{flag_of(name)}`" if row.flag else ""
        defaults = f"`{row.default}`" if row.default else ""
        defaults += f"; `{row.beyond}` beyond loopback" if row.beyond else ""
        yield f"| `{name}` | `{variable(name)}` | {flag} | {defaults} | {row.words} |"
    yield ""
    yield "The bounds for tenants and keys are kept by each server, all its workers together: with three replicas a tenant may do three times as much."
    yield "Without a number there is none."
    yield "What is too much is a 429 with `Retry-After`, and where requests are counted, every answer has `x-ratelimit-*` headers."
    yield ""
    yield "A variable that begins like these and that no setting has is told at start, with the name that was probably meant: `config.unknown` in the log."
    for title, variables in (
        ("Variables of commands", COMMANDS),
        ("Variables that a server sets", MARKS),
    ):
        yield from ("", f"## {title}", "", "| variable | says |", "|---|---|")
        yield from (f"| `{name}` | {words} |" for name, words in variables.items())


PAGES = {
    "errors.md": errors,
    "limits.md": bounds,
    "events.md": events,
    "headers.md": headers,
    "http.md": http,
    "openapi.json": document,
    "settings.md": settings,
}


def rendered(name: str) -> str:
    return "\n".join(PAGES[name]()) + "\n"


if __name__ == "__main__":
    for page in PAGES:
        (HERE / page).write_text(rendered(page), encoding="utf-8")
    sys.stderr.write(f"{', '.join(PAGES)} written\n")
