"""The `fetch` toolset: reads web pages.

It is read-only, so it needs no permission; `web/address_guard.py` decides where it may go.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from holdfast import limits
from holdfast.tools.built_in_tools import (
    BuiltInToolset,
    harmless_tool,
    number_in,
    parameters,
    text_in,
    text_output,
    texts_in,
)
from holdfast.tools.execution import failure
from holdfast.tools.tool import Json, ToolOutput, ToolRun
from holdfast.tools.web.address_guard import (
    WEB_PORTS,
    AddressGuard,
    FetchFailed,
    ascii_address,
    host_of,
    shown,
)
from holdfast.tools.web.page_markdown import PageUnreadable, page_markdown
from holdfast.tools.web.server_answers import answered
from holdfast.tools.web.web_client import WebAnswer, WebClient

TIMEOUT_S = 30.0

_TEXTUAL = re.compile(
    r"text/.*|application/(.*\+)?(json|xml|yaml|javascript|x-ndjson|toml|x-www-form-urlencoded)"
)
_CHARSET = re.compile(
    r"charset=[\"']?(utf-8|utf-16|us-ascii|iso-8859-\d{1,2}|windows-125\d|koi8-[ru]|gbk|gb18030|big5|shift_jis|euc-jp|euc-kr)\b"
)
"""The encodings in use on the web. Python has more, and some of them are not about text."""
_HTML = ("text/html", "application/xhtml+xml")
_HEADERS = {"User-Agent": "holdfast", "Accept": "text/markdown, text/html, text/plain, */*;q=0.5"}

_URLS: Json = {
    "type": "array",
    "items": {"type": "string"},
    "minItems": 1,
    "maxItems": limits.web_pages_max,
    "description": "Addresses to read, http or https.",
}
_FORMAT: Json = {
    "type": "string",
    "enum": ["markdown", "text", "html"],
    "description": "How to show a web page: markdown unless said otherwise.",
}
_TIMEOUT: Json = {
    "type": "integer",
    "minimum": 1,
    "maximum": 300,
    "description": "How long to wait for each, in seconds.",
}


class FetchToolset(BuiltInToolset):
    """One tool, `fetch`."""

    def __init__(
        self,
        guard: AddressGuard | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`guard` defaults to the public web on the usual ports. `headers` may hold secrets: redirects to other servers
        do not carry them."""
        self._headers = headers or {}
        self._web = WebClient(
            guard or AddressGuard(ports=WEB_PORTS),
            bytes_max=limits.web_body_bytes_max,
            timeout_s=timeout_s,
            cuts=True,
        )
        self._timeout_s = timeout_s
        tool = harmless_tool(
            "fetch",
            "Read pages of the web. Shows their text; nothing is sent but the address.",
            parameters(["urls"], urls=_URLS, format=_FORMAT, timeout=_TIMEOUT),
            self._fetch,
            timeout_s=max(timeout_s, 300.0) + 5,
        )
        super().__init__(tool)

    async def _fetch(self, run: ToolRun) -> ToolOutput:
        urls = texts_in(run.arguments, "urls")
        style = text_in(run.arguments, "format", "markdown")
        timeout_s = float(number_in(run.arguments, "timeout", 0)) or self._timeout_s
        pages = await asyncio.gather(*(self._page(url, style, timeout_s) for url in urls))
        if not any(is_read for is_read, _ in pages):
            return failure("\n\n".join(words for _, words in pages))
        if len(pages) == 1:
            return text_output(pages[0][1])
        shares = limits.tool_output_chars_max // len(pages)
        return text_output(
            "\n\n".join(
                _headed(url, words, shares) for url, (_, words) in zip(urls, pages, strict=True)
            )
        )

    async def _page(self, url: str, style: str, timeout_s: float) -> tuple[bool, str]:
        """Whether the page could be read, and the text for the model."""
        try:
            url = ascii_address(url)
            host_of(url)
            if "@" in urlsplit(url).netloc:
                raise FetchFailed(url, "it holds a user name; leave that out", transient=False)
            own = {name.lower() for name in self._headers}
            answer = await self._web.ask(
                url,
                headers={name: each for name, each in _HEADERS.items() if name.lower() not in own},
                credentials=self._headers,
                timeout_s=timeout_s,
            )
        except FetchFailed as error:
            return False, f"{shown(url)} could not be read: {error.why}."
        if answer.status != 200:
            return False, f"{shown(url)} could not be read: it answers {answer.status}."
        is_text, words = await readable(answer, style)
        return is_text, words if is_text else f"{shown(url)} could not be read: {words}."


async def readable(answer: WebAnswer, style: str = "markdown") -> tuple[bool, str]:
    """Whether an answer is readable text, and that text; otherwise what it is instead."""
    kind, _, options = answer.headers.get("content-type", "text/plain").partition(";")
    kind = kind.strip().lower()
    if _TEXTUAL.fullmatch(kind) is None or b"\0" in answer.body[:4096]:
        return False, f"it is not text but {kind[:100] or 'bytes'}"
    text = answer.body.decode(_charset(options), errors="replace")
    if kind in _HTML and style != "html":
        try:
            text = await page_markdown(text, "markdown" if style == "markdown" else "plain")
        except PageUnreadable as error:
            return False, str(error)
    read = f"only the first {len(answer.body)} bytes were read"
    cut = f"\n[… {read} …]" if answer.cut else ""
    return True, f"{text}{cut}" if text else "[nothing is there]"


async def told(answer: WebAnswer) -> ToolOutput:
    """The output for the answer of an API. Raises ToolBroken if it is about the server."""
    is_text, words = await readable(answer)
    return answered(
        answer.status, words if is_text else f"[{len(answer.body)} bytes that are not text]"
    )


def _charset(options: str) -> str:
    found = _CHARSET.search(options.lower())
    return found[1] if found else "utf-8"


def _headed(url: str, words: str, chars: int) -> str:
    cut = (
        words
        if len(words) <= chars
        else f"{words[:chars]}\n[… {len(words) - chars} characters left out …]"
    )
    return f"── {shown(url)}\n{cut}"
