"""Remembered approvals, as a store keeps them: what a person has allowed an agent for good.

What a grant is good for is decided in `core/grants.py`; here it is only found, by the agent that it is for.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.core.codec import Value
from holdfast.ids import GrantId, Tenant
from holdfast.store.rows import GrantRow


class GrantFilter(Value):
    """Which approvals: of one source, of one agent, only those that were not revoked."""

    source_key: str | None = None
    agent: str | None = None
    live: bool = False


ANY_GRANT = GrantFilter()


class GrantStore(Protocol):
    """The part of a store that has the remembered approvals."""

    async def put_grant(self, row: GrantRow) -> bool:
        """Remember an approval. One with this id that is there already stays as it is; whether it was not."""
        ...

    async def grants(
        self,
        tenant: Tenant,
        where: GrantFilter = ANY_GRANT,
        *,
        after: GrantId | None = None,
        limit: int,
    ) -> tuple[GrantRow, ...]:
        """Some approvals, the oldest first. A plain read. Those that were revoked stay, and answer for the past."""
        ...

    async def revoke_grant(self, tenant: Tenant, grant_id: GrantId) -> GrantRow | None:
        """Take an approval back, from now on and for ever. Again: the same row. None if there is none."""
        ...
