"""What `verify` checks beside the sessions themselves: what lies between the tables.

  key_astray       a key means a session that is deleted or does not exist
  claim_running    an idempotency key waits for a turn that has ended or does not exist
  row_astray       rows belong to a session or turn that does not exist
  derived_off      attributes, or the list of who reads whose items, are not what the session says

Each check goes by pages, in short reads. A page sees both sides of what it compares at one moment, so nothing has to be
looked at twice. A check is an operation that reads one page; `Store.inspect` reads page after page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from holdfast.core.check import Violation
from holdfast.core.codec import Decoder, Unreadable, Value
from holdfast.core.conversation import Lineage, settings_decoder
from holdfast.store.findings import Finding
from holdfast.store.rows import Words
from holdfast.store.steps import Operation, Question, ask
from holdfast.store.tables import (
    ANNOTATIONS,
    CHUNKS,
    ITEMS,
    JOURNAL,
    SESSIONS,
    SIGNALS,
    STATE,
    TURNS,
    Table,
)

PAGE = 200

PageStart: TypeAlias = tuple[str, str]
"""A tenant, and what a page is ordered by: the next page begins after it."""

FIRST_PAGE: PageStart = ("", "")


class CheckedPage(Value):
    """What was found on a page, and where the next one begins; None if this was the last."""

    findings: tuple[Finding, ...]
    last: PageStart | None


Check: TypeAlias = Callable[[PageStart], Operation[CheckedPage]]
R = TypeVar("R", bound=Value)


def stray(code: str, where: object, what: str, **whose: str) -> Finding:
    return Finding(violation=Violation(code=code, where=str(where), what=what), **whose)


def _page(rows: Sequence[Any], findings: Iterator[Finding], by: str) -> CheckedPage:
    last = (rows[-1].tenant, getattr(rows[-1], by)) if len(rows) == PAGE else None
    return CheckedPage(findings=tuple(findings), last=last)


def _paged(question: Question[R], judge: Callable[[R], Iterator[Finding]], *, by: str) -> Check:
    """A check that judges each row by itself."""

    def check(after: PageStart) -> Operation[CheckedPage]:
        rows = yield from ask(question, tenant=after[0], after=after[1], limit=PAGE)
        return _page(rows, (each for row in rows for each in judge(row)), by)

    return check


# ── what leads to a session or turn ──────────────────────────────────────────────────────────

# Ids are plain text here: `verify` is asked about stores that may be damaged.


class NamedSession(Value):
    """A key, and the state of the session that it means; None if there is no such session."""

    tenant: str
    key: str
    session_id: str
    state: str | None


class ClaimedTurn(Value):
    """An idempotency key, and the state of the turn that it leads to; None if there is no such turn."""

    tenant: str
    key: str
    turn_id: str
    state: str
    turn_state: str | None


def _judge_key(row: NamedSession) -> Iterator[Finding]:
    if row.state != "live":
        became = "is deleted" if row.state == "deleted" else "does not exist"
        what = f"it means {row.session_id}, which {became}"
        yield stray("key_astray", row.key, what, tenant=row.tenant)


def _judge_claim(row: ClaimedTurn) -> Iterator[Finding]:
    if row.state == "running" and row.turn_state not in ("open", "queued"):
        became = "does not exist" if row.turn_state is None else f"is {row.turn_state}"
        what = f"it waits for {row.turn_id}, which {became}"
        yield stray("claim_running", row.key, what, tenant=row.tenant)


# ── rows and their owners ────────────────────────────────────────────────────────────────────


class RowOwner(Value):
    """A session or turn that rows belong to, and whether it exists."""

    tenant: str
    owner: str
    exists: bool


def _owned(rows: Table[Any], owners: Table[Any], by: str) -> Question[RowOwner]:
    return Question(
        "owners_page", RowOwner, rows=rows.name, owners=owners.name, by=by, by_id=owners.key[1]
    )


OWNERS: dict[str, Question[RowOwner]] = {
    "turns": _owned(TURNS, SESSIONS, "session_id"),
    "items": _owned(ITEMS, SESSIONS, "session_id"),
    "state": _owned(STATE, SESSIONS, "session_id"),
    "annotations": _owned(ANNOTATIONS, SESSIONS, "session_id"),
    "indexed words": _owned(CHUNKS, SESSIONS, "session_id"),
    "journal records": _owned(JOURNAL, TURNS, "turn_id"),
    "signals": _owned(SIGNALS, TURNS, "turn_id"),
}


def _judge_owner(kind: str) -> Callable[[RowOwner], Iterator[Finding]]:
    def judge(row: RowOwner) -> Iterator[Finding]:
        if not row.exists:
            what = f"{kind} belong to it, and it does not exist"
            yield stray("row_astray", row.owner, what, tenant=row.tenant)

    return judge


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
    tenant, after_id = after
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
    return _page(rows, findings, "id")


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
    _paged(Question("keys_page", NamedSession), _judge_key, by="key"),
    _paged(Question("claims_page", ClaimedTurn), _judge_claim, by="key"),
    check_derived,
    *(_paged(each, _judge_owner(kind), by="owner") for kind, each in OWNERS.items()),
)
