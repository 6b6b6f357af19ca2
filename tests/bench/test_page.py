"""The page: what is drawn is what was measured, and what others have said stays text."""

from __future__ import annotations

import importlib
import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from html.parser import HTMLParser

import pytest
from _figures import BARE, OURS, Behaviour, Cell, Column, Figures, Line, Semantics, Verdict
from _names import GROUPS, LONG, SHORT, tokens_at
from page import goals, plots, words
from page.document import document
from page.headlines import sentences
from page.markup import Html, coded, el
from page.palette import Palette
from page.verdicts import EVIDENCE_LINES, held_of_played

from tests.bench.test_figures import UNDER

HOSTILE = "</pre><script>alert(1)</script>\x00\x1b[31m\u202e\" onload='x' &amp; ]]>"
PALETTE = Palette([BARE, "Holdfast", "LiteLLM"])


def semantics(verdict: Verdict = "held", *evidence: str) -> Semantics:
    rows = [Behaviour("kill", "A kill loses nothing", "Committed, then acknowledged.")]
    columns = [
        Column(name.lower(), name, "", {name: "1"}, "as it comes", cells, "2026-01-02", 3.0)
        for name, cells in (
            ("Holdfast", [Cell("kill", verdict, "it was there", list(evidence))]),
            ("Other", []),
        )
    ]
    return Semantics(rows, columns)


def group(*lines: Line, axis: str = "") -> Figures:
    return Figures("turn", "A turn", "What it takes.", UNDER, list(lines), axis=axis)


class Outline(HTMLParser):
    """The elements of a page, their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


# ── markup ───────────────────────────────────────────────────────────────────────────────────


def test_text_becomes_markup_only_by_escaping() -> None:
    made = el("p", "<b>", el("i", "&"), None, ["x", Html("<br>")], title='"<', hidden=True)
    assert made == '<p title="&quot;&lt;" hidden>&lt;b&gt;<i>&amp;</i>x<br></p>'


def test_code_in_prose_is_code_and_a_lone_backtick_is_one() -> None:
    assert el("p", coded("run `a<b` now")) == "<p>run <code>a&lt;b</code> now</p>"
    assert el("p", coded("a ` b")) == "<p>a ` b</p>"


def test_characters_that_no_page_may_hold_are_shown() -> None:
    assert el("p", "a\x00\x1b\u202eb\n\t") == "<p>a\\u0000\\u001b\\u202eb\n\t</p>"


# ── numbers ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (0.0213, "0.021"),
        (0.00004, "4e-05"),
        (4.068, "4.07"),
        (18.24, "18.2"),
        (941.2, "941"),
        (93_821, "93,800"),
        (1_234_567, "1,230,000"),
        (-2.5, "-2.50"),
    ],
)
def test_a_number_has_the_figures_that_matter(value: float, said: str) -> None:
    assert words.number(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0.0049, "0.0049×"), (0.44, "0.44×"), (2.0, "2.00×"), (73.24, "73.2×")]
)
def test_a_small_ratio_is_not_nothing(value: float, said: str) -> None:
    assert words.ratio(value) == said


def test_units_ranges_and_ratios_are_said() -> None:
    line = Line("a turn", "ms", "lower", {BARE: [1.0, 2.0, 4.0], "Holdfast": [3.0]})
    assert words.said(3.0, "ms") == "3.00 ms"
    assert words.said(3000, "/s") == "3,000/s"
    assert words.spread(line, BARE) == "1.00–4.00"
    assert words.spread(line, "Holdfast") == ""
    assert words.to_bare(line, "Holdfast") == "1.50× bare"
    assert words.to_bare(line, BARE) == words.to_bare(line, "nobody") == ""


def test_a_figure_of_one_round_says_so() -> None:
    line = Line("a turn", "ms", "lower", {BARE: [1.0, 2.0], "Holdfast": [3.0]})
    assert words.rounds(line, BARE) == "1.00–2.00"
    assert words.rounds(line, "Holdfast") == "one round"
    assert words.rounds(line, "nobody") == ""


# ── plots ────────────────────────────────────────────────────────────────────────────────────


def test_a_scale_holds_its_values_in_whole_decades() -> None:
    scale = plots.Log.over([0.3, 0.0, 70.0], 0.0, 300.0)
    assert (scale.low, scale.high) == (-1, 2)
    assert scale.at(0.1) == 0.0
    assert scale.at(1.0) == pytest.approx(100.0)
    assert scale.at(100.0) == 300.0
    assert scale.at(0.0) == scale.at(0.001) == 0.0
    assert scale.ticks() == pytest.approx([0.1, 1.0, 10.0, 100.0])


@pytest.mark.parametrize("values", [[], [0.0], [5.0], [10.0, 10.0], [1.0, 1000.0]])
def test_every_scale_has_room_below_its_lowest_value(values: list[float]) -> None:
    """A bar from a scale's own beginning would have no length, and look like nothing."""
    scale = plots.Log.over(values, 0.0, 100.0)
    assert scale.high - scale.low >= 2
    assert all(scale.at(value) > 0 for value in values if value > 0)


def marks(plot: str, tag: str, kind: str) -> list[ET.Element]:
    return [each for each in ET.fromstring(plot).iter(tag) if kind in each.get("class", "")]


def test_bars_are_as_long_as_their_medians_say() -> None:
    line = Line("tokens", "/s", "higher", {BARE: [1000.0], "Holdfast": [90.0, 100.0, 110.0]})
    plot = plots.bars(line, PALETTE)
    [bare] = marks(plot, "rect", "bare")
    [ours] = marks(plot, "rect", "ours")
    assert float(bare.get("width", 0)) == plots.WIDTH
    assert float(ours.get("width", 0)) == pytest.approx(plots.WIDTH / 2)
    assert len(marks(plot, "path", "spread")) == 1


def test_a_bar_of_nothing_and_a_hostile_name_can_be_drawn() -> None:
    plot = plots.bars(Line(HOSTILE, "kB", "lower", {HOSTILE: [0.0], BARE: [5.0]}), PALETTE)
    [none] = marks(plot, "rect", "peer")
    assert float(none.get("width", 1)) == 0.0


def test_curves_go_through_their_medians_and_may_end_early() -> None:
    lines = [
        Line(f"at {at}", "ms", "lower", values, curve="CPU", at=at)
        for at, values in (
            (10, {"Holdfast": [2.0], "slow": [5.0]}),
            (100, {"Holdfast": [2.0], "slow": [50.0, 60.0, 70.0]}),
            (1000, {"Holdfast": [2.0]}),
        )
    ]
    plot = plots.curves(lines, "messages", PALETTE)
    ours = [float(point.get("cy", 0)) for point in marks(plot, "circle", "ours")]
    slow = [float(point.get("cy", 0)) for point in marks(plot, "circle", "peer")]
    assert len(ours) == 3
    assert len(set(ours)) == 1
    assert len(slow) == 2
    assert slow[1] < slow[0] < ours[0]


def test_a_name_that_is_too_long_is_cut() -> None:
    assert plots.briefly("OpenAI Agents SDK", 18) == "OpenAI Agents SDK"
    assert plots.briefly("a name that goes on", 8) == "a name…"


def test_labels_that_would_lie_on_each_other_are_moved() -> None:
    placed = plots.apart({"a": 10.0, "b": 11.0, "c": 50.0, "d": 10.5}, 14.0)
    assert placed == {"a": 10.0, "d": 24.0, "b": 38.0, "c": 52.0}


def test_a_colour_is_the_same_wherever_a_system_is_drawn() -> None:
    palette = Palette([BARE, "A", "Holdfast", "B"])
    assert [palette.of(name) for name in ("B", "A", "Holdfast", BARE, "direct")] == [
        "peer1",
        "peer0",
        "ours",
        "bare",
        "floor",
    ]


# ── goals ────────────────────────────────────────────────────────────────────────────────────


def judged(value: float | None, side: str = "≤", known: str = "") -> goals.Outcome:
    goal = goals.Goal("x", "≤" if side == "≤" else "≥", 2.0, lambda _: value, known=known)
    [outcome] = goals.outcomes(goals.Known([], Semantics([], [])), [goal])
    return outcome


@pytest.mark.parametrize(
    ("value", "side", "verdict"),
    [
        (2.0, "≤", "met"),
        (2.1, "≤", "missed"),
        (2.0, "≥", "met"),
        (1.9, "≥", "missed"),
        (None, "≥", "not measured"),
    ],
)
def test_a_goal_is_met_missed_or_not_measured(value: float | None, side: str, verdict: str) -> None:
    assert judged(value, side).verdict == verdict


def test_a_missed_goal_has_its_reason_or_says_that_there_is_none() -> None:
    assert judged(3.0, known="tables").why == "tables"
    assert "no reason" in judged(3.0).why
    assert judged(1.0, known="tables").why == ""


def test_every_goal_asks_a_group_that_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that asked another would never be measured, and nobody would see it."""
    asked: set[str] = set()
    monkeypatch.setattr(goals.Known, "line", lambda _known, group, _what: asked.add(group))
    list(goals.outcomes(goals.Known([], Semantics([], []))))
    measured = importlib.import_module("speed.groups").GROUPS
    assert {group.name for group in measured} == set(GROUPS)
    assert asked
    assert asked <= set(GROUPS)


def tokens(length: int, **values: float) -> Line:
    rounds = {name: [value] for name, value in values.items()}
    return Line(tokens_at(50, length), "/s", "higher", rounds)


def test_tokens_are_compared_at_equal_lengths_alone() -> None:
    """A long answer costs less for each token: with unlike lengths, the ratio here would be 100."""
    lines = [tokens(SHORT, Holdfast=60.0, LiteLLM=2.0, Agno=1.0), tokens(LONG, Holdfast=200.0)]
    known = goals.Known(
        [Figures("tokens", "Tokens", "", UNDER, lines)],
        Semantics([], []),
    )
    found = {each.goal.words: each.value for each in goals.outcomes(known)}
    what = "Tokens per second and core at 50 streams, answers of {}, to the best of the peers"
    assert found[what.format("200")] == 30.0
    assert found[what.format("1,000")] is None
    told = "passes on 60.0 tokens a second and core: 30.0× LiteLLM, 60.0× Agno."
    assert told in "".join(sentences(known))


def test_the_best_is_whoever_does_more_with_less() -> None:
    cost = Line("CPU", "µs", "lower", {OURS: [1.0], BARE: [0.5], "Agno": [9.0], "LiteLLM": [5.0]})
    assert cost.best(besides=(OURS, BARE)) == "LiteLLM"
    assert cost.best(besides=()) == BARE
    assert Line("CPU", "µs", "lower", {OURS: [1.0]}).best(besides=(OURS,)) is None


def test_what_is_not_offered_is_not_counted_as_broken() -> None:
    assert held_of_played(Counter(["held", "held", "broken", "not offered", "not run"])) == "2/3"


def test_a_behaviour_of_ours_that_does_not_hold_is_counted() -> None:
    assert goals.Known([], semantics("broken")).broken() == 1.0
    assert goals.Known([], semantics("held")).broken() == 0.0
    assert goals.Known([], Semantics([], [])).broken() is None


# ── the page ─────────────────────────────────────────────────────────────────────────────────


def test_the_page_needs_nothing_but_itself() -> None:
    line = Line("JSON turn, p50", "ms", "lower", {BARE: [1.0], "Holdfast": [2.0]})
    page = document([group(line)], semantics())
    outline = Outline(page)
    assert outline.count("script") == outline.count("link") == outline.count("img") == 0
    assert not re.search(r"url\(|@import|https?://", page)
    assert all("src" not in attributes for _, attributes in outline.elements)
    assert not [name for _, found in outline.elements for name in found if name.startswith("on")]


def test_hostile_evidence_stays_text() -> None:
    line = Line(HOSTILE, "ms", "lower", {HOSTILE: [1.0], BARE: [2.0]}, {"other": HOSTILE})
    page = document([group(line)], semantics("broken", HOSTILE, "fine"))
    calm = document([group(line)], semantics("broken", "fine", "fine"))
    assert Outline(page).count("script") == 0
    assert len(Outline(page).elements) == len(Outline(calm).elements)
    assert "\x00" not in page
    assert "\x1b" not in page
    assert "<script>alert(1)" in "".join(Outline(page).text)


def test_every_cell_of_the_verdicts_opens_its_evidence() -> None:
    page = document([], semantics("broken", "> asked", "< 500"))
    outline = Outline(page)
    assert outline.count("details") == 2
    text = "".join(outline.text)
    assert "it was there" in text
    assert "> asked\n< 500" in text
    assert "nobody has tried this here" in text, "a system without a cell for a row"


def test_evidence_that_is_endless_is_cut_and_said_to_be() -> None:
    page = document([], semantics("held", *["x"] * (EVIDENCE_LINES + 7)))
    assert "7 more lines" in page


def test_tables_have_captions_and_every_heading_its_scope() -> None:
    line = Line("JSON turn, p50", "ms", "lower", {BARE: [1.0], "Holdfast": [2.0]})
    outline = Outline(document([group(line)], semantics()))
    assert outline.count("table") == outline.count("caption") == 4
    assert all(found.get("scope") for name, found in outline.elements if name == "th")


def test_a_page_about_nothing_says_so() -> None:
    text = "".join(Outline(document([], Semantics([], []))).text)
    assert "nothing yet" in text
    assert "No scenarios have been run here." in text
    assert "not measured" in text


def test_who_was_left_out_is_told() -> None:
    line = Line("a turn", "ms", "lower", {BARE: [1.0]}, {"LiteLLM": "keeps no sessions"})
    figures = group(line)
    figures.skipped["Peer"] = "does not start: a\nb\nImportError: x"
    text = "".join(Outline(document([figures], Semantics([], []))).text)
    assert "LiteLLM, in a turn: keeps no sessions" in text
    assert "does not start: a … ImportError: x" in text


def test_the_matrix_has_a_mark_for_every_verdict() -> None:
    plot = plots.matrix(semantics("broken"))
    assert len(marks(plot, "text", "verdict")) == 2
    assert len(marks(plot, "text", "broken")) == 1
    assert len(marks(plot, "text", "not-run")) == 1
    assert all(math.isfinite(float(each.get("x", 0))) for each in marks(plot, "text", "verdict"))
