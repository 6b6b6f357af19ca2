"""The requests and answers of `/api`, as types. The server encodes answers, clients decode them.

1. Every field of an answer is always present, unless its type allows its absence by a default.
2. Clients skip unknown fields, so an answer may gain some. A request with an unknown field is refused.
3. Times are seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from holdfast.core.codec import Decoder, Unreadable, Value
from holdfast.core.history.conversation import Snapshot, seen_by_agent
from holdfast.core.items import EndedBy, Item, StoredItem
from holdfast.core.turns import events as ev
from holdfast.core.turns.journal import Record
from holdfast.wire.problems import ErrorAnswer, ErrorBody

# ── requests ─────────────────────────────────────────────────────────────────────────────────


class RequestBody(Value, forbid_unknown_fields=True):
    """The body of a request."""


class Changes(RequestBody):
    """Changes to a session. An attribute that is null is removed."""

    title: str | None = None
    attributes: dict[str, str | None] | None = None


class NewName(RequestBody):
    """A name for a session: a key by which clients find it."""

    key: str


class Place(RequestBody):
    """A place in a session's history."""

    version: Annotated[int, Meta(ge=0)] | None = None


class NewSource(RequestBody):
    """The source that a session is moved to, named by one of its agents."""

    model: str


class SourceMove(RequestBody):
    """The source whose sessions are moved, and an agent of the source that they are moved to."""

    source: str
    model: str
    anonymous: bool = False
    """Move sessions without a key, in place of the others."""
    cursor: str | None = None


class Decision(RequestBody):
    """The decision about one call. `remember` approves it from now on: its tool in this session, or,
    for an agent, this tool with these arguments; with any arguments if `arguments` says so.
    """

    approve: bool
    remember: Literal["session", "agent"] | None = None
    arguments: Literal["exact", "any"] = "exact"


class ClientFunction(RequestBody):
    """A tool that the client runs itself. `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, msgspec.Raw] = field(default_factory=dict)


class Decisions(RequestBody):
    """Decisions about all waiting calls of a turn, by their ids; and what the turn that they begin needs from a client
    with tools of its own.
    """

    decisions: dict[str, Decision]
    results: dict[str, str] = field(default_factory=dict)
    """The results of calls that wait for the client, by their `call_id`: of all of them, or of none."""
    tools: tuple[ClientFunction, ...] = ()
    """The tools that the client runs in the new turn."""
    instructions: str = ""
    """Instructions for the new turn alone."""


# ── answers ──────────────────────────────────────────────────────────────────────────────────


class AnswerBody(Value, omit_defaults=False):
    """The body of an answer, or a part of one."""


class Command(Value):
    """A named prompt that clients can offer to users. Empty fields are left out."""

    name: str
    description: str = ""
    instruction: str = ""


class AgentObject(AnswerBody):
    """An agent; `id` is the model name that a request uses."""

    id: str
    agent: str
    source: str
    description: str
    welcome_message: str
    commands: tuple[Command, ...]


class BrokenSource(AnswerBody):
    """A source that cannot be loaded now. `serving`: an older version of it is still served."""

    source: str
    problems: tuple[str, ...]
    serving: bool


class Agents(AnswerBody):
    agents: tuple[AgentObject, ...]
    broken: tuple[BrokenSource, ...]


class Excerpt(AnswerBody):
    """A piece of text; `hit` if it matches the search."""

    text: str
    hit: bool


class Match(AnswerBody):
    """Where a search has found a session. The excerpt is plain text in pieces, some of them hits; it has no markup."""

    where: Literal["title", "message"] = field(name="in")
    item: str | None
    position: int | None
    excerpt: tuple[Excerpt, ...]
    line: str | None = None
    """The line of the chat in which it was found, by its id; null if it is the session itself."""


SessionOutcome: TypeAlias = Literal["done", "running", "waiting", "unfinished", "failed"]


class Session(AnswerBody):
    """A session in a list."""

    id: str
    keys: tuple[str, ...]
    title: str
    """The title that a user has set, otherwise the beginning of the first message."""
    agent: str
    source: str
    """The name that the operator gave the source of its agents, else the file's name or the URL."""
    version: int
    items: int
    """The number of its items."""
    open_turn: str | None
    created_at: float
    active_at: float
    attributes: dict[str, str]
    family: str | None = None
    """The family of lines that it belongs to, by the id of the first line; null if it is alone under its name."""
    forked_from: str | None = None
    """The session that it was forked from, if it was."""
    match: Match | UnsetType = UNSET
    """Where the search found it; only in the answer to a search."""
    outcome: SessionOutcome | UnsetType = UNSET
    """How it stands: `done` if nothing has to be looked at. Only in a list that asks for `outcomes`."""


class SessionPage(AnswerBody):
    """Some sessions, the last active first. `cursor` leads to the next page; null at the end."""

    sessions: tuple[Session, ...]
    cursor: str | None
    damaged: tuple[str, ...] | UnsetType = UNSET
    """The ids of conversations that may belong here but cannot be read; absent if there are none."""


class Rebound(AnswerBody):
    """The sessions of a page that were moved to another source. `cursor` leads to the next page; null at the end."""

    rebound: tuple[str, ...]
    busy: tuple[str, ...]
    """The sessions that were not moved, because a turn runs in them."""
    cursor: str | None


class Deleted(AnswerBody):
    id: str
    deleted: Literal[True]


class Skipped(AnswerBody):
    """A session that was not imported, and why."""

    id: str
    why: str


class Dropped(AnswerBody):
    """Permissions that an imported session claims, such as `allow shell`, and its waiting calls (`approval of pay`).
    They have no effect."""

    id: str
    permissions: tuple[str, ...]


class Imported(AnswerBody):
    """The outcome of an import."""

    imported: tuple[str, ...]
    there_already: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    dropped: tuple[Dropped, ...] = ()


class UsageObject(ev.Usage, omit_defaults=False):
    """What one or more turns consumed. Every number is present, also a 0."""

    @classmethod
    def of(cls, usage: ev.Usage) -> UsageObject:
        return cls(**msgspec.structs.asdict(usage))


class SessionSummary(AnswerBody):
    """The summary that a session's model sees in place of earlier items, and the cost of writing it."""

    summary: str
    covers_to: int
    """The first position that the model still sees unsummarised."""
    items: int
    usage: UsageObject


class UnreadableItem(Value, tag="unreadable"):
    """Stands for an item that is damaged, or that a newer version of Holdfast has written."""


class Items(AnswerBody):
    """The items of a session at a version."""

    version: int
    items: tuple[Item | UnreadableItem, ...]


TurnState: TypeAlias = Literal["queued", "open", "committed", "discarded"]


class TurnObject(AnswerBody):
    """A turn and its outcome."""

    id: str
    session_id: str
    state: TurnState
    ended_by: EndedBy | None
    detail: str
    """Why the turn ended like this, for people; begins with a stable error code where there is one."""
    base: int
    """The version that the turn began from."""
    version: int | None
    """The version that the turn made, if it was committed."""
    attempt: int
    agent: str
    usage: UsageObject
    began_at: float
    ended_at: float | None
    continues: str | None = None
    """The unfinished turn that this one continues, if it does."""


class Turns(AnswerBody):
    """The turns of a session, including discarded ones, and their total usage."""

    turns: tuple[TurnObject, ...]
    usage: UsageObject


class WaitingCall(AnswerBody):
    """A call that waits for a person's decision."""

    id: str
    name: str
    arguments: str
    agent: str
    expires_at: float


class ListedTurn(TurnObject):
    """A turn in a list over all sessions."""

    session_title: str = ""
    """What lists call its session; empty before the first commit."""
    session_key: str | None = None
    """A key of its session, if it has one."""
    node: str | None = None
    """The node that plays it, if it is open; null while it is queued or waits to be taken over."""
    tool: str | None = None
    """The tools that run in it now."""
    age_s: float = 0.0
    """How long it has taken so far, or until its end."""


class ListedTurns(AnswerBody):
    turns: tuple[ListedTurn, ...]


class InboxCall(WaitingCall):
    """A call that waits for a person's decision, and where it waits."""

    turn_id: str = ""
    session_id: str = ""
    session_title: str = ""
    session_key: str | None = None
    asked_at: float = 0.0


class ApprovalInbox(AnswerBody):
    approvals: tuple[InboxCall, ...]


class WaitingCalls(AnswerBody):
    approvals: tuple[WaitingCall, ...]


class GrantObject(AnswerBody):
    """An approval that is remembered for an agent. `session` null: in every session. `arguments` null: any.
    `revoked_at` null: it is in force."""

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
    """An event of a turn. Its other fields depend on its type."""

    n: int
    """The event's number in the turn."""
    at_ms: int
    event: dict[str, msgspec.Raw]


class TurnEnded(AnswerBody):
    """The last frame of a turn's events: the turn's outcome."""

    turn: TurnObject


class _Frame(Value):
    n: int = 0
    at_ms: int = 0
    event: ev.Event | None = None
    turn: TurnObject | None = None
    error: ErrorBody | None = None


_frames: Decoder[_Frame] = Decoder(_Frame)


def read_event(data: bytes) -> Record | TurnEnded | ErrorAnswer:
    """A frame of `GET /api/turns/{id}/events`. Raises msgspec.DecodeError for anything else."""
    frame = _frames.strict(data)
    if frame.turn is not None:
        return TurnEnded(turn=frame.turn)
    if frame.error is not None:
        return ErrorAnswer(error=frame.error)
    if frame.event is not None:
        return Record(n=frame.n, at_ms=frame.at_ms, event=frame.event)
    raise msgspec.ValidationError("a frame has an event, a turn or an error")


# ── from snapshots ───────────────────────────────────────────────────────────────────────────


def items_of(snapshot: Snapshot, *, as_model: bool = False, items_max: int | None = None) -> Items:
    """All items, or those that the model sees now, of which `items_max` is the most."""
    seen = seen_by_agent(snapshot, items_max=items_max) if as_model else snapshot.items
    return Items(version=snapshot.version, items=items_shown(seen))


def items_shown(items: Iterable[StoredItem]) -> tuple[Item | UnreadableItem, ...]:
    """Items for an answer: an unreadable item keeps its place, without content."""
    return tuple(UnreadableItem() if isinstance(each, Unreadable) else each for each in items)
