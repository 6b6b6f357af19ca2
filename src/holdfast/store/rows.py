"""What a store holds, as values. One struct a table; the homes differ only in how they keep them.

Times are milliseconds by the store's own clock. `docs/reference/store.md` draws how the tables hang together.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from holdfast.core.codec import Value
from holdfast.core.grants import Grant
from holdfast.core.history.conversation import Lineage
from holdfast.core.items import EndedBy, SessionSettings
from holdfast.core.turns.events import Change, Usage
from holdfast.ids import (
    CallId,
    GrantId,
    IdempotencyKey,
    ItemId,
    KeyId,
    NodeId,
    SessionId,
    SessionKey,
    Tenant,
    TurnId,
    Version,
)

Bytes: TypeAlias = bytes
WORDS = "words"
Words: TypeAlias = Annotated[str, WORDS]
"""What people, models and agent files say: any text, U+0000 included, which not every database calls text."""


LEXEMES = "lexemes"
Lexemes: TypeAlias = Annotated[str, LEXEMES]
"""Words for an index of words, each once, with a space between them."""


class NodeRow(Value):
    """One boot of a process. `since_ms`: renewed without a gap since then."""

    node_id: NodeId
    ttl_ms: int
    since_ms: int
    expires_ms: int
    slot: int = 0
    """SQLite: the byte of the side file that this process has locked. 0 elsewhere."""


SessionState: TypeAlias = Literal["live", "deleted"]


class SessionRow(Value):
    """A session. What its items say is elsewhere; this is what has to be locked and listed."""

    tenant: Tenant
    id: SessionId
    head: Version = Version(0)
    length: int = 0
    """Positions in the history, a fork's past included: where the next item goes."""
    link: bytes = b""
    """The hash chain's end."""
    lease_token: int = 0
    """Grows with every turn and takeover; a write with a smaller one is refused."""
    lease_nonce: str = ""
    """Tells two holders apart even if a restored backup hands out the same token twice."""
    lease_node: NodeId | None = None
    """Who plays the open turn; None if it was handed over by a node that drained."""
    open_turn: TurnId | None = None
    source_key: Words = ""
    entry_agent: Words = ""
    agent: Words = ""
    lineage: Lineage = ()
    settings: SessionSettings = SessionSettings()
    meta_rev: int = 0
    summary_rev: int = 0
    title: Words = ""
    """What somebody called it; empty if nobody did."""
    opening: Words = ""
    """The first words of its first message: what lists show without a title."""
    state: SessionState = "live"
    anonymous: bool = False
    """A line that nobody named: listed on request only, and it expires."""
    created_ms: int = 0
    active_ms: int = 0
    unfinished: Version | None = None
    """The version whose turn broke off and can be continued here, if it is still the head."""
    retries_left: int | None = None
    """How many retries may still continue it; None if only a person does."""


class SessionName(Value):
    """A session by its id alone."""

    id: SessionId


class Tombstone(Value):
    """What retention needs of a deleted session; what may be damaged is left out, so that it does not delay the others."""

    tenant: Tenant
    id: SessionId
    length: int
    meta_rev: int
    bytes_gone: bool
    """Nothing of it is left but its row."""
    indexed_length: int
    indexed_rev: int


class KeyRow(Value):
    """What a client's name means now. `generation` counts resets and rewinds."""

    tenant: Tenant
    key: SessionKey
    session_id: SessionId
    generation: int = 1


TurnState: TypeAlias = Literal["queued", "open", "committed", "discarded"]


class TurnRow(Value):
    """A turn, from its begin to its retention. `seq` is the version it made, if it was committed."""

    tenant: Tenant
    turn_id: TurnId
    session_id: SessionId
    base_head: Version
    state: TurnState
    seq: Version | None = None
    ended_by: EndedBy | None = None
    detail: Words = ""
    """Why it ended so, for people; with a stable error code in front where there is one."""
    attempt: int = 1
    """Counts crashes; a hand-over does not count."""
    retry_of: TurnId | None = None
    client_attempt: int = 0
    """The SDK's own retry count when it began (`x-stainless-retry-count`)."""
    lease_token: int = 0
    """Of whoever played it last; 0 if that was in another store, and it came from a file."""
    agent: Words = ""
    source_digest: Words = ""
    request_hash: bytes = b""
    replayable: bool = False
    start: int = 0
    end: int = 0
    """Positions of its items, if it was committed."""
    rev: int = 0
    """The annotation revision when it was committed."""
    changes: tuple[Change, ...] = ()
    link: bytes = b""
    usage: Usage = Usage()
    acked: bool = False
    """The answer was handed to the client's socket, to its last byte."""
    began_ms: int = 0
    ended_ms: int = 0
    continues: TurnId | None = None
    """The unfinished turn that it goes on with: the one that made `base_head`."""
    links: int | None = None
    """Written with the commit of a continuation: how many in a row, up to it, were begun by retries. Without it, the
    commit was made by a server that knows of no continuations, and is none."""


IdempotencyState: TypeAlias = Literal["running", "done", "failed"]


class IdempotencyRow(Value):
    """A client's key for one request. Running never expires; done and failed do, a day after the end."""

    tenant: Tenant
    key: IdempotencyKey
    request_hash: bytes
    turn_id: TurnId
    state: IdempotencyState
    expires_ms: int = 0
    steer: int | None = None
    """The number of the signal by which the request was said to the turn of another; None: it is its own."""


SignalKind: TypeAlias = Literal["cancel", "interrupt", "steer"]


class SignalRow(Value):
    """A wish that reaches a turn's owner from anywhere. A steer is consumed once, or begins a turn."""

    tenant: Tenant
    turn_id: TurnId
    n: int
    kind: SignalKind
    payload: bytes = b""
    consumed: bool = False
    at_ms: int = 0


class AnnotationRow(Value):
    tenant: Tenant
    session_id: SessionId
    rev: int
    item: ItemId | None
    patch: bytes
    at_ms: int


class StateRow(Value):
    """A value of session state, from version `seq` on until the next row of that name."""

    tenant: Tenant
    session_id: SessionId
    name: Words
    seq: Version
    value: Words


class MemoryRow(Value):
    """Something an agent remembers across sessions."""

    tenant: Tenant
    agent: Words
    memory_id: Words
    text: Words
    turn_id: TurnId
    at_ms: int


class ApiKeyRow(Value):
    """Who may come in with a secret, as whom, and for what."""

    key_id: KeyId
    tenant: Tenant
    name: Words
    """What people call it."""
    scopes: tuple[str, ...]
    """One that we do not know allows nothing."""
    digest: bytes
    """SHA-256 of the secret."""
    expires_ms: int | None = None
    revoked_ms: int | None = None


class SealKeyRow(Value):
    """A secret that seals what clients keep for us."""

    key_id: KeyId
    """When it was made is in it: the latest seals, and all of them open."""
    secret: bytes

    def __repr__(self) -> str:
        return f"<SealKeyRow {self.key_id}>"  # a secret has no place in a log or a debugger


class GrantRow(Value):
    """An approval that is remembered: which tool of which agent may run without asking."""

    tenant: Tenant
    grant_id: GrantId
    """When it was made is in it."""
    source_key: Words
    agent: Words
    """Its name; or, if the grant holds in one session, what `core.grants.holder` makes of both."""
    tool: Words
    fingerprint: str
    arguments: Words | None
    """The very arguments that it is about; None: any."""
    call: CallId
    """The call that was approved."""
    made_by: KeyId | None = None
    """The API key that it was made with; None where none is needed."""
    revoked_ms: int | None = None

    @property
    def grant(self) -> Grant:
        return Grant(tool=self.tool, fingerprint=self.fingerprint, arguments=self.arguments)


class ItemRow(Value):
    """One item, in the bytes that the chain was computed over."""

    tenant: Tenant
    session_id: SessionId
    pos: int
    turn_id: TurnId
    path: str
    """Of the sub-agent that it belongs to; empty if it is the conversation's own."""
    body: bytes


class ItemBody(Value):
    """An item's bytes, and where they belong."""

    pos: int
    body: bytes


class BlobRow(Value):
    """Bytes that an item names by their digest."""

    tenant: Tenant
    session_id: SessionId
    digest: str
    bytes: Bytes
    noticed_ms: int | None = None
    """Since when retention knows of it; 0 if an item names it, None if retention has not met it."""


class BlobName(Value):
    """A blob, without its bytes."""

    tenant: Tenant
    session_id: SessionId
    digest: str
    noticed_ms: int | None


class AttributeRow(Value):
    """One attribute of a session's settings, where lists look for it."""

    tenant: Tenant
    session_id: SessionId
    name: Words
    value: Words


class PastRow(Value):
    """A session that reads some of another one's items."""

    tenant: Tenant
    ancestor: SessionId
    session_id: SessionId


class ChunkRow(Value):
    """A stretch of a session's items that is in the index of words; from -1 on: the session's name."""

    tenant: Tenant
    session_id: SessionId
    from_pos: int


class ChunkWords(Value):
    """A stretch and its words, as the index is given them."""

    tenant: str
    session_id: str
    from_pos: int
    upto_pos: int
    words: Lexemes


class IndexedRow(Value):
    """How far a session is in the index of words. Its names are not parsed: a damaged one does not delay the others."""

    tenant: str
    id: str
    state: SessionState
    bytes_gone: bool
    indexed_length: int
    indexed_rev: int


class JournalRow(Value):
    """Some records of a turn, from number `n` on, one JSON line each."""

    tenant: Tenant
    turn_id: TurnId
    n: int
    token: int
    records: bytes
