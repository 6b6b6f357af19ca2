"""What is stored and cannot be read: judged here, and nowhere else.

1. A row that cannot be made of what a database gives, or a page that a database cannot read, is damage of what the step
   was about: of one conversation where the step names one, else of something that conversations share.
2. The operation is told where it stands, as an error that it may catch: a list goes on without the conversation. What no
   operation catches is told to the caller.
3. A write that meets damage has changed nothing, and is told in the same way; no operation catches that.
4. Whether a database with damaged pages may still be written is its home's to judge: see `sqlite/pages/survey.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.core.codec import DAMAGE
from holdfast.errors import SessionDamaged, StoreDamaged
from holdfast.observe.events import warn
from holdfast.store.sql.dialects import text_of
from holdfast.store.sql.tables import CHUNK_WORDS, CHUNKS, INDEXED, KEYS, SESSIONS, Table
from holdfast.store.steps import (
    AskStep,
    Change,
    FindStep,
    Insert,
    LookStep,
    PauseStep,
    Put,
    Step,
    WriteStep,
)

_UNMADE = (*DAMAGE, ValueError, TypeError)
"""What making a row of values raises if they cannot be its own."""

NOTED_MAX = 10_000
"""Causes that are remembered, so that each is told once; beyond that, some are told again."""

_CONVERSATION = ("key", "session_id", "turn_id", "id")
"""The given values that name a conversation, the plainest first: a request that names it by its key has a fresh id with
it, for the case that the key names none."""


def is_damage(step: Step, error: Exception, *, in_pages: bool) -> bool:
    """Whether an error of a step means that something stored cannot be read. `in_pages`: the database itself says that it
    cannot read what it has written."""
    is_read = isinstance(step, LookStep | FindStep | AskStep)
    is_unmade = isinstance(error, _UNMADE) and not isinstance(error, UnicodeEncodeError)
    return in_pages or (is_read and is_unmade)


def damage_of(step: Step, error: Exception, *, in_pages: bool, why: str) -> StoreDamaged:
    """What such an error means for what is stored; `why` is the error in words."""
    name, writing = _named(step), isinstance(step, WriteStep)
    if name is not None and not writing:
        why = f"{why}, in {_subject(step)}"
    damage = (
        StoreDamaged(_subject(step), why, in_pages=in_pages, writing=writing)
        if name is None
        else SessionDamaged(name, why, in_pages=in_pages, writing=writing)
    )
    damage.__cause__ = error
    return damage


def damage_beside(step: Step, damage: StoreDamaged) -> StoreDamaged:
    """The damage of a page that a step has done without, of an index or beside its rows: no conversation is damaged by
    it."""
    return StoreDamaged(
        f"another page of {_subject(step)}, or of an index", damage.why, in_pages=True
    )


def _named(step: Step) -> str | None:
    """The conversation that a step is about, by the first name of it that is given, or that it would write on."""
    match step:
        case LookStep(given=given) | FindStep(given=given) | AskStep(given=given):
            return next((str(given[each]) for each in _CONVERSATION if given.get(each)), None)
        case WriteStep(on=(session, *_)):
            return str(session.id)
        case WriteStep(changes=changes) if _makes_session(changes):
            return next((str(row.key) for row in _rows(changes, KEYS)), None)
        case WriteStep(changes=changes) if not _is_for_search(changes):
            return next(_written(changes), None)
        case _:
            return None


def _is_for_search(changes: Iterable[Change]) -> bool:
    """Whether only the search index is written, and how far it goes: then no conversation is damaged."""
    return all(each.table in (CHUNKS, CHUNK_WORDS, INDEXED) for each in changes)


def _makes_session(changes: Iterable[Change]) -> bool:
    """Whether a session is made, whose id no client knows yet."""
    return any(_rows(changes, SESSIONS))


def _rows(changes: Iterable[Change], table: Table[Any]) -> Iterator[Any]:
    for each in changes:
        if isinstance(each, Insert) and each.table is table:
            yield from each.rows


def _written(changes: Iterable[Change]) -> Iterator[str]:
    for each in changes:
        if isinstance(each, Insert | Put):
            yield from (str(row.session_id) for row in each.rows if hasattr(row, "session_id"))


def _subject(step: Step) -> str:
    match step:
        case WriteStep(changes=changes) if _is_for_search(changes):
            return "the search index"
        case WriteStep(changes=changes) if _makes_session(changes):
            return "a new conversation"
        case WriteStep() | PauseStep():
            return "what a server keeps for itself"
        case LookStep(look=look):
            return _listed(each.table.name for each in look.parts.values())
        case FindStep(finder=finder):
            return _listed((finder.table.name,))
        case AskStep(question=question):
            return _listed(_TABLE.findall(text_of(question.name, question.words)))


def _listed(tables: Iterable[str]) -> str:
    """Tables by name, as `holdfast db verify` names them."""
    names = sorted(set(tables))
    return f"the table {names[0]}" if len(names) == 1 else f"one of the tables {', '.join(names)}"


_TABLE = re.compile(r"@(\w+)")


class DamageLog:
    """The damage that a store has met since it was opened, each cause once."""

    def __init__(self) -> None:
        self._noted: dict[str, str] = {}

    def note(self, damage: StoreDamaged) -> None:
        """Tell the operator, unless the same was told before."""
        if damage.what not in self._noted:
            if len(self._noted) >= NOTED_MAX:
                self._noted.clear()
            self._noted[damage.what] = damage.why
            warn("store.damaged", what=damage.what, why=damage.why, code=damage.code)

    def __contains__(self, what: str) -> bool:
        return what in self._noted

    def __len__(self) -> int:
        return len(self._noted)
