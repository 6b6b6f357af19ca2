"""The lines of a chat that lists fold away, for a search: what was said in one of them is found, and told as a match of
the line that stands for the chat.

Side calls of a chat program, as for a title, are such lines, too. They quote the chat, and every chat has the same
words around the quotation; so a match in one of them does not count (`core/quotations.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.items import UserMessage, item_decoder
from holdfast.core.quotations import SaidMessages
from holdfast.ids import SessionId, Tenant
from holdfast.store.operations import lists
from holdfast.store.rows import SessionName, SessionRow
from holdfast.store.search.matches import ItemSpan, text_seen, whole_of
from holdfast.store.search.span_reader import SpanReader
from holdfast.store.steps import Operation, Question, ask

LINES_AT_ONCE = 25
AFTER_ALL = "~"
"""Sorts after the id of every session."""


FOLDED_AMONG = Question("folded_among", lists.FamilyMember)
FOLDED_LINES = Question("folded_lines", SessionRow)
FORKS = Question("forks_of", SessionName)


def folded_among(
    tenant: Tenant, ids: Iterable[SessionId]
) -> Operation[tuple[lists.FamilyMember, ...]]:
    """Those of these sessions that are folded lines."""
    return ask(FOLDED_AMONG, tenant=tenant, ids=sorted(ids), yes=True)


class FoldedLines:
    """The folded lines in which a search looks: all of a family's, or only those that an index has named."""

    def __init__(self, tenant: Tenant, named: Iterable[lists.FamilyMember] | None) -> None:
        self._tenant = tenant
        self._named: dict[SessionId, list[SessionId]] | None = None
        if named is not None:
            self._named = {}
            for each in sorted(named, key=lambda each: each.id, reverse=True):
                self._named.setdefault(each.family, []).append(each.id)

    def behind(
        self, session: SessionRow, *, before: str = AFTER_ALL
    ) -> Operation[tuple[SessionRow, ...]]:
        """Some of the lines behind the line that stands for their family, the newest first, from before an id on; none
        at the end."""
        if session.family is None or session.anonymous:
            return ()
        own = {"tenant": self._tenant, "limit": LINES_AT_ONCE, "yes": True}
        if self._named is None:
            found = yield from ask(FOLDED_LINES, family=session.family, before=before, **own)
        else:
            named = [each for each in self._named.get(session.family, ()) if each < before]
            rows = (
                (yield from ask(lists.NAMED, tenant=self._tenant, ids=named[:LINES_AT_ONCE]))
                if named
                else ()
            )
            folded = (each for each in rows if each.anonymous and each.state == "live")
            found = tuple(sorted(folded, key=lambda each: each.id, reverse=True))
        return found if found and (yield from lists.stands_for_family(session)) else ()


def is_aside(line: SessionRow, stands_for: SessionRow) -> Operation[bool]:
    """Whether a folded line is a question about the chat: one turn that begins by itself, from which no other line goes
    on, and that quotes a message of the chat."""
    if line.lineage or line.head != 1:
        return False
    if (yield from ask(FORKS, tenant=line.tenant, ids=[line.id], limit=1)):
        return False
    about = yield from _questions(line)
    others: Iterable[SessionRow] = (stands_for,)
    before = AFTER_ALL
    folded = FoldedLines(line.tenant, None)
    while others:
        for each in others:
            questions = () if each.id == line.id else (yield from _questions(each))
            if SaidMessages(questions).are_quoted_in(about):
                return True
        others = yield from folded.behind(stands_for, before=before)
        before = others[-1].id if others else before
    return False


def _questions(line: SessionRow) -> Operation[list[str]]:
    """What the user has said in a line, of its last messages."""
    spans = [
        ItemSpan(session_id=each.session_id, start=each.from_pos, end=each.upto_pos)
        for each in whole_of(line)
    ]
    reader, found = SpanReader(spans), list[str]()
    for span in spans:
        tail = yield from reader.end_of(line.tenant, span)
        items = (item_decoder.lenient(each.body) for each in reversed(tail.messages))
        found += [text_seen(each) for each in items if isinstance(each, UserMessage)]
    return found
