"""Tables that stay tables on a phone: each row becomes a block there, and each cell says whose it is.

Roles are given by hand, because a browser that is told to lay a table out as blocks forgets that it was one.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from page.markup import Child, Html, el


class Row(Struct, frozen=True):
    """A heading, and a cell for each column: what is in it, and the class by which it is styled."""

    heading: Child
    cells: Sequence[tuple[Child, str]]


def table(
    caption: Child, corner: str, columns: Sequence[str], rows: Sequence[Row], *, kind: str = ""
) -> Html:
    head = el(
        "tr",
        el("th", corner, scope="col", role="columnheader"),
        [el("th", el("span", name), scope="col", role="columnheader") for name in columns],
        role="row",
    )
    body = [
        el(
            "tr",
            el("th", row.heading, scope="row", role="rowheader"),
            [
                el("td", inside, role="cell", class_=style or None, data_of=name)
                for name, (inside, style) in zip(columns, row.cells, strict=True)
            ],
            role="row",
        )
        for row in rows
    ]
    return el(
        "table",
        el("caption", caption),
        el("thead", head, role="rowgroup"),
        el("tbody", body, role="rowgroup"),
        role="table",
        class_=kind or None,
    )
