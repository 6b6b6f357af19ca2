"""`/api` as values: what it is asked, and what it answers. The server encodes them, clients decode them.

1. Every field of an answer is always there, unless its type says that it may be absent: by a default.
2. Readers skip fields that they do not know, so an answer may gain some. A request may not say what nobody reads.
3. Times are seconds since 1970.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from holdfast.core.codec import Decoder, Unreadable, Value
from holdfast.core.history.conversation import Snapshot, seen_by_agent
from holdfast.core.items import EndedBy, Item, StoredItem
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.wire.problems import ErrorAnswer, ErrorBody

# ── what is asked ────────────────────────────────────────────────────────────────────────────


class RequestBody(Value, forbid_unknown_fields=True):
    """A body of a request."""


class Changes(RequestBody):
    """What can be changed about a session. An attribute that is null is taken away."""

    title: str | None = None
    attributes: dict[str, str | None] | None = None


class Place(RequestBody):
    """Where in a session's past."""

    version: Annotated[int, Meta(ge=0)] | None = None


class Decision(RequestBody):
    """The answer about one call. `remember` spares the question from now on: about its tool in this session, or,
    for an agent, about this tool with these arguments; about any arguments if `arguments` says so.
    """

    approve: bool
    remember: Literal["session", "agent"] | None = None
    arguments: Literal["exact", "any"] = "exact"


class Decisions(RequestBody):
    """Answers about all calls of a turn that wait for one, by their ids."""

    decisions: dict[str, Decision]


# ── what is answered ─────────────────────────────────────────────────────────────────────────


class AnswerBody(Value, omit_defaults=False):
    """A body of an answer, or a part of one."""


class Command(Value):
    """A prompt with a name, for clients to offer. What it has nothing to say about is left out."""

    name: str
    description: str = ""
    instruction: str = ""


class AgentObject(AnswerBody):
    """Somebody who can be asked; `id` is the model to name."""

    id: str
    agent: str
    source: str
    description: str
    welcome_message: str
    commands: tuple[Command, ...]


class BrokenSource(AnswerBody):
    """A source that cannot be loaded as it is now. `serving`: an older version of it goes on."""

    source: str
    problems: tuple[str, ...]
    serving: bool


class Agents(AnswerBody):
    agents: tuple[AgentObject, ...]
    broken: tuple[BrokenSource, ...]


class Excerpt(AnswerBody):
    """A piece of text; `hit` if it is what was searched for."""

    text: str
    hit: bool


class Match(AnswerBody):
    """Where a session was found. The excerpt is text in pieces, some of them hits; there is no markup in it."""

    where: Literal["title", "message"] = field(name="in")
    item: str | None
    position: int | None
    excerpt: tuple[Excerpt, ...]


class Session(AnswerBody):
    """A session as lists show it."""

    id: str
    keys: tuple[str, ...]
    title: str
    """What somebody called it, or else the first words in it."""
    agent: str
    version: int
    items: int
    """How many items it has."""
    open_turn: str | None
    created_at: float
    active_at: float
    attributes: dict[str, str]
    match: Match | UnsetType = UNSET
    """Where it was found; in the answer to a search only."""


class SessionPage(AnswerBody):
    """Some sessions, the last active first, and where to go on. `cursor` is null at the end."""

    sessions: tuple[Session, ...]
    cursor: str | None
    damaged: tuple[str, ...] | UnsetType = UNSET
    """The ids of conversations that may belong here and cannot be read; left out where there are none."""


class Deleted(AnswerBody):
    id: str
    deleted: Literal[True]


class Skipped(AnswerBody):
    """A session that was not taken in, and why."""

    id: str
    why: str


class Dropped(AnswerBody):
    """Permissions that an imported session claims, such as `allow shell`, and calls that wait in it (`approval of pay`).
    They have no effect."""

    id: str
    permissions: tuple[str, ...]


class Imported(AnswerBody):
    """What became of the sessions in an export."""

    imported: tuple[str, ...]
    there_already: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    dropped: tuple[Dropped, ...] = ()


class UsageObject(ev.Usage, omit_defaults=False):
    """What a turn, or several, consumed. Every number is said, also a 0."""

    @classmethod
    def of(cls, usage: ev.Usage) -> UsageObject:
        return cls(**msgspec.structs.asdict(usage))


class SessionSummary(AnswerBody):
    """What a session's model sees in place of its past, and what writing it took."""

    summary: str
    covers_to: int
    """The first position that the model still sees as it was said."""
    items: int
    usage: UsageObject


class UnreadableItem(Value, tag="unreadable"):
    """Stands for an item that is damaged, or that a newer version has written."""


class Items(AnswerBody):
    """The items of a session at a version."""

    version: int
    items: tuple[Item | UnreadableItem, ...]


TurnState: TypeAlias = Literal["queued", "open", "committed", "discarded"]


class TurnObject(AnswerBody):
    """A turn, and what became of it."""

    id: str
    session_id: str
    state: TurnState
    ended_by: EndedBy | None
    detail: str
    """Why it ended so, for people; with a stable error code in front where there is one."""
    base: int
    """The version that it began from."""
    version: int | None
    """The one that it made, if it was committed."""
    attempt: int
    agent: str
    usage: UsageObject
    began_at: float
    ended_at: float | None
    continues: str | None = None
    """The unfinished turn that it goes on with, if it does."""


class Turns(AnswerBody):
    """The turns of a session, discarded ones too, and what they consumed together."""

    turns: tuple[TurnObject, ...]
    usage: UsageObject


class WaitingCall(AnswerBody):
    """A call that waits for a person to decide on it."""

    id: str
    name: str
    arguments: str
    agent: str
    expires_at: float


class WaitingCalls(AnswerBody):
    approvals: tuple[WaitingCall, ...]


class GrantObject(AnswerBody):
    """An approval that is remembered for an agent. `session` null: in every session. `arguments` null: any.
    `revoked_at` null: it holds."""

    id: str
    source: str
    agent: str
    tool: str
    arguments: str | None
    call: str
    made_at: float
    made_by: str | None
    revoked_at: float | None
    session: str | None = None


class Grants(AnswerBody):
    grants: tuple[GrantObject, ...]
    has_more: bool


# ── the events of a turn ─────────────────────────────────────────────────────────────────────


class TurnEvent(msgspec.Struct):
    """Something that happened in a turn. What an event says beside its type depends on that."""

    n: int
    """Its number in the turn."""
    at_ms: int
    event: dict[str, msgspec.Raw]


class TurnEnded(AnswerBody):
    """The last frame of a turn's events: what it became."""

    turn: TurnObject


class _Frame(Value):
    n: int = 0
    at_ms: int = 0
    event: ev.Event | None = None
    turn: TurnObject | None = None
    error: ErrorBody | None = None


_frames: Decoder[_Frame] = Decoder(_Frame)


def read_event(data: bytes) -> Record | TurnEnded | ErrorAnswer:
    """A frame of `GET /api/turns/{id}/events`. Raises msgspec.DecodeError for what is none."""
    frame = _frames.strict(data)
    if frame.turn is not None:
        return TurnEnded(turn=frame.turn)
    if frame.error is not None:
        return ErrorAnswer(error=frame.error)
    if frame.event is not None:
        return Record(n=frame.n, at_ms=frame.at_ms, event=frame.event)
    raise msgspec.ValidationError("a frame has an event, a turn or an error")


# ── from what we have ────────────────────────────────────────────────────────────────────────


def items_of(snapshot: Snapshot, *, as_model: bool = False, items_max: int | None = None) -> Items:
    """All items as they are, or those that the model sees now: of an agent that sees so many at most."""
    seen = seen_by_agent(snapshot, items_max=items_max) if as_model else snapshot.items
    return Items(version=snapshot.version, items=tuple(map(_readable, seen)))


def _readable(item: StoredItem) -> Item | UnreadableItem:
    return UnreadableItem() if isinstance(item, Unreadable) else item
