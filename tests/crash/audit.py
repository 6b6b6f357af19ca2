"""Everything that a store can show, looked at from outside: nothing may be half, twice, or out of place."""

from __future__ import annotations

from holdfast.store.store import Store
from holdfast.store.verification.verification import Finding, verify


async def audit(store: Store) -> list[str]:
    """What `holdfast db verify` would find wrong, a line each."""
    return [str(each) async for each in verify(store) if isinstance(each, Finding)]
