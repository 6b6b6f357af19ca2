"""What `verify` checks beside the sessions themselves: what lies between the tables.

  key_astray       a key means a session that is deleted or does not exist
  claim_running    an idempotency key waits for a turn that has ended or does not exist
  claim_off        an idempotency key has failed, and its turn was committed; or has ended, and its turn has not, or
                   before it; or its message was heard, and it says otherwise
  proof_off        a row is not what was written (`store/verification/proofs.py`)
  memory_astray    a memory is not what the turn has said that made it
  row_astray       rows belong to a session or turn that does not exist
  derived_off      attributes, or the list of who reads whose items, are not what the session says

Each check goes by pages, in short reads. A page sees both sides of what it compares at one moment, so nothing has to be
looked at twice. A check is an operation that reads one page; `Store.inspect` reads page after page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from holdfast.core.codec import Decoder, Unreadable, Value
from holdfast.core.history.checks import Violation
from holdfast.core.history.conversation import Lineage, settings_decoder
from holdfast.core.turns.events import Change, MemoryAdded
from holdfast.store.overwritten import WORDS, is_overwritten
from holdfast.store.rows import Words
from holdfast.store.sql import tables
from holdfast.store.steps import Operation, Question, ask
from holdfast.store.verification import proofs
from holdfast.store.verification.findings import Finding
from holdfast.store.verification.pairings import KEY_AND_TURN

PAGE = 200

PageStart: TypeAlias = tuple[Any, ...]
"""What a page is ordered by, a tenant mostly, and an id: the next page begins after it. Empty for the first page."""


class CheckedPage(Value):
    """What was found on a page, and where the next one begins; None if this was the last."""

    findings: tuple[Finding, ...]
    last: PageStart | None


Check: TypeAlias = Callable[[PageStart], Operation[CheckedPage]]
R = TypeVar("R", bound=Value)


def stray(code: str, where: object, what: str, **whose: str) -> Finding:
    return Finding(violation=Violation(code=code, where=str(where), what=what), **whose)


def _page(rows: Sequence[Any], findings: Iterator[Finding], *by: str) -> CheckedPage:
    """A page of rows that are ordered by these fields."""
    last = tables.key_of(by)(rows[-1]) if len(rows) == PAGE else None
    return CheckedPage(findings=tuple(findings), last=last)


def _paged(
    first: Question[R],
    judge: Callable[[R], Iterator[Finding]],
    *by: str,
    later: Question[R] | None = None,
) -> Check:
    """A check that judges each row by itself; `later`, if given, asks for the pages after the first."""

    def check(start: PageStart) -> Operation[CheckedPage]:
        after = dict(zip(by, start or [""] * len(by), strict=True))
        question = later if later and start else first
        rows = yield from ask(question, limit=PAGE, **after)
        return _page(rows, (each for row in rows for each in judge(row)), *by)

    return check


# ── what leads to a session or turn ──────────────────────────────────────────────────────────

# Ids are plain text here: `verify` is asked about stores that may be damaged.


class NamedSession(Value):
    """A key, and the state of the session that it means; None if there is no such session."""

    tenant: str
    key: str
    session_id: str
    generation: int
    standing: str | None
    proof: int | None
    state: str | None
    session_proof: int | None


class ClaimedTurn(Value):
    """An idempotency key, and the state of the turn that it leads to; None if there is no such turn."""

    tenant: str
    key: str
    turn_id: str
    state: str
    expires_ms: int
    steer: int | None
    request_hash: bytes
    proof: int | None
    turn_state: str | None
    turn_proof: int | None
    ended_ms: int | None
    continued_by: str | None
    """A turn that was to continue this one, and was discarded."""
    is_heard: bool | None
    """Whether the turn has read the message that the key was steered into it with; None if it was told none."""


def _judge_key(row: NamedSession) -> Iterator[Finding]:
    if row.state != "live":
        became = "is deleted" if row.state == "deleted" else "does not exist"
        what = f"it means {row.session_id}, which {became}"
        yield stray("key_astray", row.key, what, tenant=row.tenant)
    # An older server binds a key to a session that it makes without a proof, and leaves the key's as it was.
    elif row.session_proof is not None and row.proof not in (None, proofs.KEY.of(row)):
        yield _unproven("session_key", row.key, tenant=row.tenant)


def _judge_claim(row: ClaimedTurn) -> Iterator[Finding]:
    for rule in KEY_AND_TURN:
        if rule.holds(row):
            yield stray(rule.code, row.key, f"{rule.what}: {row.turn_id}", tenant=row.tenant)
    if row.proof is not None and not _leads_where_it_was_led(row):
        yield _unproven("idempotency", row.key, tenant=row.tenant)


def _leads_where_it_was_led(row: ClaimedTurn) -> bool:
    """An older server that claims a key anew leaves its proof as it was, and begins a turn without one; where it
    discards a continuation, the keys lead back to the turn before."""
    if row.turn_state is not None and row.turn_proof is None:
        return True
    led_to = [row.turn_id] + ([row.continued_by] if row.continued_by else [])
    return row.proof in [
        proofs.CLAIM.of(msgspec.structs.replace(row, turn_id=each)) for each in led_to
    ]


# ── rows and their owners ────────────────────────────────────────────────────────────────────


class RowOwner(Value):
    """A session or turn that rows belong to, and whether it exists."""

    tenant: str
    owner: str
    exists: bool


def _owned(rows: tables.Table[Any], owners: tables.Table[Any], by: str) -> Question[RowOwner]:
    return Question(
        "owners_page", RowOwner, rows=rows.name, owners=owners.name, by=by, by_id=owners.key[1]
    )


OWNERS: dict[str, Question[RowOwner]] = {
    "turns": _owned(tables.TURNS, tables.SESSIONS, "session_id"),
    "items": _owned(tables.ITEMS, tables.SESSIONS, "session_id"),
    "state": _owned(tables.STATE, tables.SESSIONS, "session_id"),
    "annotations": _owned(tables.ANNOTATIONS, tables.SESSIONS, "session_id"),
    "indexed words": _owned(tables.CHUNKS, tables.SESSIONS, "session_id"),
    "journal records": _owned(tables.JOURNAL, tables.TURNS, "turn_id"),
    "signals": _owned(tables.SIGNALS, tables.TURNS, "turn_id"),
}


def _judge_owner(kind: str, row: RowOwner) -> Iterator[Finding]:
    if not row.exists:
        what = f"{kind} belong to it, and it does not exist"
        yield stray("row_astray", row.owner, what, tenant=row.tenant)


# ── rows and their proofs ────────────────────────────────────────────────────────────────────

_PLAIN: dict[str, Any] = {
    "text": str,
    "words": Words,
    "number": int,
    "truth": bool,
    "bytes": bytes,
    "json": Raw,
}


def _plain(column: tables.Column) -> tuple[str, Any]:
    """A column as it is stored: a proof is made over that, and damage does not keep it from being read."""
    kind = _PLAIN[column.holds]
    return column.name, kind | None if column.nullable else kind


def pages_of(table: tables.Table[Any]) -> tuple[Question[Any], Question[Any]]:
    """How rows of a table are asked for, as they are stored, with their proofs: the first page, and each later one."""
    beside = [(each.column, int | None) for each in table.proofs]
    fields = [*map(_plain, table.columns), *beside]
    kind: Any = msgspec.defstruct(f"Plain_{table.name}", fields, bases=(Value,), frozen=True)
    key = [table.by_name[name] for name in table.key]
    words = {
        "rows": table.name,
        "columns": ", ".join([table.listed(), *(name for name, _ in beside)]),
        "by": ", ".join(each.quoted for each in key),
    }
    types = {"words": "words", "number": "bigint"}
    after = ", ".join(f":{each.name}::{types.get(each.holds, 'text')}" for each in key)
    first = Question("rows_page", kind, after="{true}", **words)
    return first, Question("rows_page", kind, after=f"({words['by']}) > ({after})", **words)


def _proven(table: tables.Table[Any]) -> Check:
    """A check of each row of a table against its proofs."""
    first, later = pages_of(table)
    return _paged(first, partial(_judge_proofs, table), *table.key, later=later)


def _judge_proofs(table: tables.Table[Any], row: Any) -> Iterator[Finding]:
    for proof in table.proofs:
        kept = getattr(row, proof.column)
        if kept is not None and kept not in _expected(table, proof, row):
            *_, where = table.key_of(row)
            whose = getattr(row, "session_id", row.id if table is tables.SESSIONS else "")
            named = where if isinstance(where, str) else f"{table.key_of(row)[1]} {where}"
            yield _unproven(table.name, named, tenant=getattr(row, "tenant", ""), session_id=whose)


def _expected(table: tables.Table[Any], proof: proofs.Proof, row: Any) -> Iterator[int | None]:
    yield proof.of(row)
    if any(is_overwritten(getattr(row, name)) for name in WORDS.get(table.name, ())):
        yield getattr(row, proof.column)
    if proof is proofs.AGENT and row.state == "deleted":
        yield getattr(row, proof.column)  # its words are gone
    if table in (tables.API_KEYS, tables.GRANTS) and row.revoked_ms is not None:
        yield proof.of(msgspec.structs.replace(row, revoked_ms=None))  # revoked by an older server


def _unproven(table: str, where: object, **whose: str) -> Finding:
    return stray("proof_off", where, f"this row of {table} is not what was written", **whose)


PROVEN: tuple[tables.Table[Any], ...] = (
    *(tables.SESSIONS, tables.TURNS, tables.SIGNALS, tables.JOURNAL, tables.ANNOTATIONS),
    *(tables.MEMORIES, tables.API_KEYS, tables.SEAL_KEYS, tables.GRANTS),
)
"""Tables whose proofs stand for themselves. What leads somewhere is judged with where it leads."""


# ── memories ─────────────────────────────────────────────────────────────────────────────────


class MadeMemory(Value):
    """A memory, and what the turn has changed that made it; None if that turn is gone."""

    tenant: str
    agent: Words
    memory_id: Words
    text: Words
    turn_id: str
    at_ms: int
    changes: bytes | None
    ended_ms: int | None


_changes: Decoder[tuple[Change, ...]] = Decoder(tuple[Change, ...])


def _judge_memory(row: MadeMemory) -> Iterator[Finding]:
    """A memory against the turn that made it. Memories are in no chain: sessions commute in them."""
    if row.changes is not None and not (row.at_ms == row.ended_ms and _has_said(row.changes, row)):
        what = f"{row.turn_id} has said no such thing, or at another time"
        yield stray("memory_astray", row.memory_id, what, tenant=row.tenant)


def _has_said(changes: bytes, row: MadeMemory) -> bool:
    said = _changes.lenient(changes)
    added = MemoryAdded(agent=row.agent, memory_id=row.memory_id, text=row.text)
    return isinstance(said, Unreadable) or added in said


# ── what is derived from a session ───────────────────────────────────────────────────────────


class KeptSession(Value):
    """A session, with what may be unreadable as it is stored."""

    tenant: str
    id: str
    settings: bytes
    lineage: bytes
    is_left_over: bool


class KeptAttribute(Value):
    """An attribute by which lists find a session."""

    tenant: str
    session_id: str
    name: Words
    value: Words


class KeptPast(Value):
    """A session that is known to read another one."""

    ancestor: str
    session_id: str


SESSIONS_PAGE = Question("sessions_page", KeptSession)
ATTRIBUTES_BETWEEN = Question("attributes_between", KeptAttribute)
PASTS_BETWEEN = Question("pasts_between", KeptPast)
_lineage: Decoder[Lineage] = Decoder(Lineage)


def check_derived(after: PageStart) -> Operation[CheckedPage]:
    """What is kept beside sessions for lists and for retention."""
    tenant, after_id = after or ("", "")
    rows = yield from ask(SESSIONS_PAGE, tenant=tenant, after=after_id, limit=PAGE)
    if not rows:
        return CheckedPage(findings=(), last=None)
    attributes: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for each in (
        yield from ask(
            ATTRIBUTES_BETWEEN,
            tenant=tenant,
            after=after_id,
            last_tenant=rows[-1].tenant,
            last=rows[-1].id,
        )
    ):
        attributes[each.tenant, each.session_id].append((each.name, each.value))
    pasts = yield from _pasts(rows)
    findings = (
        stray("derived_off", row.id, what, tenant=row.tenant, session_id=row.id)
        for row in rows
        for what in _judge_derived(row, attributes[row.tenant, row.id], pasts)
    )
    return _page(rows, findings, "tenant", "id")


def _pasts(rows: Sequence[KeptSession]) -> Operation[set[tuple[str, str, str]]]:
    """Which of these sessions, by tenant and id, are known to read which others."""
    wanted: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for row in rows:
        if ancestors := _ancestors(row):
            wanted[row.tenant][row.id] = ancestors
    known: set[tuple[str, str, str]] = set()
    for tenant, readers in wanted.items():
        found = yield from ask(
            PASTS_BETWEEN,
            tenant=tenant,
            ids=sorted({each for ancestors in readers.values() for each in ancestors}),
            first=min(readers),
            last=max(readers),
        )
        known |= {(tenant, each.session_id, each.ancestor) for each in found}
    return known


def _ancestors(row: KeptSession) -> list[str]:
    past = _lineage.lenient(row.lineage)
    return [] if isinstance(past, Unreadable) else [each.session_id for each in past]


def _judge_derived(
    row: KeptSession, attributes: list[tuple[str, str]], pasts: set[tuple[str, str, str]]
) -> Iterator[str]:
    settings = settings_decoder.lenient(row.settings)
    # What cannot be read keeps the session from being read, which `verify` says by itself.
    if not isinstance(settings, Unreadable) and sorted(settings.attributes) != sorted(attributes):
        yield "its attributes are not what its settings say"
    if any((row.tenant, row.id, each) not in pasts for each in _ancestors(row)):
        yield "a session that it reads its past from does not know that"
    if row.is_left_over:
        yield "its bytes are said to be gone, and they are not"


CHECKS: tuple[Check, ...] = (
    _paged(Question("keys_page", NamedSession), _judge_key, "tenant", "key"),
    _paged(Question("claims_page", ClaimedTurn), _judge_claim, "tenant", "key"),
    check_derived,
    _paged(Question("memories_page", MadeMemory), _judge_memory, *tables.MEMORIES.key),
    *map(_proven, PROVEN),
    *(
        _paged(each, partial(_judge_owner, kind), "tenant", "owner")
        for kind, each in OWNERS.items()
    ),
)
