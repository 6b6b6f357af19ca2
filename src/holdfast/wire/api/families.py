"""The answer of `/api/sessions/{name}/family`: the lines of a chat. The rules are those of `wire/api/objects.py`."""

from __future__ import annotations

from holdfast.core.items import EndedBy
from holdfast.wire.api.objects import AnswerBody


class LineTurn(AnswerBody):
    """A committed turn in the tree of a family."""

    id: str
    version: int
    agent: str
    ended_by: EndedBy
    asked: str
    """The beginning of its question, or of the last paragraph of a long one; empty if it brought none."""
    answered: str
    """The beginning of its last answer."""
    began_at: float


class FamilyLine(AnswerBody):
    """A line of a family: a session."""

    id: str
    keys: tuple[str, ...]
    title: str
    agent: str
    version: int
    active_at: float
    open_turn: str | None
    after: str | None
    """The turn of another line that it goes on from; null if it begins by itself."""
    exchanges: tuple[LineTurn, ...]
    """The turns that it has of its own, oldest first."""
    is_listed: bool
    """Lists show it: the name means it, or it has a name of its own."""
    is_aside: bool = False
    """It is one question about the conversation, such as for a title: it quotes a message."""


class LineFamily(AnswerBody):
    """The lines of a chat, the last active first."""

    id: str
    """The id of the first line."""
    current: str
    """The line that the name means."""
    lines: tuple[FamilyLine, ...]
    is_whole: bool
    """False if it has more lines than these."""
