"""More answers of `/api`, for the console: the caller's rights, a session's history, lineage and chain, and the nodes.

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
from holdfast.wire.api.objects import (
    AnswerBody,
    RequestBody,
    TurnObject,
    UnreadableItem,
    UsageObject,
)

FlagName: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""Names with a dot are reserved for Holdfast."""
FlagValue: TypeAlias = Annotated[str, Meta(max_length=limits.attribute_value_chars_max)]


class Me(AnswerBody):
    """The caller, and its rights."""

    tenant: str
    key: str | None
    """The API key's id; null if the server needs no keys."""
    scopes: tuple[str, ...]
    currency: str = ""
    """The unit of costs, if the server was told."""


class HistoryTurn(AnswerBody):
    """One turn of a history, with its items if it was kept."""

    turn: TurnObject
    retry_of: str | None
    replayable: bool
    """Every event of the turn was recorded, and is kept for a day."""
    start: int
    """The position of its first item."""
    items: tuple[Item | UnreadableItem, ...]
    """All items, including hidden and damaged ones."""
    unseen: tuple[str, ...]
    """The ids of the items that the model does not see now."""
    hidden: tuple[str, ...]
    """The ids of the items that are hidden from people."""


class SummaryShown(AnswerBody):
    """The summary that the model sees in place of everything before a position."""

    id: str
    text: str
    covers_to: int


class Flag(AnswerBody):
    """A named flag on an item, or on the session."""

    item: str | None
    name: str
    value: str


class Annotations(AnswerBody):
    """The annotations of a history; they decide what people and the model see of it."""

    version: int
    summary: SummaryShown | None
    waiting: tuple[str, ...]
    """The calls that wait for a person, or for the client."""
    flags: tuple[Flag, ...]
    state: dict[str, str]
    """The state that tools keep in this session, as JSON by name."""


class History(AnswerBody):
    """Some turns of a session in every state, the newest first."""

    session_id: str
    pages: tuple[HistoryTurn, ...]
    before: str | None
    """The parameter for the next, older page; null at the beginning of the history."""
    annotations: Annotations


class RelatedSession(AnswerBody):
    """A session that another one was forked from, or a fork of it."""

    id: str
    title: str
    keys: tuple[str, ...]
    at: int
    """The version at which they part."""
    version: int | None
    """The session's current version; null if it was deleted."""


class Lineage(AnswerBody):
    """The sessions that a session was forked from, and its forks."""

    session_id: str
    version: int
    past: tuple[RelatedSession, ...]
    """Oldest first."""
    forks: tuple[RelatedSession, ...]
    """The direct forks, by version."""


class Damage(AnswerBody):
    """A violation of an invariant."""

    code: str
    where: str
    what: str


class Chain(AnswerBody):
    """A session's hash chain, and any damage found in the session."""

    session_id: str
    version: int
    link: str
    """The last hash of the chain, in hexadecimal."""
    problems: tuple[Damage, ...]


class Node(AnswerBody):
    """A process that holds leases."""

    id: str
    here: bool
    """This is the process that answers."""
    since: float
    expires_at: float
    """When other nodes may take over its turns, unless it renews before."""


class Nodes(AnswerBody):
    nodes: tuple[Node, ...]
    now: float
    """The clock of the process that answers."""


class NumberSample(AnswerBody):
    """The numbers of a server at a moment; they count from its start."""

    at: float
    ends: dict[str, int]
    """How many turns ended, by how."""
    admission: tuple[int, ...]
    """How long requests waited for their turn: how many fell under each bound, and not under the one before."""
    first_words: tuple[int, ...]
    commit: tuple[int, ...]


class NumbersOverTime(AnswerBody):
    """The samples of the last hour, the oldest first, and this moment's."""

    every_s: float
    bounds_s: tuple[float, ...]
    """The bounds of the durations; the last number of each is above all of them."""
    samples: tuple[NumberSample, ...]


class AgentCost(AnswerBody):
    """What the turns of one agent have used."""

    agent: str
    turns: int
    usage: UsageObject


class Costs(AnswerBody):
    """What the turns that began today have used, by agent, the dearest first."""

    since: float
    """The midnight, in UTC, at which the day began."""
    currency: str
    """The unit of costs; empty if the server was not told."""
    whole: bool
    """False if there were too many turns to read all of them."""
    agents: tuple[AgentCost, ...]


class LogRecord(AnswerBody):
    """A warning or an error of the server."""

    at: float
    level: str
    log: str
    words: str


class RecentRecords(AnswerBody):
    """The newest first."""

    node: str
    """The process that answers; other workers and replicas have records of their own."""
    records: tuple[LogRecord, ...]


# ── requests for annotations ─────────────────────────────────────────────────────────────────


class FlagAsked(RequestBody):
    """A named flag; an empty value removes it."""

    name: FlagName
    value: FlagValue = ""


class Remark(RequestBody):
    """An annotation to an item, or to the session if no item is named. A later annotation can undo it."""

    item: str | None = None
    show_to_people: bool | None = None
    show_to_model: bool | None = None
    flag: FlagAsked | None = None

    def patches(self) -> tuple[Patch, ...]:
        """The patches to append; none if the request changes nothing."""
        said: list[Patch] = []
        if self.about_visibility:
            said.append(Visibility(to_people=self.show_to_people, to_model=self.show_to_model))
        if self.flag is not None:
            said.append(Flagged(name=self.flag.name, value=self.flag.value))
        return tuple(said)

    @property
    def about_visibility(self) -> bool:
        return self.show_to_people is not None or self.show_to_model is not None


def ids_among(items: Iterable[StoredItem], chosen: frozenset[ItemId]) -> tuple[str, ...]:
    """The ids of these items that are among the chosen ones."""
    readable = (each.id for each in items if not isinstance(each, Unreadable))
    return tuple(each for each in readable if each in chosen)
