"""What a home that keeps rows in tables can show of what lies between them. Pure; `inspection.py` of each reads the rows.

key_astray       a key means a session that is deleted or does not exist
claim_running    an idempotency key waits for a turn that has ended or does not exist
row_astray       rows belong to a session or turn that does not exist
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from holdfast.core.check import Violation
from holdfast.store.verify import Finding


def stray(code: str, where: object, what: str, **whose: str) -> Finding:
    return Finding(violation=Violation(code=code, where=str(where), what=what), **whose)


def judge_key(row: Sequence[object]) -> Iterator[Finding]:
    """Tenant, key, session id, and that session's state."""
    tenant, key, session_id, state = map(str, row)
    if state != "live":
        became = "is deleted" if state == "deleted" else "does not exist"
        what = f"it means {session_id}, which {became}"
        yield stray("key_astray", key, what, tenant=tenant)


def judge_claim(row: Sequence[object]) -> Iterator[Finding]:
    """Tenant, key, turn id, the claim's state, and the turn's."""
    tenant, key, turn_id, state, turn_state = map(str, row)
    if state == "running" and turn_state not in ("open", "queued"):
        became = "does not exist" if turn_state == "None" else f"is {turn_state}"
        what = f"it waits for {turn_id}, which {became}"
        yield stray("claim_running", key, what, tenant=tenant)


def judge_owner(kind: str) -> Callable[[Sequence[object]], Iterator[Finding]]:
    """Tenant, owner, and whether the owner exists."""

    def judge(row: Sequence[object]) -> Iterator[Finding]:
        tenant, owner, exists = row
        if not exists:
            what = f"{kind} belong to it, and it does not exist"
            yield stray("row_astray", owner, what, tenant=str(tenant))

    return judge
