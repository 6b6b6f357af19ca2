"""HTML and SVG as values. Every text is escaped where it becomes markup, and there is no other way in.

A `str` is text, whatever is in it: evidence comes from other people's servers. `Html` is what `el` has made.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID = frozenset({"meta", "br", "link", "img", "hr"})


class Html(str):
    """Markup: made by `el`, and by nothing else but the constants of this package."""

    __slots__ = ()


Child = str | None | Iterable["Child"]


def text_of(child: Child) -> str:
    """A child as markup. None is nothing; lists are put one after the other."""
    match child:
        case None:
            return ""
        case Html():
            return child
        case str():
            return html.escape(_visible(child))
        case _:
            return "".join(map(text_of, child))


def _visible(text: str) -> str:
    """Characters that no page may hold, shown as what they are."""
    return "".join(
        each if each in "\n\t" or each.isprintable() else f"\\u{ord(each):04x}" for each in text
    )


def el(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """An element. Underscores in names of attributes are dashes, except at the end; True is one without a value."""
    said = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{said}>")
    return Html(f"<{name}{said}>{text_of(children)}</{name}>")


def coded(text: str) -> list[str]:
    """Prose with `code` in it, as it is written everywhere here."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return [text]  # somebody's lone backtick is a backtick
    return [el("code", part) if number % 2 else part for number, part in enumerate(parts)]


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    if isinstance(value, float):
        value = f"{value:.2f}".rstrip("0").rstrip(".")
    return f' {name}="{html.escape(_visible(str(value)))}"'
