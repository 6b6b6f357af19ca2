"""A page is shown as it is: what its author wrote, in the form that its author gave it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.tools.web import page_markdown as module
from holdfast.tools.web.page_markdown import INSTALL, PageUnreadable, page_markdown

PAGE = """<html><head><title>T</title><meta charset=utf-8><body>
<h1>Parcels &amp; post</h1><p>See <a href="/lost">the <b>list</b></a> and <img src="g.png" alt="a red gull">.
<pre><code>a:
  b:
    - c
</code></pre>
<pre>function f() {
    if (x &lt; 1) {
\treturn;
    }
}</pre>
<ul><li>one<ul><li>two</li></ul></ul>
<table><tr><th>n</th><th>what</th></tr><tr><td>1</td><td>a|b</td></tr></table>
<script>var evil = 1;</script><style>.x {}</style><p>café — 日本 &#8364;<p>last"""


async def test_all_of_a_page_is_there_in_its_form() -> None:
    """The head is never closed, nor is the last paragraph."""
    text = await page_markdown(PAGE)
    for part in (
        "# Parcels & post",
        "(/lost)",
        "a red gull",
        "a:\n  b:\n    - c",
        "function f() {\n    if (x < 1) {\n\treturn;\n    }\n}",
        "- one\n  * two",
        "| 1 |",
        "café — 日本 €",
        "last",
    ):
        assert part in text, text
    assert "evil" not in text and ".x {" not in text


async def test_plain_text_has_no_marks() -> None:
    text = await page_markdown(PAGE, "plain")
    assert text.startswith("Parcels & post\n")
    assert "/lost" not in text and "  b:\n    - c" in text


@pytest.mark.parametrize(
    "broken", ["<", "<p", "<a href='x", "</p></p>", "<pre><li>", "&#xffffffff;", "\ud800\0"]
)
async def test_a_broken_page_is_read_as_far_as_it_goes(broken: str) -> None:
    assert (await page_markdown(f"<p>hello</p>{broken}")).startswith("hello")


async def test_others_go_on_while_a_page_is_converted() -> None:
    """The library keeps the interpreter to itself, so it has one of its own."""
    large = "<h2>T</h2><p>Some <b>words</b>.</p>" * 20_000
    beats = 0
    converting = asyncio.ensure_future(page_markdown(large))
    while not converting.done():
        await asyncio.sleep(0)
        beats += 1
    assert (await converting).count("words") == 20_000
    assert beats > 10


async def test_a_page_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "web_conversion_s", 0.0)
    with pytest.raises(PageUnreadable, match="takes too long"):
        await page_markdown("<p>hello</p>")


@pytest.mark.parametrize(("code", "told"), [(4, INSTALL), (9, "it cannot be converted")])
async def test_it_says_why_a_page_cannot_be_converted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, told: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import sys; sys.stdin.buffer.read(); sys.exit({code})")
    monkeypatch.setattr(module, "_PROGRAM", str(program))
    with pytest.raises(PageUnreadable) as raised:
        await page_markdown("<p>hello</p>")
    assert told in str(raised.value)
