"""What `/api` tells the console beyond lists: who asks, a history turn by turn, where its line forks, who holds leases.

The rules are those of `wire/api/objects.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeAlias

from msgspec import Meta

from holdfast import limits
from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import Flagged, Patch, Visibility
from holdfast.core.items import Item, StoredItem
from holdfast.ids import ItemId
from holdfast.wire.api.objects import AnswerBody, RequestBody, TurnObject, UnreadableItem

FlagName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""Names with a dot in them are ours."""
FlagValue: TypeAlias = Annotated[str, Meta(max_length=limits.attribute_value_chars_max)]


class Me(AnswerBody):
    """Who asks, and what they may."""

    tenant: str
    key: str | None
    """The API key's id; null where none is needed."""
    scopes: tuple[str, ...]


class HistoryTurn(AnswerBody):
    """One turn in a history, and what it brought if it was kept."""

    turn: TurnObject
    retry_of: str | None
    replayable: bool
    """Every event of it was written down, and is kept for a day."""
    start: int
    """The position of its first item."""
    items: tuple[Item | UnreadableItem, ...]
    """As they are, hidden ones and damage included."""
    unseen: tuple[str, ...]
    """Those of its items that the model does not see now."""
    hidden: tuple[str, ...]
    """Those that were hidden from people."""


class SummaryShown(AnswerBody):
    """What the model sees in place of everything before a position."""

    id: str
    text: str
    covers_to: int


class Flag(AnswerBody):
    """A remark about an item, or about the session."""

    item: str | None
    name: str
    value: str


class Annotations(AnswerBody):
    """What stands beside a history, and decides who sees what of it."""

    version: int
    summary: SummaryShown | None
    waiting: tuple[str, ...]
    """The calls that wait for a person, or for the client."""
    flags: tuple[Flag, ...]
    state: dict[str, str]
    """What tools remember in this session, as JSON by name."""


class History(AnswerBody):
    """Some turns of a session in every state, the newest first, and where to go on."""

    session_id: str
    pages: tuple[HistoryTurn, ...]
    before: str | None
    """What to ask for next, to go further back; null at the beginning."""
    annotations: Annotations


class RelatedSession(AnswerBody):
    """A session beside another one: one that it forked from, or that forks from it."""

    id: str
    title: str
    keys: tuple[str, ...]
    at: int
    """The version at which they part."""
    version: int | None
    """Where it is now; null if it was deleted."""


class Lineage(AnswerBody):
    """Where a session's line comes from, and where others leave it."""

    session_id: str
    version: int
    past: tuple[RelatedSession, ...]
    """Oldest first."""
    forks: tuple[RelatedSession, ...]
    """The direct ones, by version."""


class Damage(AnswerBody):
    """Something that must never be."""

    code: str
    where: str
    what: str


class Chain(AnswerBody):
    """A session's chain of hashes, and what was found wrong with it and everything around it."""

    session_id: str
    version: int
    link: str
    """The end of the chain, in hexadecimal."""
    problems: tuple[Damage, ...]


class Node(AnswerBody):
    """A process that holds leases."""

    id: str
    here: bool
    """It is the one that answers."""
    since: float
    expires_at: float
    """When others may take over its turns, if it does not say before that it is alive."""


class Nodes(AnswerBody):
    nodes: tuple[Node, ...]
    now: float
    """By the clock of the process that answers."""


# ── remarks ──────────────────────────────────────────────────────────────────────────────────


class FlagAsked(RequestBody):
    """A named remark; an empty value takes it away."""

    name: FlagName
    value: FlagValue = ""


class Remark(RequestBody):
    """Something to say about an item, or about the session if none is named. Another one can take it back."""

    item: str | None = None
    show_to_people: bool | None = None
    show_to_model: bool | None = None
    flag: FlagAsked | None = None

    def patches(self) -> tuple[Patch, ...]:
        """What is to be appended; nothing, if nothing was said."""
        said: list[Patch] = []
        if self.about_visibility:
            said.append(Visibility(to_people=self.show_to_people, to_model=self.show_to_model))
        if self.flag is not None:
            said.append(Flagged(name=self.flag.name, value=self.flag.value))
        return tuple(said)

    @property
    def about_visibility(self) -> bool:
        return self.show_to_people is not None or self.show_to_model is not None


def items_shown(items: Iterable[StoredItem]) -> tuple[Item | UnreadableItem, ...]:
    """Items as answers have them: what cannot be read has a place, and nothing else."""
    return tuple(UnreadableItem() if isinstance(each, Unreadable) else each for each in items)


def ids_among(items: Iterable[StoredItem], chosen: frozenset[ItemId]) -> tuple[str, ...]:
    """The ids of those items that are among these."""
    readable = (each.id for each in items if not isinstance(each, Unreadable))
    return tuple(each for each in readable if each in chosen)
