"""A web page as a model can read it: its text, with the marks of headings, lists, links and code."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object"})
_BLOCKS = frozenset(
    """
    address article aside blockquote dd details div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr li
    main nav ol p pre section summary table tr ul br
    """.split()
)
_HEADINGS = {f"h{n}": "#" * n for n in range(1, 7)}
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())


def page_text(html: str, *, marks: bool) -> str:
    """The readable text of a page; with `marks`, in the manner of Markdown."""
    reader = _Reader(marks=marks)
    reader.feed(html)
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    """Collects the text of a page. Broken pages are read as far as they go."""

    def __init__(self, *, marks: bool) -> None:
        super().__init__(convert_charrefs=True)
        self._marks = marks
        self._parts: list[str] = []
        self._hidden: list[str] = []
        self._verbatim = 0
        self._links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN and tag not in _VOID:
            self._hidden.append(tag)
        if self._hidden:
            return
        if tag in _BLOCKS:
            self._parts.append("\n" if tag in ("br", "li", "tr", "dt", "dd") else "\n\n")
        if tag == "pre":
            self._verbatim += 1
        if tag in ("td", "th"):
            self._parts.append(" ")
        if self._marks:
            self._open_mark(tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            if tag in self._hidden:  # whatever was left open inside it is closed with it
                while self._hidden.pop() != tag:
                    pass
            return
        if self._marks:
            self._close_mark(tag)
        if tag == "pre":
            self._verbatim = max(0, self._verbatim - 1)
        if tag in _BLOCKS:
            self._parts.append("\n" if tag in ("li", "tr", "dt", "dd") else "\n\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._parts.append(data if self._verbatim else re.sub(r"\s+", " ", data))

    def _open_mark(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag in _HEADINGS:
            self._parts.append(f"{_HEADINGS[tag]} ")
        elif tag == "li":
            self._parts.append("- ")
        elif tag == "pre":
            self._parts.append("```\n")
        elif tag == "a":
            href = (attributes.get("href") or "").strip()
            is_link = bool(href) and not href.startswith(("#", "javascript:"))
            self._links.append(href if is_link else "")
            self._parts.append("[" if is_link else "")

    def _close_mark(self, tag: str) -> None:
        if tag == "pre":
            self._parts.append("\n```")
        elif tag == "a" and self._links and (href := self._links.pop()):
            self._parts.append(f"]({href})")

    def text(self) -> str:
        joined = "".join(self._parts)
        lines = (line.rstrip() for line in joined.replace("\r", "").split("\n"))
        squeezed = "\n".join(
            line if line.startswith("    ") else line.lstrip(" ") for line in lines
        )
        return re.sub(r"\n{3,}", "\n\n", squeezed).strip()
