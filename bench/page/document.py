"""The whole page: one file that needs nothing else, no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from _figures import OURS, Figures, Semantics

from page import goals, headlines, speed, verdicts, words
from page.markup import Child, Html, coded, el
from page.palette import Palette
from page.tables import Row, table

CSS = Html((Path(__file__).parent / "sheet.css").read_text(encoding="utf-8"))

NOT_MEASURED = (
    (
        "Real models, networks and TLS: the model here answers at once, and everything is on loopback. "
        "What a person waits for is mostly the model."
    ),
    "Turns with tools, long inputs, images; turns that fail. What happens to those is the table of behaviours.",
    "PostgreSQL and several servers: `make bench-parts` measures those, without peers.",
    "Several processes of one server: everybody runs as one, as it comes.",
    (
        "The same event loop for everybody: Holdfast and the bare proxy run on uvloop and httptools, which they bring "
        "along; a peer that asks for plain uvicorn runs on asyncio and h11. It was seen to matter little."
    ),
    (
        "The same request for everybody: systems with an agent have its instructions and its tool, which nobody "
        "calls; the bare proxy and LiteLLM are sent messages alone."
    ),
    (
        "Whether the others sync what they write. A turn that is not on disk when it is answered is quicker, and may be "
        "gone; the table of behaviours says what was still there after a kill. Nobody pulled a plug."
    ),
    "Hours: leaks, growth of files over weeks, log rotation, compaction of long conversations.",
    "Other ways to set a system up than the one that its section names. Tuned by its own people, each may do better.",
    (
        "A machine of its own for each part: the client, the upstream and the server share the cores, so that elapsed "
        "times are longer than they need be. CPU times are the server's alone."
    ),
)


TURNS = (
    f"{OURS} and the bare proxy took turns, round by round, and their figures are medians; the others mostly had one "
    "round, in between. Each figure says its range, or that it is of one round."
)


def document(figures: Sequence[Figures], semantics: Semantics) -> Html:
    palette = Palette(name for each in figures for name in each.systems())
    known = goals.Known(figures, semantics)
    parts: list[tuple[str, str, Child]] = [
        ("behaviours", "What holds", verdicts.section(semantics)),
        ("goals", "Goals", goals.section(list(goals.outcomes(known)))),
        ("speed", "What it costs", [speed.section(each, palette) for each in figures]),
        ("conditions", "Under what", conditions(figures)),
        ("not-measured", "What was not measured", _not_measured(figures)),
    ]
    body = el(
        "body",
        el(
            "header",
            el("h1", f"{OURS}: the report card"),
            el("p", _lead(figures, semantics), class_="lead"),
            el("ul", [el("li", each) for each in headlines.sentences(known)], class_="headlines"),
            el(
                "nav",
                el("ul", [el("li", el("a", title, href=f"#{at}")) for at, title, _ in parts]),
                aria_label="Sections",
            ),
        ),
        el(
            "main",
            [el("section", el("h2", title), inside, id=at) for at, title, inside in parts],
        ),
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"{OURS}: the report card"),
        el("style", CSS),
    )
    return Html(f"<!doctype html>\n{el('html', head, body, lang='en')}\n")


def picture(plot: Html, title: str, note: str) -> Html:
    """A page with one plot, to be photographed."""
    head = el("head", el("meta", charset="utf-8"), el("style", CSS))
    caption = el("figcaption", el("b", words.capital(title)), note)
    return Html(
        f"<!doctype html>{el('html', head, el('body', el('figure', caption, plot), class_='picture'))}"
    )


def _lead(figures: Sequence[Figures], semantics: Semantics) -> str:
    days = sorted(
        {each.conditions.at[:10] for each in figures}
        | {column.ran_at[:10] for column in semantics.columns}
    )
    when = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "no day"
    systems = dict.fromkeys(name for each in figures for name in each.conditions.versions)
    asked = dict.fromkeys(column.title for column in semantics.columns)
    machines = dict.fromkeys(
        f"{each.conditions.machine} with {each.conditions.cores} cores" for each in figures
    )
    where = f" on {' and '.join(machines)}" if machines else ""
    speeds = f"{len(figures)} groups of speed ({', '.join(systems)})" if figures else ""
    behaviours = (
        f"{len(semantics.behaviours)} behaviours ({', '.join(asked)})" if semantics.columns else ""
    )
    what = " and ".join(filter(None, (behaviours, speeds))) or "nothing yet"
    return f"Measured on {when}{where}: {what}. {TURNS}"


def conditions(figures: Sequence[Figures]) -> list[Html]:
    if not figures:
        return [el("p", "Nothing was measured.", class_="empty")]
    rows = [
        Row(
            each.title,
            [
                (each.conditions.at.replace("T", " ").removesuffix("+00:00"), "figure"),
                (f"{each.seconds:.0f} s", "figure"),
                (f"{each.conditions.load:.1f}", "figure"),
                (words.said(each.conditions.sync_ms, "ms"), "figure"),
                (_if_measured(each.conditions.counting_ms, "ms"), "figure"),
            ],
        )
        for each in figures
    ]
    facts = {
        "Machine": [_machine(each) for each in figures],
        "Kernel": [each.conditions.kernel for each in figures],
        "Python": [each.conditions.python for each in figures],
        "SQLite": [each.conditions.sqlite for each in figures],
        "Versions": [
            f"{name} {version}"
            for each in figures
            for name, version in each.conditions.versions.items()
        ],
    }
    return [
        el(
            "dl",
            [
                (el("dt", name), el("dd", "; ".join(dict.fromkeys(found))))
                for name, found in facts.items()
            ],
            class_="setup",
        ),
        table(
            "When each group began (UTC), how long it took, the load average of the minute before, what a bare "
            "write with a sync took on this disk, and what this Python took to count to a million",
            "group",
            ["began", "took", "load", "a sync", "a million"],
            rows,
        ),
    ]


def _if_measured(value: float, unit: str) -> str:
    return words.said(value, unit) if value else "–"


def _machine(figures: Figures) -> str:
    under = figures.conditions
    return f"{under.machine}, {under.cores} cores, {under.memory_gb:g} GB"


def _not_measured(figures: Sequence[Figures]) -> Html:
    left_out = {
        f"{name}, in {line.what}: {speed.first_line(why)}"
        for each in figures
        for line in each.lines
        for name, why in line.notes.items()
        if name not in line.values
    }
    skipped = {
        f"{name}: {speed.first_line(why)}" for each in figures for name, why in each.skipped.items()
    }
    return el(
        "ul", [el("li", coded(each)) for each in (*NOT_MEASURED, *sorted(skipped | left_out))]
    )
