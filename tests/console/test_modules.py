"""The parts of the console that need nothing but values, run where they will run: in a browser."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from holdfast.printable import printable_lines
from holdfast.testing import ScriptedModel, says
from tests.console.browser import Window, window, within
from tests.console.payloads import PAYLOADS
from tests.server.stubs import HeldTool, Serving, agent, serving

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

IMPORT = "const use = (name) => import(`/console/test/${name}`);"


class Bench:
    """A page on which modules are tried."""

    def __init__(self, here: Window, server: Serving, model: ScriptedModel) -> None:
        self.here = here
        self.server = server
        self.model = model

    async def run(self, body: str, value: object = None) -> Any:
        """Run this in the page; `value` is what it is given, `use` imports a module."""
        return await self.here.page.evaluate(f"async (value) => {{ {IMPORT} {body} }}", value)


@pytest_asyncio.fixture(loop_scope="session")
async def bench(browser: Browser) -> AsyncIterator[Bench]:
    model = ScriptedModel(otherwise=lambda _: "Yes.")
    tool = HeldTool("act", held=False)
    async with serving(agent(model, tool)) as server, window(browser, server.url) as here:
        await here.open()
        await expect(here.find(".session-list")).to_be_attached()
        yield Bench(here, server, model)


# ── text ─────────────────────────────────────────────────────────────────────────────────────

FRIENDLY = "שלום عالم नमस्ते 你好 \U0001f469\u200d\U0001f467 é\u0301 \u200fمرحبا\u200e\n\tb"


HOSTILE = f"pay\u202e5\u2066\x1b[2J\x00\x85\u2028\r{FRIENDLY}"


async def test_no_words_turn_the_direction_of_others(bench: Bench) -> None:
    """A call that waits for a person would otherwise show other arguments than it has."""
    shown = await bench.run(
        """
        const { h } = await use('core/dom.js');
        const { signal } = await use('core/signals.js');
        const words = signal('before');
        const made = h('p', { title: value, 'data-id': value, 'aria-label': () => words() }, value, () => words());
        words.set(value);
        return [made.title, made.getAttribute('aria-label'), made.textContent, made.dataset.id];
        """,
        HOSTILE,
    )
    escaped = printable_lines(HOSTILE)
    assert escaped.endswith(FRIENDLY) and escaped.count("\\") == 7
    assert shown == [escaped, escaped, escaped + escaped, HOSTILE]


# ── signals ──────────────────────────────────────────────────────────────────────────────────


async def test_an_effect_runs_once_for_several_changes_and_never_after_its_end(
    bench: Bench,
) -> None:
    seen = await bench.run("""
        const { signal, effect, computed, batch, root } = await use('core/signals.js');
        const a = signal(1), b = signal(2), seen = [];
        const end = root(() => {
          const sum = computed(() => a() + b());
          effect(() => seen.push(sum()));
        });
        batch(() => { a.set(10); b.set(20); });
        a.set(11); b.set(19);   // one after the other, so the sum is 31 in between
        a.set(11);              // nothing new
        end();
        a.set(100);
        return seen;
    """)
    assert seen == [3, 30, 31, 30]


async def test_what_an_effect_made_goes_before_it_runs_again(bench: Bench) -> None:
    log = await bench.run("""
        const { signal, effect, onDispose } = await use('core/signals.js');
        const outer = signal(0), inner = signal('x'), log = [];
        effect(() => {
          const n = outer();
          effect(() => log.push(`${n}${inner()}`));
          onDispose(() => log.push(`end ${n}`));
        });
        outer.set(1);
        inner.set('y');
        return log;
    """)
    assert log == ["0x", "end 0", "1x", "1y"]


async def test_a_list_keeps_the_nodes_of_what_stays(bench: Bench) -> None:
    same = await bench.run("""
        const { signal } = await use('core/signals.js');
        const { each, h, mount } = await use('core/dom.js');
        const list = signal(['a', 'b', 'c']);
        const place = document.createElement('div');
        mount(place, () => each(list, (name) => name, (name) => h('p', null, () => name())));
        const before = Object.fromEntries([...place.children].map((node) => [node.textContent, node]));
        list.set(['c', 'd', 'a']);
        return [[...place.children].map((node) => node.textContent).join(''),
                place.children[0] === before.c, place.children[2] === before.a];
    """)
    assert same == ["cda", True, True]


@pytest.mark.parametrize(
    ("props", "left"),
    [
        ({"href": "javascript:alert(1)"}, []),
        ({"href": " javascript:alert(1)"}, []),
        ({"href": "//evil.example"}, []),
        ({"href": "https://example.org/"}, ["href"]),
        ({"src": "https://evil.example/x"}, []),
        ({"style": "color:red"}, None),
        ({"srcdoc": "x"}, None),
        ({"formaction": "x"}, None),
    ],
)
async def test_an_attribute_is_on_the_list_and_leads_nowhere_bad(
    bench: Bench, props: dict[str, str], left: list[str] | None
) -> None:
    body = """
        const { h } = await use('core/dom.js');
        try { return h('a', value).getAttributeNames(); } catch { return null; }
    """
    assert await bench.run(body, props) == left


# ── markdown ─────────────────────────────────────────────────────────────────────────────────

MADE = set(
    "P UL OL LI PRE CODE STRONG EM S A BLOCKQUOTE HR DIV TABLE THEAD TBODY TR TH TD INPUT SPAN BUTTON BR".split()
)


def _link(url: str) -> str:
    return f'<a href="{url}" target="_blank" rel="noopener noreferrer nofollow" class="outside">{url}</a>'


FORMS: dict[str, str] = {
    "**bold *and* ~~gone~~** __b__ _em_ snake_case_name": "<p><strong>bold <em>and</em> <s>gone</s></strong> "
    "<strong>b</strong> <em>em</em> snake_case_name</p>",
    "***both***, `x`, 2 * 3 * 4 and *a*": "<p><strong><em>both</em></strong>, <code>x</code>, 2 * 3 * 4 and <em>a</em></p>",
    r"\*no\* 2 \< 3 and `\*`": r"<p>*no* 2 &lt; 3 and <code>\*</code></p>",
    "It is $a_1*b_2$, not $5 or $6, \\(x_1*y*z\\)": '<p>It is <span class="math" role="math">a_1*b_2</span>, not $5 or $6, '
    '<span class="math" role="math">x_1*y*z</span></p>',
    "- [x] done\n- [ ] **to** do": '<ul><li class="task"><input type="checkbox" disabled="" checked="" aria-label="done">'
    'done</li><li class="task"><input type="checkbox" disabled="" aria-label="to do"><strong>to</strong> do</li></ul>',
    "3. c\n4. d": '<ol start="3"><li>c</li><li>d</li></ol>',
    "1. a\n   - b\n     - c\n   - d\n2. e": "<ol><li><p>a</p><ul><li><p>b</p><ul><li>c</li></ul></li><li>d</li></ul></li>"
    "<li>e</li></ol>",
    "- a\n\n  more\n\n- b\n\nafter": "<ul><li><p>a</p><p>more</p></li><li>b</li></ul><p>after</p>",
    "text\n---\n- - -": "<p>text</p><hr><hr>",
    "line<br>line <b>x</b>": "<p>line<br>line &lt;b&gt;x&lt;/b&gt;</p>",
    "see (https://example.org/Python_(language)), https://example.org/a.": f"<p>see ({_link('https://example.org/Python_(language)')}), "
    f"{_link('https://example.org/a')}.</p>",
    "1&nbsp;&lt; 2 &amp;&amp; `&lt;` &lt;b&gt;x&lt;/b&gt; &bogus;": "<p>1&nbsp;&lt; 2 &amp;&amp; <code>&amp;lt;</code> "
    "&lt;b&gt;x&lt;/b&gt; &amp;bogus;</p>",
    "![a cat](https://evil.example/cat.png)": f"<p>a cat ({_link('https://evil.example/cat.png')})</p>",
    '[it](https://example.org/a_(b) "title") <https://example.org/?c>': f"<p>it ({_link('https://example.org/a_(b)')}) "
    f"{_link('https://example.org/?c')}</p>",
}
"""Markdown, and the nodes that it becomes."""


async def test_markdown_has_its_forms(bench: Bench) -> None:
    shown = """
        const { markdown } = await use('text/markdown.js');
        const nodes = (text) => { const place = document.createElement('div'); place.append(...markdown(text)); return place; };
    """
    found = await bench.run(
        f"{shown} return value.map((text) => nodes(text).innerHTML.replace(/ dir=.(auto|ltr)./g, ''));",
        list(FORMS),
    )
    assert dict(zip(FORMS, found, strict=True)) == FORMS
    code_in_list = (
        "1. run\n\n   ```sh title=x\n   if a\n     b\n   ```\n2. read\n   | a |\n   |---|\n   | 1 |"
    )
    inside = await bench.run(
        f"{shown} const place = nodes(value); return [place.querySelectorAll('ol > li').length, "
        "place.querySelector('li pre').textContent, place.querySelector('li:nth-child(2) td').textContent];",
        code_in_list,
    )
    assert inside == [2, "if a\n  b", "1"]
    table = "| a | b | c |\n|:--|:-:|--:|\n| `x|y` | p\\|q | 3 |\n"
    cells = await bench.run(
        f"{shown} return [...nodes(value).querySelectorAll('td')].map((td) => [td.className, td.textContent]);",
        table,
    )
    assert cells == [["to-left short", "x|y"], ["to-centre short", "p|q"], ["to-right short", "3"]]
    formula = await bench.run(
        f"{shown} return nodes(value).querySelector('pre.math').textContent;",
        "So:\n\n$$\n\\sum_i *x_i*\n$$",
    )
    assert formula == "\\sum_i *x_i*"
    code = '```python\ndef f():  # why\n    return "<b>" + 1\n```'
    coloured = await bench.run(
        f"""{shown} const place = nodes(value);
        return [place.querySelector('pre').textContent, [...place.querySelectorAll('pre span')].map((span) => [span.className, span.textContent])];""",
        code,
    )
    assert coloured == [
        'def f():  # why\n    return "<b>" + 1',
        [
            ["code-word", "def"],
            ["code-comment", "# why"],
            ["code-word", "return"],
            ["code-string", '"<b>"'],
            ["code-number", "1"],
        ],
    ]


async def test_words_have_their_own_direction(bench: Bench) -> None:
    """Arabic and Hebrew begin at the right, with their bullets, quotes and columns, also between English."""
    said = "Hello\n\nמה קורה\n\n- שלום\n\n> مرحبا\n\n| الاسم | b |\n|---|---|\n| 1 | c |"
    found = await bench.run(
        """
        const { markdown } = await use('text/markdown.js');
        const place = document.createElement('div');
        document.body.append(place);
        place.append(...markdown(value));
        return [...place.querySelectorAll('p, ul, blockquote, table')]
            .map((node) => [node.tagName, getComputedStyle(node).direction]);
        """,
        said,
    )
    way = {"P": ["ltr", "rtl", "rtl"], "UL": ["rtl"], "BLOCKQUOTE": ["rtl"], "TABLE": ["rtl"]}
    assert {name: [each for tag, each in found if tag == name] for name in way} == way


async def test_a_long_answer_is_parted_where_both_parts_are_whole(bench: Bench) -> None:
    """Its second part is Markdown, too; a cut through code, or a row of a table, would make nonsense of both."""
    rows = "\n".join(f"| {n} | x |" for n in range(50))
    for text, parted in (
        (f"one\n\n```\na\n\nb\n```\n\n{rows}", "one\n\n```\na\n\nb\n```\n"),
        ("```\na\n\n" + "b" * 200, ("```\na\n\n" + "b" * 200)[:100]),
        ("x" * 200, "x" * 100),
    ):
        found = await bench.run(
            "const { partingOf } = await use('text/markdown.js'); return value.slice(0, partingOf(value, 100));",
            text,
        )
        assert found == parted
    long = "word " * 2600 + "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n" + "word " * 800
    bench.model.will(says(long))
    await bench.server.chat("write", to="long")
    await bench.here.open("/s/long")
    rest = bench.here.find(".item-assistant .rest")
    await rest.locator("summary").click()
    await expect(rest.locator("td").first).to_have_text("1")


async def test_no_text_makes_anything_but_a_few_elements(bench: Bench) -> None:
    dice = random.Random(7)
    signs = [
        *"*_`#>-+|[]()!<>\\\n\n  $~:",
        "```",
        "~~~",
        "http://x",
        "1. ",
        "javascript:",
        "<b",
        "é",
    ]
    signs += ["- [x] ", "$$", "```py\n", "|:-:|", "\\(", '"', "'"]
    noise = ["".join(dice.choices(signs, k=dice.randrange(1, 80))) for _ in range(400)]
    found = await bench.run(
        """
        const { markdown } = await use('text/markdown.js');
        const names = new Set();
        for (const text of value) {
          const place = document.createElement('div');
          place.append(...markdown(text));
          for (const node of place.querySelectorAll('*')) names.add(node.tagName);
        }
        return [...names];
        """,
        [*noise, *PAYLOADS],
    )
    assert set(found) <= MADE and len(found) > 10


async def test_a_long_line_of_signs_is_read_in_proportion_to_its_length(bench: Bench) -> None:
    """An expression that looks at the same text again and again would take minutes for these."""
    read = bench.run("""
        const { markdown } = await use('text/markdown.js');
        const signs = ['*', '[', '`', '_', '[(', '**a', '![', '>', '- ', '|-', '#', '`a', '![a](', '* ', '__',
                       '$', '$a', '~~a', '\\\\(', '_a', '**a*', '|:', '`|', '- [x] ', '\\\\',
                       '$$a\\n# b\\n', '\\\\[a\\n- b\\n'];
        const { coloured } = await use('text/code.js');
        const code = ['"', "'", '/*', '#', '`', '\\\\', '1a', 'if ', '"'.repeat(3)];
        for (const named of ['js', 'python', 'sql', 'diff'])
            for (const sign of code) coloured(sign.repeat(100_000 / sign.length), named);
        return signs.map((sign) => markdown(sign.repeat(100_000 / sign.length)).length > 0);
    """)
    assert all(await within(read))


# ── a turn from its journal ──────────────────────────────────────────────────────────────────


async def test_a_turn_folded_from_its_journal_is_what_was_committed(bench: Bench) -> None:
    server = bench.server
    bench.model.will(
        says("Let me ", "see.", thinks=["Hm, ", "yes."], calls=[("act", "{}"), ("nope", "{}")]),
        says("Done."),
    )
    answer = await server.chat("Do it", to="trip", headers={"Idempotency-Key": "once"})
    assert answer.status == 200
    folded, committed = await bench.run(
        """
        const { advance, nothingYet } = await use('state/journal.js');
        const text = await (await fetch(`/api/turns/${value}/events`)).text();
        const records = text.split('\\n\\n').filter((frame) => frame.startsWith('data: ')).map((frame) => JSON.parse(frame.slice(6)));
        let turn = nothingYet(value);
        for (const record of records) turn = advance(turn, [record]);
        turn = advance(turn, records);   // again: what is known changes nothing
        const history = await (await fetch('/api/sessions/trip/history')).json();
        return [turn, history.pages[0].items];
        """,
        answer.headers["x-turn-id"],
    )
    assert folded["items"] == committed
    assert [each["kind"] for each in folded["spans"]] == ["model", "tool", "model"]
    assert folded["ended"]["state"] == "committed" and folded["acted"] is True
    assert all(each["to"] is not None for each in folded["spans"])


# ── numbers ──────────────────────────────────────────────────────────────────────────────────


async def test_numbers_are_read_from_the_servers_own(bench: Bench) -> None:
    await asyncio.gather(*(bench.server.chat("Hi", to=f"s{n}") for n in range(4)))
    text = (await bench.server.get("/metrics")).body.decode()
    body = """
        const { parse, total, quantile } = await use('state/metrics.js');
        const reading = { at: 0, samples: parse(value) };
        return [total(reading, 'holdfast_turns_total', { fate: 'committed' }), total(reading, 'holdfast_lease_live'),
                quantile(undefined, reading, 'holdfast_turn_seconds', 0.5)];
    """
    committed, live, half = await bench.run(body, text)
    assert (committed, live) == (4, 1)
    assert 0 < half < 60


async def test_a_part_of_a_histogram_lies_between_its_bounds(bench: Bench) -> None:
    text = "\n".join(
        f'x_bucket{{le="{upto}"}} {count}'
        for upto, count in (("0.1", 10), ("0.2", 90), ("0.4", 100), ("+Inf", 100))
    )
    body = """
        const { parse, quantile } = await use('state/metrics.js');
        const reading = { at: 0, samples: parse(value) };
        return [0.05, 0.5, 0.95, 1].map((share) => quantile(undefined, reading, 'x', share));
    """
    found = await bench.run(body, text)
    assert found == pytest.approx([0.05, 0.15, 0.3, 0.4])


# ── the list ─────────────────────────────────────────────────────────────────────────────────


async def test_a_list_that_is_asked_for_again_has_its_top_as_it_is_now(bench: Bench) -> None:
    def row(name: str, at: int, turn: str | None = None) -> dict[str, object]:
        return {"id": name, "active_at": at, "open_turn": turn}

    known = [row("a", 9), row("b", 8, "t1"), row("c", 5, "t2"), row("d", 4), row("e", 3, "t3")]
    top = [row("d", 10), row("a", 9), row("new", 7)]  # b was deleted; d has moved
    busy = [row("e", 3, "t3")]  # c has ended
    body = """
        const { merged } = await use('state/sessions.js');
        return merged(...value).map((each) => [each.id, each.open_turn]);
    """
    found = await bench.run(body, [known, top, False, busy])
    assert found == [["d", None], ["a", None], ["new", None], ["c", None], ["e", "t3"]]
    assert await bench.run(body, [known, top, True, []]) == [
        ["d", None],
        ["a", None],
        ["new", None],
    ]
