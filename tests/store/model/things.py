"""What there is in the model: sessions, turns and claims, and how the store's rows would show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.core.history.conversation import Annotation, Commit, Snapshot
from holdfast.core.items import EndedBy, SessionSettings, UserMessage, text_of
from holdfast.core.turns.events import TurnRequest
from holdfast.ids import IdempotencyKey, NodeId, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.store import outcomes
from holdfast.store.rows import (
    IdempotencyRow,
    IdempotencyState,
    JournalRow,
    KeyRow,
    MemoryRow,
    SessionRow,
    SignalRow,
    TurnRow,
    TurnState,
)


@dataclass
class Entry:
    """Something that happened to a session, and in which session it did: a fork copies entries."""

    owner: SessionId
    what: Commit | Annotation


@dataclass(repr=False, eq=False)
class Session:
    tenant: Tenant
    id: SessionId
    created_ms: int
    active_ms: int
    anonymous: bool = False
    story: list[Entry] = field(default_factory=list)
    past: list[SessionId] = field(default_factory=list)
    """The sessions that it reads, oldest first: their bytes stay as long as this one lives."""
    token: int = 0
    open: Turn | None = None
    queue: list[Turn] = field(default_factory=list)
    """The turns that wait for it, the first one first."""
    unfinished: int | None = None
    """The version that its last commit left unfinished, here and in no fork."""
    retries_left: int | None = None
    deleted: bool = False

    def __repr__(self) -> str:
        return f"<{self.id} of {self.tenant}, at {self.head.version}, open={self.open}>"

    def at(self, version: int) -> list[Entry] | None:
        """The story of a version: up to the commit that made the next one. None: no such version."""
        commits = [at for at, each in enumerate(self.story) if isinstance(each.what, Commit)]
        if version > len(commits):
            return None
        return self.story[: commits[version]] if version < len(commits) else self.story

    @property
    def head(self) -> Snapshot:
        return told(self.id, self.story)

    @property
    def row(self) -> SessionRow:
        """As the store shows it; how it keeps a fork's past, and old nonces, is its own business."""
        head = self.head
        opening = next(_first_words(self.story), "")
        return SessionRow(
            tenant=self.tenant,
            id=self.id,
            head=head.version,
            length=len(head.items),
            link=head.link,
            lease_token=self.token,
            lease_nonce=self.open.nonce if self.open else "",
            lease_node=self.open.node if self.open else None,
            open_turn=self.open.id if self.open else None,
            source_key=head.source_key,
            entry_agent=head.entry_agent,
            agent=head.agent,
            settings=SessionSettings() if self.deleted else head.notes.settings,
            meta_rev=head.notes.rev,
            summary_rev=head.notes.summary_rev,
            title="" if self.deleted else head.notes.title,
            opening="" if self.deleted else opening,
            state="deleted" if self.deleted else "live",
            anonymous=self.anonymous,
            created_ms=self.created_ms,
            active_ms=self.active_ms,
            unfinished=None if self.unfinished is None else Version(self.unfinished),
            retries_left=self.retries_left,
        )


def told(session_id: SessionId, story: Sequence[Entry]) -> Snapshot:
    """The snapshot that a story adds up to."""
    snapshot = Snapshot(session_id=session_id)
    for each in story:
        if isinstance(each.what, Commit):
            snapshot = snapshot.with_commit(each.what)
        else:
            snapshot = snapshot.with_annotations(each.what)
    return snapshot


def _first_words(story: Sequence[Entry]) -> Iterator[str]:
    """The model's messages are short, so their first words are all of them."""
    for each in story:
        items = each.what.items if isinstance(each.what, Commit) else ()
        yield from (text_of(item.content) for item in items if isinstance(item, UserMessage))


@dataclass(repr=False, eq=False)
class Turn:
    """A turn, with everything that was said to it and in it."""

    ask: outcomes.Begin
    known: outcomes.Attempt
    """What it is recognised by: its own request, or that of the turn which it continues."""
    session: Session
    created: bool
    retry_of: TurnId | None
    began_ms: int
    token: int
    nonce: str
    node: NodeId | None
    attempt: int = 1
    state: TurnState = "open"
    ended_by: EndedBy | None = None
    detail: str = ""
    ended_ms: int = 0
    acked: bool = False
    replayable: bool = False
    journal: list[JournalRow] = field(default_factory=list)
    signals: list[SignalRow] = field(default_factory=list)
    commit: Commit | None = None
    links: int | None = None
    start: int = 0
    rev: int = 0

    def __repr__(self) -> str:
        return f"<{self.id}, {self.state}, token={self.token}>"

    def wrote(self, n: int, records: bytes, *, token: int) -> None:
        """Its journal has these records from number `n` on."""
        row = JournalRow(
            tenant=self.session.tenant, turn_id=self.id, n=n, token=token, records=records
        )
        self.journal.append(row)

    @property
    def request(self) -> TurnRequest:
        return self.ask.request

    @property
    def id(self) -> TurnId:
        return self.request.turn_id

    @property
    def fence(self) -> outcomes.Fence:
        return outcomes.Fence(
            tenant=self.session.tenant,
            session_id=self.session.id,
            turn_id=self.id,
            token=self.token,
            nonce=self.nonce,
        )

    @property
    def steers(self) -> list[SignalRow]:
        return [each for each in self.signals if each.kind == "steer" and not each.consumed]

    @property
    def row(self) -> TurnRow:
        row = TurnRow(
            tenant=self.session.tenant,
            turn_id=self.id,
            session_id=self.session.id,
            base_head=self.request.base,
            state=self.state,
            ended_by=self.ended_by,
            detail=self.detail,
            attempt=self.attempt,
            retry_of=self.retry_of,
            client_attempt=self.known.client_attempt,
            lease_token=self.token,
            agent=self.request.agent,
            source_digest=self.request.source_digest,
            request_hash=self.known.request_hash,
            replayable=self.replayable,
            acked=self.acked,
            began_ms=self.began_ms,
            ended_ms=self.ended_ms,
            continues=self.request.continues,
            links=self.links,
        )
        made = self.commit
        if made is None:
            return row
        return msgspec.structs.replace(
            row,
            seq=made.version,
            agent=made.agent,
            start=self.start,
            end=self.start + len(made.items),
            rev=self.rev,
            changes=made.changes,
            link=made.link,
            usage=made.usage,
        )


@dataclass
class Claim:
    """What an idempotency key stands for."""

    key: IdempotencyKey
    request_hash: bytes
    turn: Turn
    state: IdempotencyState = "running"
    expires_ms: int = 0
    steer: int | None = None
    """The number of the signal, if it was said to a turn of somebody else."""

    @property
    def was_heard(self) -> bool:
        """Whether the turn knows about it: its own request, or words that it has heard."""
        return self.steer is None or self.turn.signals[self.steer - 1].consumed

    @property
    def row(self) -> IdempotencyRow:
        return IdempotencyRow(
            tenant=self.turn.session.tenant,
            key=self.key,
            request_hash=self.request_hash,
            turn_id=self.turn.id,
            state=self.state,
            expires_ms=self.expires_ms,
            steer=self.steer,
        )


@dataclass
class Rows:
    """Everything that one tenant has."""

    sessions: dict[SessionId, Session] = field(default_factory=dict)
    keys: dict[SessionKey, KeyRow] = field(default_factory=dict)
    turns: dict[TurnId, Turn] = field(default_factory=dict)
    claims: dict[IdempotencyKey, Claim] = field(default_factory=dict)
    memories: dict[tuple[str, str], MemoryRow] = field(default_factory=dict)
