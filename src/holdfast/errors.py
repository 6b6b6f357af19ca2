"""Everything that Holdfast raises on purpose.

HoldfastError
├── InvalidValue           a value from a client, a file or a setting is wrong; the message says what is accepted
│   ├── InvalidId          … an id or key with the wrong form
│   ├── InvalidPolicy      … a turn policy with an unknown name or choice
│   ├── InvalidCursor      … a cursor that this server did not hand out
│   └── InvalidExport      … a file that is no export of sessions, or is damaged or cut off
├── IllegalEvent           the turn cannot accept this event in its present state: a bug of the caller's
├── Superseded             another node owns the turn now; the write was refused and nothing changed
├── SessionMissing         no such session, turn or key; nothing was created
├── SessionGone            the session was deleted, or has expired and waits for a reset
├── SessionConflict        the session moved on meanwhile; reload and try again
├── NameTaken              the name means another session; choose another one
├── ImportConflict         an imported session collides with a different one here; nothing of it was taken in
├── SessionBusy            another turn holds the session; trying later is right
├── QueueFull              too many turns wait to be played; trying later is right
├── TurnRejected           this request cannot become a turn; trying it again will not help
├── ApprovalUndecided      a message in a chat did not answer the question about waiting calls; nothing was stored
├── CannotContinue         the turn has nothing to continue, or not any more; send a new message instead
├── KeyReused              the idempotency key belongs to a different request
├── TurnFailed             raised by the player of a turn, to say how the turn failed
├── AgentUnavailable       no agent can answer; nothing began
│   ├── ModelNotFound      … no agent has this name, or several have it; the message lists the names
│   ├── AgentNotFound      … the session's agent is not served any more
│   ├── AgentAmbiguous     … several live sources could continue the session
│   └── AgentMismatch      … the session belongs to the agents of another source
├── SourceUnusable         no agents can be loaded from a source; the message says what to change
├── ServerRefused          a server answered with an error; `reason` is its code
├── ServerUnreachable      no server answers at this address, or its answer broke off
└── StoreError
    ├── StoreUnavailable   the store did not answer in time; nothing is known to have changed
    │   ├── StorageFull    no room left; nothing changed, reading still works
    │   ├── StoreFault     the store failed with an unknown error; trying again is right
    │   ├── StoreReadOnly  a part that all sessions share is damaged; the store is only read until it is verified
    │   └── InDoubt        the answer was lost; the write may have happened, and repeating it may do it twice
    ├── StoreDamaged       stored data cannot be read; everything that does not need it goes on
    │   └── SessionDamaged   … and it belongs to one conversation
    ├── StorePoisoned      a read, write or sync failed (EIO, failed fsync); reopen the store, recovery runs then
    ├── StoreClosed        the store was closed, or belongs to the process that we were forked from
    └── StoreUnusable      this store cannot be opened here: wrong version, wrong file system, damaged
        └── ChecksumsWrong   … SQLite can read its file, but its beginning is not as Holdfast wrote it

Each error tells the facts and the way out, and carries the facts as attributes.
`code` is stable: clients may match on it, so it never changes.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal, TypeAlias, TypeVar

FailedBy: TypeAlias = Literal["model_error", "tool_error", "limit", "deadline"]


E = TypeVar("E", bound=BaseException)


def without_frames(error: E) -> E:
    """The same error with its causes, without their tracebacks: for code that keeps an error.

    A traceback holds the frames that the error came through, with all their locals. A frame that holds the error makes
    a cycle, which stays in memory until the garbage collector runs. Log the traceback first, if it is worth a line.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        left += (each.__cause__, each.__context__)
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
    return error


class HoldfastError(Exception):
    """The root. Catch this to catch everything that Holdfast raises on purpose."""

    code: ClassVar[str] = "holdfast_error"


class InvalidValue(HoldfastError, ValueError):
    """A value from a client, a file or a setting is wrong. The message says what is accepted."""

    code = "invalid_value"


class InvalidId(InvalidValue):
    """`text` does not have the form of a `kind`."""

    code = "invalid_id"

    def __init__(self, kind: str, text: str, *, expected: str) -> None:
        shown = text if len(text) <= 60 else f"{text[:57]}…"
        super().__init__(f"{shown!r} is not a valid {kind}: expected {expected}")
        self.kind = kind
        self.text = text
        self.expected = expected


class InvalidPolicy(InvalidValue):
    """A turn policy names an end or a choice that does not exist."""

    code = "invalid_turn_policy"


class InvalidCursor(InvalidValue):
    """This server did not hand out this cursor of a listing, or the cursor was altered."""

    code = "invalid_cursor"


class InvalidExport(InvalidValue):
    """An export cannot be read from `line` on. The `sessions` complete sessions before it are imported."""

    code = "invalid_export"

    def __init__(self, line: int, why: str, *, sessions: int) -> None:
        taken = (
            "the sessions before it are imported, and importing a good copy of the file later leaves them as they are"
            if sessions
            else "nothing is imported"
        )
        super().__init__(f"line {line}: {why}; {taken}")
        self.line = line
        self.why = why
        self.sessions = sessions


class IllegalEvent(HoldfastError):
    """The turn cannot accept this event in its present state. Nothing changed."""

    code = "illegal_event"

    def __init__(self, event: str, because: str) -> None:
        super().__init__(f"{event} is not possible now: {because}")
        self.event = event
        self.because = because


class Superseded(HoldfastError):
    """A write carried an old fence: another node has taken the turn over. Nothing changed."""

    code = "superseded"

    def __init__(self, turn_id: str, *, token: int) -> None:
        super().__init__(
            f"turn '{turn_id}' is no longer held under token {token}; "
            "the node that holds it now will end it or resume it"
        )
        self.turn_id = turn_id
        self.token = token


class SessionMissing(HoldfastError):
    """There is no such session (or turn, or key) for this tenant."""

    code = "conversation_not_found"

    def __init__(self, what: str, name: str) -> None:
        super().__init__(f"{what} '{name}' does not exist")
        self.what = what
        self.name = name


class SessionGone(HoldfastError):
    """The session was deleted or has expired; it is never revived silently."""

    code = "conversation_gone"

    def __init__(self, name: str, *, why: str) -> None:
        way_out = (
            "a key that it had is free, and begins a new one"
            if why == "deleted"  # deleting a session frees its key
            else "reset its key to start a new one"
        )
        super().__init__(f"session '{name}' is {why}; {way_out}")
        self.name = name
        self.why = why


class SessionConflict(HoldfastError):
    """The session has moved past the version that the caller knows."""

    code = "version_mismatch"

    def __init__(self, session_id: str, *, expected: int, found: int) -> None:
        super().__init__(
            f"session '{session_id}' is at version {found}, not at {expected} as this request "
            "assumes; reload it and retry"
        )
        self.session_id = session_id
        self.expected = expected
        self.found = found


class NameTaken(HoldfastError):
    """The session key `key` names the session `session_id`, and cannot name another one."""

    code = "name_taken"

    def __init__(self, key: str, session_id: str) -> None:
        super().__init__(
            f"the name {key!r} means session '{session_id}'; choose another name, or delete that session first"
        )
        self.key = key
        self.session_id = session_id


class ImportConflict(HoldfastError):
    """An imported session has an id, key, turn or idempotency key that belongs to something else here."""

    code = "import_conflict"

    def __init__(self, session_id: str, why: str) -> None:
        super().__init__(
            f"{session_id} cannot be imported: {why}; the sessions before it are imported; "
            "remove what is in the way, or skip such sessions, and import the file again"
        )
        self.session_id = session_id
        self.why = why


class SessionBusy(HoldfastError):
    """Another turn holds the session."""

    code = "conversation_locked"

    def __init__(self, session_id: str, *, turn_id: str, retry_after_s: float) -> None:
        super().__init__(
            f"session '{session_id}' is busy with turn '{turn_id}'; retry in {retry_after_s:g} s"
        )
        self.session_id = session_id
        self.turn_id = turn_id
        self.retry_after_s = retry_after_s


class QueueFull(HoldfastError):
    """`waiting` background turns are queued, of this tenant (`yours`) or of all, and no more are accepted."""

    code = "background_queue_full"

    def __init__(self, waiting: int, *, yours: bool, retry_after_s: float) -> None:
        whose = " of yours" if yours else ""
        super().__init__(
            f"{waiting} background responses{whose} wait to be played, and no more may; "
            "try again when some of them have ended"
        )
        self.waiting = waiting
        self.yours = yours
        self.retry_after_s = retry_after_s


class TurnRejected(HoldfastError):
    """The request cannot become a turn as it is. `reason` is a stable code of its own."""

    code = "turn_rejected"

    def __init__(self, reason: str, message: str, *, call_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.call_ids = call_ids


class ApprovalUndecided(HoldfastError):
    """A message in a chat did not decide about calls that wait for an approval. Nothing was stored; the calls of
    `turn_id` still wait, and their question is asked again."""

    code = "approval_undecided"

    def __init__(self, why: str, *, session_id: str, turn_id: str, version: int) -> None:
        super().__init__(why)
        self.session_id = session_id
        self.turn_id = turn_id
        self.version = version


class CannotContinue(HoldfastError):
    """A turn cannot be continued. `reason` is a stable code of its own."""

    code = "cannot_continue"

    def __init__(self, turn_id: str, reason: WhyNotContinued) -> None:
        super().__init__(f"turn '{turn_id}' {_NOT_CONTINUED[reason]}")
        self.turn_id = turn_id
        self.reason = reason


WhyNotContinued: TypeAlias = Literal["turn_not_head", "turn_complete", "turn_not_kept"]

_NOT_CONTINUED: dict[WhyNotContinued, str] = {
    "turn_not_head": "is not the last one of its conversation any more, so it cannot be continued; "
    "look at the conversation, and say what you want",
    "turn_complete": "has nothing left to continue; say what you want",
    "turn_not_kept": "was not kept, so there is nothing to continue; send its request again",
}


class KeyReused(HoldfastError):
    """A request carries an idempotency key that was first used for a different request."""

    code = "idempotency_key_reused"

    def __init__(self, key: str, *, turn_id: str) -> None:
        super().__init__(
            f"the idempotency key '{key}' was used for a different request (turn '{turn_id}'); "
            "repeat that request as it was, or take a new key"
        )
        self.key = key
        self.turn_id = turn_id


class TurnFailed(HoldfastError):
    """Raised by the player of a turn that cannot go on; the turn ends with it.

    `ended_by` is `model_error`, `tool_error`, `limit` or `deadline`; the policy decides which items are kept.
    """

    code = "turn_failed"

    def __init__(self, ended_by: FailedBy, detail: str, *, reason: str = "") -> None:
        super().__init__(detail)
        self.ended_by = ended_by
        self.detail = detail
        self.reason = reason
        """A stable code for clients, such as `context_length_exceeded`."""


class AgentUnavailable(HoldfastError):
    """No agent can answer. Nothing began."""

    code = "agent_unavailable"


class ModelNotFound(AgentUnavailable):
    """`model` names no agent, or more than one. `known` are the names of the agents."""

    code = "model_not_found"

    def __init__(self, model: str, *, known: tuple[str, ...], why: str = "does not exist") -> None:
        shown = model if len(model) <= 100 else f"{model[:97]}…"
        there = ", ".join(known[:50]) + (", …" if len(known) > 50 else "")
        super().__init__(f"the model {shown!r} {why}; there are: {there or 'none'}")
        self.model = model
        self.known = known
        self.why = why


class AgentNotFound(AgentUnavailable):
    """The agent that a session continues with is not served any more."""

    code = "agent_not_found"

    def __init__(
        self, agent: str, *, source: str, why: str, session: str = "", model: str = ""
    ) -> None:
        """`model` is the agent that the request named, if it named one."""
        way_out = f"; {_rebinding(session, to=model)}" if session else ""
        super().__init__(
            f"this conversation continues with {agent!r} of {source!r}, but {why}{way_out}"
        )
        self.agent = agent
        self.source = source
        self.why = why


def _rebinding(session: str, *, to: str = "") -> str:
    """The command that moves a session to the agents of another source."""
    is_plain = _PLAIN.fullmatch(to) is not None
    target = to if is_plain else "'" + to.replace("'", "'\"'\"'") + "'"
    return (
        f"`holdfast sessions rebind {session} --to {target if to else 'MODEL'}` "
        "moves it to an agent that is served"
    )


_PLAIN = re.compile(r"[\w./:@%+=,-]+", re.ASCII)
"""Words that a shell takes as they are."""


class AgentAmbiguous(AgentUnavailable):
    """Several live sources have the identity of a session's source, and none has its exact address. `candidates` are
    the model ids of its agent in each of them."""

    code = "agent_ambiguous"

    def __init__(
        self, agent: str, *, source: str, candidates: tuple[str, ...], session: str = ""
    ) -> None:
        way_out = (
            f"; for good, {_rebinding(session, to=candidates[0])}" if session and candidates else ""
        )
        super().__init__(
            f"this conversation continues with {agent!r} of {source!r}, which is served in several "
            f"variants ({', '.join(candidates)}) and under none exactly; name one of them as the model{way_out}"
        )
        self.agent = agent
        self.source = source
        self.candidates = candidates
        self.session = session


class AgentMismatch(AgentUnavailable):
    """A request names an agent of another source than its session's."""

    code = "agent_mismatch"

    def __init__(
        self, model: str, *, source: str, known: tuple[str, ...], session: str = ""
    ) -> None:
        way_out = f"; {_rebinding(session, to=model)}" if session else ""
        super().__init__(
            f"this conversation belongs to the agents of {source!r}, and {model!r} is not one of them; "
            f"name one of {', '.join(known)}, or begin another conversation{way_out}"
        )
        self.model = model
        self.source = source
        self.known = known
        self.session = session


class SourceUnusable(HoldfastError):
    """No agents can be loaded from a source. `problems` are lines for people, each with its file and line."""

    code = "source_unusable"

    def __init__(self, source: str, *problems: str) -> None:
        super().__init__("\n".join(problems) if problems else f"{source}: cannot be loaded")
        self.source = source
        self.problems = problems


class ServerRefused(HoldfastError):
    """A Holdfast server answered with an error. `reason` is its stable code, the message has the way out.

    `turn_id` names the turn that failed; it is None if no turn had begun.
    """

    code = "server_refused"

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str,
        param: str | None = None,
        turn_id: str | None = None,
        retry_after_s: float | None = None,
        should_retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.param = param
        self.turn_id = turn_id
        self.retry_after_s = retry_after_s
        self.should_retry = should_retry


class ServerUnreachable(HoldfastError):
    """No server answers at `server`, its answer broke off, or it is not a Holdfast server."""

    code = "server_unreachable"

    def __init__(self, server: str, why: str) -> None:
        super().__init__(
            f"{server} does not answer as a Holdfast server: {why}; check that it runs there, and --server"
        )
        self.server = server
        self.why = why


class StoreError(HoldfastError):
    """The store could not do what it was asked to do."""

    code = "storage_error"


class StoreUnavailable(StoreError):
    """The store did not answer in time. The operation has not happened, or is not known to have happened."""

    code = "storage_unavailable"

    in_doubt = False
    """Whether the operation was a write that may have happened."""


class StorageFull(StoreUnavailable):
    """The disk is full. Nothing changed; reading still works."""

    code = "storage_full"


class StoreFault(StoreUnavailable):
    """The store failed with an error that Holdfast does not know: see `__cause__`. It may pass."""

    code = "storage_fault"


class StoreReadOnly(StoreUnavailable):
    """A part of the store that all sessions share is damaged, so it takes no writes. Nothing changed."""

    code = "storage_read_only"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the store is damaged ({reason}), so it is only read until `holdfast db verify` has found it sound; "
            "nothing changed; `holdfast db verify --help` tells an operator what to do"
        )
        self.reason = reason


class InDoubt(StoreUnavailable):
    """The store's answer was lost. The operation may have happened, and repeating it may do it a second time."""

    code = "outcome_unknown"


class StoreDamaged(StoreError):
    """`what` cannot be read; `why` is the symptom. Everything that does not need it goes on."""

    code = "storage_damaged"

    def __init__(
        self, what: str, why: str, *, in_pages: bool = False, writing: bool = False
    ) -> None:
        """`writing`: it cannot be written, because it would go to a damaged page, or beside one."""
        cannot = "would be written beside damage" if writing else "is damaged"
        super().__init__(
            f"{what} {cannot} in the store and cannot be {'changed' if writing else 'read'} ({why}); nothing changed, and "
            "trying again will not help; `holdfast db verify --help` tells an operator what to do"
        )
        self.what = what
        self.why = why
        self.in_pages = in_pages
        """Whether the database reports damaged pages; if not, a row has impossible values."""


class SessionDamaged(StoreDamaged):
    """One conversation cannot be read: `name` is its id, its key or the id of its turn. The other ones go on."""

    code = "conversation_damaged"

    def __init__(
        self, name: str, why: str, *, in_pages: bool = False, writing: bool = False
    ) -> None:
        kind = "the conversation of turn" if name.startswith("turn_") else "conversation"
        super().__init__(f"{kind} '{name}'", why, in_pages=in_pages, writing=writing)
        self.name = name


class StorePoisoned(StoreError):
    """A read, write or sync failed, and only a reopened store can be trusted after that."""

    code = "storage_poisoned"


class StoreClosed(StoreError):
    """This store object is closed, or was opened by the parent process before a fork."""

    code = "storage_closed"


class StoreUnusable(StoreError):
    """The store cannot be opened here; the message says what to do."""

    code = "storage_unusable"


class ChecksumsWrong(StoreUnusable):
    """SQLite can read this file, but its first page or its schema has no right checksum; `why` is the symptom."""

    code = "storage_checksums_wrong"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"{path} can be read by SQLite, but not as Holdfast wrote it ({why}): another program, such as sqlite3 or a "
            "backup tool, has written to it or has copied its log into it, or it is damaged; `holdfast db copy "
            "--ignore-checksums` copies what it can prove into a new store; else restore a backup: see `holdfast db "
            "verify --help`"
        )
        self.path = path
        self.why = why
