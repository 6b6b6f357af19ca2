"""Converts a web page to text for a model, with marks for headings, lists, links and code."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape

_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe", "object"})
_BLOCKS = frozenset(
    """
    address article aside blockquote dd details div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr li
    main nav ol p pre section summary table tr ul br
    """.split()
)
_HEADINGS = {f"h{n}": "#" * n for n in range(1, 7)}


_MARKUP = re.compile(r"<(?=[a-zA-Z/!?])")
_NAME = re.compile(r"[a-zA-Z][^\s/>]*")
_GAP = re.compile(r"[\s/]*")
_ATTRIBUTE = re.compile(r"[^\s/>][^\s/>=]*")
_EQUALS = re.compile(r"\s*=\s*")
_UNQUOTED = re.compile(r"[^\s>]*")
_RAW_ENDS = {tag: re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE) for tag in ("script", "style")}
_LONG_NUMBER = re.compile(r"&#[0-9]{10,};?")


def page_text(html: str, *, marks: bool) -> str:
    """The readable text of a page; with `marks`, as Markdown."""
    reader = PageParser(marks=marks)
    read_page(html, reader)
    return reader.text()


def read_page(html: str, reader: PageParser) -> None:
    """Pass a page's content to a parser, from front to back. An unclosed tag or comment ends the page.

    A page is foreign text, and this runs on the event loop between other turns, so its time is linear: every step
    begins where the last one ended, and a step that does not find its end is the last. (`html.parser` searches again and
    again for the end of an unclosed tag, which takes quadratic time.)
    """
    at = 0
    while (found := _MARKUP.search(html, at)) is not None:
        reader.data(_unescaped(html[at : found.start()]))
        end = _read_markup(html, found.start(), reader)
        if end is None:
            return
        at = end
    reader.data(_unescaped(html[at:]))


def _read_markup(html: str, at: int, reader: PageParser) -> int | None:
    """The end of the markup that begins here; None if it has no end."""
    if html.startswith("<!--", at):
        return _after(html, "-->", at + 2)
    is_end = html.startswith("</", at)
    name = _NAME.match(html, at + 1 + is_end)
    if name is None:
        return _after(html, ">", at)
    tag = name[0].lower()
    if is_end:
        reader.end(tag)
        return _after(html, ">", name.end())
    return _read_start(html, name.end(), tag, reader)


def _read_start(html: str, at: int, tag: str, reader: PageParser) -> int | None:
    """The end of a tag whose attributes begin here, including content that is not text; None if it has no end."""
    attributes: dict[str, str] = {}
    while True:
        at = _end(_GAP, html, at)
        if html.startswith(">", at):
            break
        name = _ATTRIBUTE.match(html, at)
        if name is None:
            return None
        at, value = name.end(), ""
        if (equals := _EQUALS.match(html, at)) is not None:
            at = equals.end()
            if (quote := html[at : at + 1]) in ("'", '"'):
                start, close = at + 1, html.find(quote, at + 1)
                if close < 0:
                    return None
                at = close + 1
            else:
                start, close = at, _end(_UNQUOTED, html, at)
                at = close
            value = html[start:close]
        attributes[name[0].lower()] = value
    reader.start(tag, _unescaped(attributes.get("href", "")))
    if html[at - 1] == "/":
        reader.end(tag)
    elif tag in _RAW_ENDS:
        raw = _RAW_ENDS[tag].search(html, at)
        return None if raw is None else raw.start()
    return at + 1


def _after(html: str, mark: str, at: int) -> int | None:
    found = html.find(mark, at)
    return None if found < 0 else found + len(mark)


def _end(pattern: re.Pattern[str], html: str, at: int) -> int:
    """The end of the match at this position; every pattern used here can match the empty string."""
    found = pattern.match(html, at)
    return at if found is None else found.end()


def _unescaped(text: str) -> str:
    """The text with its character references replaced. No character has a number of ten digits."""
    return unescape(_LONG_NUMBER.sub("\N{REPLACEMENT CHARACTER}", text)) if "&" in text else text


class PageParser:
    """Collects the text of a page. A broken page is read as far as possible."""

    def __init__(self, *, marks: bool) -> None:
        self._marks = marks
        self._parts: list[str] = []
        self._hidden: list[str] = []
        self._hidden_by = Counter[str]()
        """How often each tag is in `_hidden`: counted, because a page may open and close any number of them."""
        self._verbatim = 0
        self._links: list[str] = []

    def start(self, tag: str, href: str) -> None:
        if tag in _HIDDEN:
            self._hidden.append(tag)
            self._hidden_by[tag] += 1
        if self._hidden:
            return
        if tag in _BLOCKS:
            self._parts.append("\n" if tag in ("br", "li", "tr", "dt", "dd") else "\n\n")
        if tag == "pre":
            self._verbatim += 1
        if tag in ("td", "th"):
            self._parts.append(" ")
        if self._marks:
            self._open_mark(tag, href.strip())

    def end(self, tag: str) -> None:
        if self._hidden:
            while self._hidden_by[tag]:  # closes the tags that were left open inside it
                self._hidden_by[closed := self._hidden.pop()] -= 1
                if closed == tag:
                    break
            return
        if self._marks:
            self._close_mark(tag)
        if tag == "pre":
            self._verbatim = max(0, self._verbatim - 1)
        if tag in _BLOCKS:
            self._parts.append("\n" if tag in ("li", "tr", "dt", "dd") else "\n\n")

    def data(self, data: str) -> None:
        if data and not self._hidden:
            self._parts.append(data if self._verbatim else re.sub(r"\s+", " ", data))

    def _open_mark(self, tag: str, href: str) -> None:
        if tag in _HEADINGS:
            self._parts.append(f"{_HEADINGS[tag]} ")
        elif tag == "li":
            self._parts.append("- ")
        elif tag == "pre":
            self._parts.append("```\n")
        elif tag == "a":
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
