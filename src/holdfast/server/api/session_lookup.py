"""The lookup of the session that a path names: by its id, or by the key that points to it now."""

from __future__ import annotations

from holdfast.errors import InvalidId, SessionGone, SessionMissing
from holdfast.ids import SessionId, SessionKey, Tenant
from holdfast.store.outcomes import SessionInfo
from holdfast.store.store import Store
from holdfast.wire.problems import bad_request


async def find_session(store: Store, tenant: Tenant, name: str) -> SessionInfo:
    """The session that a path names. Raises Refused (400), SessionMissing and SessionGone."""
    session_id: SessionId | None
    if name.startswith("conv_"):
        try:
            session_id = SessionId(name)
        except InvalidId as error:
            raise bad_request("invalid_conversation_key", str(error)) from error
    else:
        row = await store.resolve(tenant, session_key(name))
        session_id = row.session_id if row else None
    info = await store.info(tenant, session_id) if session_id else None
    if info is None:
        raise SessionMissing("session", name)
    if info.session.state == "deleted":
        raise SessionGone(name, why="deleted")
    return info


def session_key(name: str) -> SessionKey:
    """The key that a path names. Raises Refused (400)."""
    try:
        return SessionKey(name)
    except InvalidId as error:
        raise bad_request("invalid_conversation_key", str(error)) from error
