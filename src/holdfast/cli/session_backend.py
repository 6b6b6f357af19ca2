"""Sessions and turns for commands: on a server, or straight in a store.

Both backends return the types of `/api`. A command writes to a store with the same atomic operations as a server, so
servers may use the store meanwhile: to them a command is like another server on the same store.
This module loads no agent, joins as no node, and plays or recovers no turn.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, Protocol, TypeVar, Unpack

import msgspec
from msgspec import UNSET

from holdfast import limits
from holdfast.cli.audit import audit_command
from holdfast.cli.options import ConversationPlace
from holdfast.cli.session_lookup import find_session, find_tenant
from holdfast.client.methods import SessionSelection
from holdfast.client.sync import Client
from holdfast.core.codec import Unreadable, encode
from holdfast.core.history.conversation import (
    Patch,
    SettingsMerged,
    Snapshot,
    Titled,
    patch_decoder,
)
from holdfast.core.identity import is_called, source_called, split_name
from holdfast.core.turns.closure import STOPPED_BY
from holdfast.core.turns.events import Interrupted, Usage
from holdfast.core.turns.journal import Record, decode_records
from holdfast.errors import InvalidId, InvalidValue, SessionBusy, SessionGone, SessionMissing
from holdfast.ids import SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.server.api.objects import match_shown, session_shown, turn_shown
from holdfast.server.api.traces import trace_of
from holdfast.server.api.transfer import take_sessions
from holdfast.server.api.turn_lists import listed_turns, read_state, waiting_calls
from holdfast.sessions.admission.queued_turns import last_words
from holdfast.sessions.admission.wait_budget import RETRY_AFTER_S
from holdfast.sessions.ambient import Ambient, wall_clock_ms
from holdfast.store.outcomes import Busy, SessionFilter, SessionInfo, TooLate
from holdfast.store.rows import SessionRow, TurnRow
from holdfast.store.search.matches import parse_query
from holdfast.store.store import Store
from holdfast.store.store_url import open_existing
from holdfast.store.transfer.exports import Exported, LeftOut
from holdfast.store.transfer.exports import export as export_session
from holdfast.wire.api import objects as api
from holdfast.wire.api import traces

T = TypeVar("T")

_COMMAND = "a command on the store"


class SessionBackend(Protocol):
    """Sessions and turns of a server or a store. `Client` documents each method."""

    def sessions(self, **which: Unpack[SessionSelection]) -> api.SessionPage: ...

    def session(self, name: str) -> api.Session: ...

    def items(self, name: str, *, view: Literal["people", "model"] = "people") -> api.Items: ...

    def turns(self, name: str) -> api.Turns: ...

    def change(
        self,
        name: str,
        *,
        title: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
    ) -> api.Session: ...

    def delete(self, name: str) -> api.Deleted: ...

    def export(self, name: str) -> Iterator[bytes]: ...

    def take_in(
        self, exported: bytes, *, on_conflict: Literal["stop", "skip"] = "stop"
    ) -> api.Imported: ...

    def name(self, name: str, key: str) -> api.Session: ...

    def fork(self, name: str, *, version: int | None = None) -> api.Session: ...

    def rewind(self, key: str, *, version: int) -> api.Session: ...

    def rebind(self, name: str, *, model: str) -> api.Session: ...

    def rebind_source(
        self, source: str, *, model: str, anonymous: bool = False, cursor: str | None = None
    ) -> api.Rebound: ...

    def listed_turns(
        self, *, state: str = "open", since: float | None = None, limit: int | None = None
    ) -> api.ListedTurns: ...

    def open_approvals(self, *, limit: int | None = None) -> api.ApprovalInbox: ...

    def turn(self, turn_id: str) -> api.TurnObject: ...

    def trace(self, turn_id: str) -> traces.TurnTrace: ...

    def cancel(self, turn_id: str) -> api.TurnObject: ...

    def journal(self, turn_id: str) -> tuple[Record, ...]:
        """The events of a turn, as far as they are still stored."""
        ...


@contextmanager
def open_backend(at: ConversationPlace) -> Iterator[ServerBackend | StoreBackend]:
    """The server if `--server` names one, else an existing store. Raises HoldfastError, with the way out."""
    if (server := _server(at)) is not None:
        yield server
        return
    with _open_store(at) as (runner, store):
        yield StoreBackend(runner, store, runner.run(find_tenant(store, at.tenant)))


@contextmanager
def open_backends(
    at: ConversationPlace,
) -> Iterator[Mapping[str, ServerBackend | StoreBackend]]:
    """As `open_backend`, but for all tenants of a store if none is named. By tenant; a server's key has one."""
    if (server := _server(at)) is not None:
        yield {"": server}
        return
    with _open_store(at) as (runner, store):
        tenants = (() if at.tenant is not None else runner.run(store.tenants())) or (
            runner.run(find_tenant(store, at.tenant)),
        )
        yield {each: StoreBackend(runner, store, each) for each in tenants}


def _server(at: ConversationPlace) -> ServerBackend | None:
    if at.server is None:
        return None
    if at.tenant is not None:
        raise InvalidValue("on a server the key says whose sessions they are; leave --tenant out")
    return ServerBackend(at.server, key=at.key)


@contextmanager
def _open_store(at: ConversationPlace) -> Iterator[tuple[asyncio.Runner, Store]]:
    with asyncio.Runner() as runner:
        opened = runner.run(open_existing(at.store))
        try:
            yield runner, opened
        finally:
            runner.run(opened.close())


class ServerBackend(Client):
    """A `SessionBackend` on a server."""

    def journal(self, turn_id: str) -> tuple[Record, ...]:
        # The events of a running turn have no end yet.
        return () if self.turn(turn_id).ended_at is None else tuple(self.records(turn_id))


class StoreBackend:
    """A `SessionBackend` over an open store."""

    def __init__(self, runner: asyncio.Runner, store: Store, tenant: Tenant) -> None:
        self._runner = runner
        self._store = store
        self._tenant = tenant
        self._mint = Ambient().mint

    # ── reading ──

    def sessions(self, **which: Unpack[SessionSelection]) -> api.SessionPage:
        chosen = SessionFilter(
            agent=which.get("agent"),
            key_prefix=which.get("key_prefix"),
            active_from_ms=_in_ms(which.get("active_from")),
            active_before_ms=_in_ms(which.get("active_before")),
            busy=which.get("busy"),
            anonymous=which.get("anonymous", False),
        )
        q, cursor = which.get("q"), which.get("cursor")
        limit = which.get("limit") or limits.page_size_default
        if q is not None:
            found = self._do(
                self._store.search(
                    self._tenant, parse_query(q), where=chosen, cursor=cursor, limit=limit
                )
            )
            return api.SessionPage(
                sessions=tuple(map(match_shown, found.matches)),
                cursor=found.cursor,
                damaged=found.damaged or UNSET,
            )
        page = self._do(
            self._store.sessions(self._tenant, where=chosen, cursor=cursor, limit=limit)
        )
        return api.SessionPage(
            sessions=tuple(map(session_shown, page.sessions)),
            cursor=page.cursor,
            damaged=page.damaged or UNSET,
        )

    def session(self, name: str) -> api.Session:
        return self._shown(self._find(name))

    def snapshot(self, name: str) -> Snapshot:
        """The whole conversation with the marks of its turns, which a server does not return."""
        found = self._do(self._store.snapshot(self._tenant, self._find(name)))
        if found is None:
            raise SessionMissing("session", name)
        return found

    def items(self, name: str, *, view: Literal["people", "model"] = "people") -> api.Items:
        return api.items_of(self.snapshot(name), as_model=view == "model")

    def turns(self, name: str) -> api.Turns:
        rows = self._do(self._store.turns(self._tenant, self._find(name)))
        used = sum((row.usage for row in rows), Usage())
        return api.Turns(turns=tuple(map(turn_shown, rows)), usage=api.UsageObject.of(used))

    def listed_turns(
        self, *, state: str = "open", since: float | None = None, limit: int | None = None
    ) -> api.ListedTurns:
        most = limit or limits.page_size_max
        found = listed_turns(
            self._store, self._tenant, read_state(state), since_s=since, limit=most
        )
        return api.ListedTurns(turns=self._do(found))

    def open_approvals(self, *, limit: int | None = None) -> api.ApprovalInbox:
        found = waiting_calls(self._store, self._tenant, limit=limit or limits.page_size_max)
        return api.ApprovalInbox(approvals=self._do(found))

    def turn(self, turn_id: str) -> api.TurnObject:
        return turn_shown(self._row(turn_id))

    def trace(self, turn_id: str) -> traces.TurnTrace:
        return self._do(trace_of(self._store, self._row(turn_id)))

    def journal(self, turn_id: str) -> tuple[Record, ...]:
        rows = self._do(self._store.journal(self._tenant, self._row(turn_id).turn_id))
        records = (record for row in rows for record in decode_records(row.records))
        return tuple(each for each in records if not isinstance(each, Unreadable))

    def export(self, name: str) -> Iterator[bytes]:
        going = export_session(self._store, self._tenant, self._find(name))
        while (each := self._do(_next(going))) is not None:
            if isinstance(each, LeftOut):
                continue  # another line of its family; the last line of the file names it
            yield b"".join(each.lines) if isinstance(each, Exported) else each

    # ── writing ──

    def change(
        self,
        name: str,
        *,
        title: str | None = None,
        attributes: Mapping[str, str | None] | None = None,
    ) -> api.Session:
        session_id = self._find(name)
        patches: list[Patch] = []
        if title is not None:
            patches.append(Titled(title=title[: limits.title_chars_max]))
        if attributes is not None:
            patches.append(_merged(attributes))
        self._do(self._store.annotate(self._tenant, session_id, [(None, each) for each in patches]))
        return self._shown(session_id)

    def delete(self, name: str) -> api.Deleted:
        session_id = self._find(name)
        self._do(self._store.remove(self._tenant, session_id))
        audit_command("session.delete", tenant=self._tenant, about=session_id)
        return api.Deleted(id=session_id, deleted=True)

    def take_in(
        self, exported: bytes, *, on_conflict: Literal["stop", "skip"] = "stop"
    ) -> api.Imported:
        return self._do(take_sessions(self._store, self._tenant, exported, on_conflict))

    def name(self, name: str, key: str) -> api.Session:
        session_id = self._find(name)
        self._do(self._store.name(self._tenant, session_id, SessionKey(key)))
        return self._shown(session_id)

    def fork(self, name: str, *, version: int | None = None) -> api.Session:
        session_id = self._find(name)
        at = self._shown(session_id).version if version is None else version
        fresh = self._mint(SessionId)
        row = self._do(self._store.fork(self._tenant, session_id, version=Version(at), fresh=fresh))
        return self._shown(row.id)

    def rewind(self, key: str, *, version: int) -> api.Session:
        if key.startswith(SessionId.prefix):
            raise InvalidValue(
                "a rewind is about a key, not about an id; `fork` goes on from an id"
            )
        fresh = self._mint(SessionId)
        row = self._do(
            self._store.bind(self._tenant, SessionKey(key), fresh=fresh, version=Version(version))
        )
        return self._shown(row.id)

    def rebind(self, name: str, *, model: str) -> api.Session:
        """Move a session to another source. A store serves no agents: here `model` is a source, as `serve` takes it."""
        info = self._info(self._find(name))
        outcome = self._rebound(info.session, model)
        if isinstance(outcome, Busy):
            raise SessionBusy(name, turn_id=outcome.turn_id, retry_after_s=RETRY_AFTER_S)
        return self._shown(info.session.id)

    def rebind_source(
        self, source: str, *, model: str, anonymous: bool = False, cursor: str | None = None
    ) -> api.Rebound:
        where = SessionFilter(anonymous=anonymous)
        limit = limits.page_size_max
        page = self._do(self._store.sessions(self._tenant, where=where, cursor=cursor, limit=limit))
        rows = (each.session for each in page.sessions)
        meant = [x for x in rows if is_called(source, key=x.source_key, name=x.source_name)]
        outcomes = {row.id: self._rebound(row, model) for row in meant}
        return api.Rebound(
            rebound=tuple(key for key, each in outcomes.items() if not isinstance(each, Busy)),
            busy=tuple(key for key, each in outcomes.items() if isinstance(each, Busy)),
            cursor=page.cursor,
        )

    def _rebound(self, session: SessionRow, source: str) -> SessionRow | Busy:
        name, reference = split_name(source)
        is_file = reference.endswith((".yaml", ".yml")) and "://" not in reference
        key = os.path.abspath(reference) if is_file else reference
        work = self._store.rebind(self._tenant, session.id, source_key=key, source_name=name)
        outcome = self._do(work)
        if not isinstance(outcome, Busy):
            audit_command(
                "session.rebind",
                tenant=self._tenant,
                about=session.id,
                source=source_called(key=session.source_key, name=session.source_name),
                to=source_called(key=key, name=name),
            )
        return outcome

    def cancel(self, turn_id: str) -> api.TurnObject:
        """Signal the node that plays a turn to stop, and wait for a while. A command takes no turn from its node."""
        row = self._row(turn_id)
        if row.state == "queued":
            row = self._do(self._withdraw(row.turn_id))
        payload = f"{STOPPED_BY}{_COMMAND}".encode()
        told = self._do(
            self._store.signal(self._tenant, row.turn_id, kind="cancel", payload=payload)
        )
        audit_command("turn.cancel", tenant=self._tenant, about=row.turn_id)
        if isinstance(told, TooLate):
            return turn_shown(told.turn)
        return turn_shown(self._do(self._wait_for_end(row.turn_id)))

    async def _withdraw(self, turn_id: TurnId) -> TurnRow:
        """End a queued turn, unless it has begun meanwhile."""
        stopped = Interrupted(by="cancelled", detail=f"{STOPPED_BY}{_COMMAND}")
        return await self._store.withdraw(
            self._tenant,
            turn_id,
            ended_by=stopped.by,
            detail="",
            records=last_words(stopped, at_ms=wall_clock_ms()),
            settlement="done",
        )

    async def _wait_for_end(self, turn_id: TurnId) -> TurnRow:
        loop = asyncio.get_running_loop()
        until = loop.time() + limits.cancel_grace_s
        while True:
            row = await self._store.turn(self._tenant, turn_id)
            if row is None:
                raise SessionMissing("turn", turn_id)
            if row.state in ("committed", "discarded") or loop.time() >= until:
                return row
            await asyncio.sleep(limits.busy_poll_s)

    # ── small things ──

    def _do(self, work: Awaitable[T]) -> T:
        async def done() -> T:
            return await work

        return self._runner.run(done())

    def _find(self, name: str) -> SessionId:
        return self._do(find_session(self._store, self._tenant, name))

    def _info(self, session_id: SessionId) -> SessionInfo:
        info = self._do(self._store.info(self._tenant, session_id))
        if info is None or info.session.state == "deleted":  # by another client, meanwhile
            raise SessionGone(session_id, why="deleted")
        return info

    def _shown(self, session_id: SessionId) -> api.Session:
        return session_shown(self._info(session_id))

    def _row(self, turn_id: str) -> TurnRow:
        try:
            row = self._do(self._store.turn(self._tenant, TurnId(turn_id)))
        except InvalidId as error:
            raise SessionMissing("turn", turn_id) from error
        if row is None:
            raise SessionMissing("turn", turn_id)
        return row


def _in_ms(at_s: float | None) -> int | None:
    return None if at_s is None else int(at_s * 1000)


async def _next(going: AsyncIterator[T]) -> T | None:
    return await anext(going, None)


def _merged(attributes: Mapping[str, str | None]) -> Patch:
    """The patch that sets these attributes; an attribute of None is removed. Raises InvalidValue."""
    merged = SettingsMerged(attributes=tuple(sorted(attributes.items())))
    try:
        return patch_decoder.strict(encode(merged))
    except msgspec.DecodeError as error:
        raise InvalidValue(f"these attributes cannot be kept: {error}") from error
