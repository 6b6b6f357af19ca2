"""Blobs that an answer names, replaced by their bytes."""

from __future__ import annotations

from holdfast.ids import SessionId, Tenant
from holdfast.store.store import Store
from holdfast.wire.openai.chat.messages import blobs_in, with_blobs


async def inlined(store: Store, tenant: Tenant, session_id: SessionId, body: bytes) -> bytes:
    """The same JSON with the bytes of its blobs; a blob that is lost becomes an empty file."""
    names = blobs_in(body)
    blobs = {name: await store.blob(tenant, session_id, name) or b"" for name in names}
    return with_blobs(body, blobs)
