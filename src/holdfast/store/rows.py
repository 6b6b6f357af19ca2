"""The rows of the store, as values: one struct for each table, the same in every home.

Times are milliseconds by the store's own clock. `docs/reference/store.md` draws how the tables are related.
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
"""Text from people, models and agent files: it may contain U+0000, which PostgreSQL's text type cannot hold."""


LEXEMES = "lexemes"
Lexemes: TypeAlias = Annotated[str, LEXEMES]
"""The words of a chunk for the search index, each once, separated by spaces."""


class NodeRow(Value):
    """One run of a process. `since_ms`: since then it has renewed its row without a gap."""

    node_id: NodeId
    ttl_ms: int
    since_ms: int
    expires_ms: int
    slot: int = 0
    """SQLite: the byte of the side file that this process has locked. 0 elsewhere."""


SessionState: TypeAlias = Literal["live", "deleted"]


class SessionRow(Value):
    """A session without its items: the columns that are locked and listed."""

    tenant: Tenant
    id: SessionId
    head: Version = Version(0)
    length: int = 0
    """How many positions the history has, a fork's past included: the next item gets this position."""
    link: bytes = b""
    """The last link of the hash chain."""
    lease_token: int = 0
    """Grows with every turn and takeover; a write with a smaller one is refused."""
    lease_nonce: str = ""
    """Tells two holders apart even if a restored backup hands out the same token twice."""
    lease_node: NodeId | None = None
    """The node that plays the open turn; None if a draining node handed the turn over."""
    open_turn: TurnId | None = None
    source_key: Words = ""
    entry_agent: Words = ""
    agent: Words = ""
    lineage: Lineage = ()
    settings: SessionSettings = SessionSettings()
    meta_rev: int = 0
    summary_rev: int = 0
    title: Words = ""
    """The title that a client gave it; empty without one."""
    opening: Words = ""
    """The first words of its first message: lists show them if there is no title."""
    state: SessionState = "live"
    anonymous: bool = False
    """An anonymous line: listed on request only, and it expires."""
    created_ms: int = 0
    active_ms: int = 0
    unfinished: Version | None = None
    """The version of a turn that broke off; it can be continued while it is the head."""
    retries_left: int | None = None
    """How many retries may still continue it; None if only a person may."""
    family: SessionId | None = None
    """The family of lines that it belongs to, by the id of its first line; None: it is alone under its name."""
    source_name: str | None = None
    """The name that the operator gave the source; None without one, and where an older server began the session."""

    @property
    def family_id(self) -> SessionId:
        """The family that it belongs to, or would be the first line of."""
        return self.family or self.id


class SessionName(Value):
    """A session by its id alone."""

    id: SessionId


class Tombstone(Value):
    """The columns of a deleted session that retention needs; columns that may be damaged are left out, so that one
    damaged session does not delay the others."""

    tenant: Tenant
    id: SessionId
    length: int
    meta_rev: int
    bytes_gone: bool
    """Only its row is left."""
    indexed_length: int
    indexed_rev: int


Standing: TypeAlias = Literal["first", "streamed", "continued", "own"]
"""How the line of a family came by its name, the weakest claim first. `own`: a client gave the line this name besides the
family's, and it never becomes the family's."""


class KeyRow(Value):
    """The session that a session key names now. `generation` counts resets and rewinds."""

    tenant: Tenant
    key: SessionKey
    session_id: SessionId
    generation: int = 1
    standing: Standing | None = None
    """If it names a family: how its current line came by the name."""


TurnState: TypeAlias = Literal["queued", "open", "committed", "discarded"]


class TurnRow(Value):
    """A turn, from its begin until retention removes it. `seq` is the version it made, if it was committed."""

    tenant: Tenant
    turn_id: TurnId
    session_id: SessionId
    base_head: Version
    state: TurnState
    seq: Version | None = None
    ended_by: EndedBy | None = None
    detail: Words = ""
    """Why it ended that way, for people; with a stable error code in front where there is one."""
    attempt: int = 1
    """Counts crashes; a hand-over does not count."""
    retry_of: TurnId | None = None
    client_attempt: int = 0
    """The SDK's own retry count when it began (`x-stainless-retry-count`)."""
    lease_token: int = 0
    """The token of the node that played it last; 0 if the turn was imported from another store."""
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
    """The server has written the whole answer to the client's socket."""
    began_ms: int = 0
    ended_ms: int = 0
    continues: TurnId | None = None
    """The unfinished turn that it continues: the turn that made `base_head`."""
    links: int | None = None
    """Written with the commit of a continuation: how many continuations in a row, this one included, retries began.
    Without it, an older server, without continuations, made the commit, and the turn does not count as one."""
    family: SessionId | None = None
    """The family of its session, and by which digests a request of that family finds it (`core/history/branches.py`):"""
    answer: bytes | None = None
    """its answer, as the client has seen it;"""
    prefix: bytes | None = None
    """everything that its client had said and seen up to the end of the turn;"""
    answer_id: bytes | None = None
    """the client's own id for its answer."""


IdempotencyState: TypeAlias = Literal["running", "done", "failed"]


class IdempotencyRow(Value):
    """A client's key for one request. While `running` it never expires; `done` and `failed` rows expire a day later."""

    tenant: Tenant
    key: IdempotencyKey
    request_hash: bytes
    turn_id: TurnId
    state: IdempotencyState
    expires_ms: int = 0
    steer: int | None = None
    """The number of the signal that steered the request into another request's turn; None if the turn is its own."""


SignalKind: TypeAlias = Literal["cancel", "interrupt", "steer"]


class SignalRow(Value):
    """A signal from any process to the node that plays a turn. A steer is consumed once, or begins a turn."""

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
    """A value of session state, valid from version `seq` until the next row of that name."""

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
    """An API key: its tenant, its scopes, and the hash of its secret."""

    key_id: KeyId
    tenant: Tenant
    name: Words
    """Its label for people."""
    scopes: tuple[str, ...]
    """An unknown scope allows nothing."""
    digest: bytes
    """SHA-256 of the secret."""
    expires_ms: int | None = None
    revoked_ms: int | None = None
    conversation_from: str | None = None
    """The part of a request that names the conversation where no header does: `user`, `metadata.…`, `session_id`."""


class SealKeyRow(Value):
    """A secret that seals data which clients keep for the server."""

    key_id: KeyId
    """Contains the time of its making: the server seals with the latest key, and opens with any of them."""
    secret: bytes

    def __repr__(self) -> str:
        return f"<SealKeyRow {self.key_id}>"  # a secret has no place in a log or a debugger


class GrantRow(Value):
    """An approval that is remembered: which tool of which agent may run without asking."""

    tenant: Tenant
    grant_id: GrantId
    """Contains the time of its making."""
    source_key: Words
    agent: Words
    """The agent's name; or, if the grant counts in one session only, `core.grants.holder` of name and session."""
    tool: Words
    fingerprint: str
    arguments: Words | None
    """The only arguments that it allows; None: any."""
    call: CallId
    """The call that was approved."""
    made_by: KeyId | None = None
    """The API key of the client that approved; None if the server needs no keys."""
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
    """The path of the sub-agent that it belongs to; empty if it belongs to the conversation itself."""
    body: bytes


class ItemBody(Value):
    """An item's bytes and position."""

    pos: int
    body: bytes


class BlobRow(Value):
    """Bytes that an item names by their digest."""

    tenant: Tenant
    session_id: SessionId
    digest: str
    bytes: Bytes
    noticed_ms: int | None = None
    """When retention first met it; 0 once retention has seen that an item names it, None if it has not met it yet."""


class BlobName(Value):
    """A blob, without its bytes."""

    tenant: Tenant
    session_id: SessionId
    digest: str
    noticed_ms: int | None


class AttributeRow(Value):
    """One attribute of a session's settings, in the table that lists filter by."""

    tenant: Tenant
    session_id: SessionId
    name: Words
    value: Words


class PastRow(Value):
    """A fork, and a session whose items it reads."""

    tenant: Tenant
    ancestor: SessionId
    session_id: SessionId


class ChunkRow(Value):
    """A stretch of a session's items that is in the search index; `from_pos` -1 is the session's name."""

    tenant: Tenant
    session_id: SessionId
    from_pos: int


class ChunkWords(Value):
    """A stretch and its words, as they are written to the search index."""

    tenant: str
    session_id: str
    from_pos: int
    upto_pos: int
    words: Lexemes


class IndexedRow(Value):
    """How far a session is indexed. Its ids are not parsed, so that a damaged one does not delay the others."""

    tenant: str
    id: str
    state: SessionState
    bytes_gone: bool
    indexed_length: int
    indexed_rev: int


class JournalRow(Value):
    """Some records of a turn's journal, from number `n` on, one JSON line each."""

    tenant: Tenant
    turn_id: TurnId
    n: int
    token: int
    records: bytes
