"""The lookup of the session that a path names, by its id or by the key that points to it now; and of a turn."""

from __future__ import annotations

from holdfast.errors import InvalidId, SessionGone, SessionMissing
from holdfast.ids import SessionId, SessionKey, Tenant, TurnId
from holdfast.server.api.objects import session_shown
from holdfast.server.http.routing import HttpCall
from holdfast.sessions.turns.watch import turn_row
from holdfast.store.outcomes import SessionInfo
from holdfast.store.rows import TurnRow
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


def turn_id_of(call: HttpCall) -> TurnId:
    """The turn id that a path names. Raises SessionMissing if it is no id: then there is no such turn."""
    name = call.names[0]
    try:
        return TurnId(name)
    except InvalidId as error:
        raise SessionMissing("turn", name) from error


async def find_turn(store: Store, call: HttpCall) -> TurnRow:
    """The turn that a path names. Raises SessionMissing."""
    return await turn_row(store, call.tenant, turn_id_of(call))


async def named_session(store: Store, call: HttpCall) -> SessionInfo:
    """The session that the path of a call names. Raises as `find_session` does."""
    return await find_session(store, call.tenant, call.names[0])


async def say_session(store: Store, call: HttpCall, session_id: SessionId) -> None:
    """Answer with a session that was just changed or made. Raises SessionGone."""
    info = await store.info(call.tenant, session_id)
    if info is None or info.session.state == "deleted":  # by another request, meanwhile
        raise SessionGone(session_id, why="deleted")
    await call.say(session_shown(info), etag=info.session.head.etag)
