"""`/api`: sessions and turns as operators and tools see them. Nothing here loads an agent."""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import Annotated, TypeVar
from urllib.parse import parse_qs, unquote

import msgspec

from holdfast import limits
from holdfast.core.codec import Unreadable, encode
from holdfast.core.conversation import SettingsMerged, Snapshot, patch_decoder, seen_by_model
from holdfast.core.events import Usage
from holdfast.core.items import StoredItem
from holdfast.errors import InvalidId, SessionGone, SessionMissing
from holdfast.ids import SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.server.approvals import Approvals, Decision, Decisions
from holdfast.server.compacting import Compacting
from holdfast.server.directory import Directory
from holdfast.server.exchange import Exchange
from holdfast.server.methods import only
from holdfast.server.transfer import send_session, take_sessions
from holdfast.sessions.operations import StillRunning
from holdfast.sessions.sessions import Sessions
from holdfast.store.base import Match, Query, SessionFilter, SessionInfo
from holdfast.store.rows import TurnRow
from holdfast.store.searching import parse_query
from holdfast.wire.problems import Problem, Refused, bad_request
from holdfast.wire.sse import HEARTBEAT, data_frame


class Api:
    """The endpoints under `/api`."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        approvals: Approvals,
        compacting: Compacting,
    ) -> None:
        self._sessions = sessions
        self._approvals = approvals
        self._compacting = compacting
        self._operations = sessions.operations
        self._store = sessions.store
        self._directory = directory

    async def serve(self, exchange: Exchange, tenant: Tenant) -> None:
        steps = [unquote(step) for step in exchange.path.strip("/").split("/")[1:]]
        is_import = steps == ["sessions", "import"] and exchange.method == "POST"
        body = await exchange.body(
            bytes_max=limits.import_body_bytes_max if is_import else limits.api_body_bytes_max
        )
        match steps:
            case ["agents"]:
                only(exchange, "GET")
                agents = [_plain(each) for each in self._directory.entries()]
                await _say(exchange, {"agents": agents})
            case ["sessions"]:
                only(exchange, "GET")
                await self._list(exchange, tenant)
            case ["sessions", "import"] if is_import:
                how = _query(exchange).get("on_conflict", "stop")
                await take_sessions(exchange, self._store, tenant, body, how)
            case ["sessions", name]:
                only(exchange, "GET", "PATCH", "DELETE")
                await self._serve_session(exchange, tenant, name, body)
            case ["sessions", name, ("items" | "turns") as part]:
                only(exchange, "GET")
                read = self._items if part == "items" else self._turns
                await read(exchange, tenant, name)
            case ["sessions", name, "export"]:
                only(exchange, "GET")
                found = await self._find(tenant, name)
                await send_session(exchange, self._store, tenant, found.session.id)
            case ["sessions", name, ("fork" | "reset" | "rewind") as verb]:
                only(exchange, "POST")
                await self._move(exchange, tenant, name, verb, body)
            case ["sessions", name, "compact"]:
                only(exchange, "POST")
                await self._compact(exchange, tenant, name)
            case ["turns", name]:
                only(exchange, "GET")
                await _say(exchange, _turn(await self._turn(tenant, name)))
            case ["turns", name, "cancel"]:
                only(exchange, "POST")
                await self._cancel(exchange, tenant, name)
            case ["turns", name, "approvals"]:
                only(exchange, "GET", "POST")
                await self._decide(exchange, tenant, name, body)
            case ["turns", name, "approvals", call]:
                only(exchange, "POST")
                decision = Decisions(decisions={call: _read(body, Decision)})
                await self._begin_decided(exchange, tenant, name, decision, body)
            case ["turns", name, "events"]:
                only(exchange, "GET")
                await self._events(exchange, tenant, name)
            case _:
                raise Refused(_unknown(exchange))

    async def _serve_session(
        self, exchange: Exchange, tenant: Tenant, name: str, body: bytes
    ) -> None:
        match exchange.method:
            case "PATCH":
                await self._patch(exchange, tenant, name, body)
            case "DELETE":
                await self._delete(exchange, tenant, name)
            case _:
                await self._session(exchange, tenant, name)

    # ── sessions ──

    async def _list(self, exchange: Exchange, tenant: Tenant) -> None:
        query = _query(exchange)
        where = SessionFilter(
            agent=query.get("agent"),
            key_prefix=query.get("key_prefix"),
            active_from_ms=_seconds(query, "active_from"),
            active_before_ms=_seconds(query, "active_before"),
            busy={"true": True, "false": False}.get(query.get("busy", "")),
            anonymous=query.get("anonymous") == "true",
        )
        cursor, limit = query.get("cursor"), _limit(query.get("limit"))
        if "q" in query:
            results = await self._store.search(
                tenant, _sought(query["q"]), where=where, cursor=cursor, limit=limit
            )
            listed = [{**_session(each.info), "match": _match(each)} for each in results.matches]
            await _say(exchange, {"sessions": listed, "cursor": results.cursor})
            return
        page = await self._store.sessions(tenant, where=where, cursor=cursor, limit=limit)
        listed = [_session(each) for each in page.sessions]
        await _say(exchange, {"sessions": listed, "cursor": page.cursor})

    async def _session(self, exchange: Exchange, tenant: Tenant, name: str) -> None:
        info = await self._find(tenant, name)
        await _say(exchange, _session(info), etag=info.session.head.etag)

    async def _patch(self, exchange: Exchange, tenant: Tenant, name: str, body: bytes) -> None:
        asked = _read(body, Changes)
        info = await self._find(tenant, name)
        if asked.title is not None:
            await self._operations.title(tenant, info.session.id, asked.title)
        if asked.attributes is not None:
            merged = SettingsMerged(attributes=tuple(sorted(asked.attributes.items())))
            try:
                patch = patch_decoder.strict(encode(merged))
            except msgspec.DecodeError as error:
                raise bad_request("invalid_value", str(error), param="attributes") from error
            await self._operations.annotate(tenant, info.session.id, [(None, patch)])
        await self._session(exchange, tenant, str(info.session.id))

    async def _delete(self, exchange: Exchange, tenant: Tenant, name: str) -> None:
        info = await self._find(tenant, name)
        await self._operations.delete(tenant, info.session.id)
        await _say(exchange, {"id": str(info.session.id), "deleted": True})

    async def _move(
        self, exchange: Exchange, tenant: Tenant, name: str, verb: str, body: bytes
    ) -> None:
        """Fork a session, or make its key mean another one: a new one, or itself as it was."""
        at = _read(body, Place).version if body else None
        version = None if at is None else Version(at)
        if verb == "fork":
            info = await self._find(tenant, name)
            row = await self._operations.fork(tenant, info.session.id, version)
        elif name.startswith("conv_"):
            raise bad_request(
                "invalid_conversation_key", f"a {verb} is about a key, not about an id"
            )
        elif verb == "reset":
            row = await self._operations.reset(tenant, _key(name))
        elif version is None:
            raise bad_request("missing_required_parameter", "version is missing", param="version")
        else:
            row = await self._operations.rewind(tenant, _key(name), version)
        found = await self._store.info(tenant, row.id)
        assert found is not None, "it was just made"
        await _say(exchange, _session(found), etag=row.head.etag)

    async def _items(self, exchange: Exchange, tenant: Tenant, name: str) -> None:
        """A session's items: as they are, or with `view=model` as its agent's model sees them now."""
        view = _query(exchange).get("view", "people")
        if view not in ("people", "model"):
            raise bad_request("invalid_value", "view is people or model", param="view")
        snapshot = await self._snapshot(tenant, name)
        seen = seen_by_model(snapshot) if view == "model" else snapshot.items
        body = b'{"version":%d,"items":[%b]}' % (snapshot.version, b",".join(map(_item, seen)))
        await exchange.answer(200, body)

    async def _compact(self, exchange: Exchange, tenant: Tenant, name: str) -> None:
        snapshot = await self._snapshot(tenant, name)
        made = await exchange.unless_gone(self._compacting.compact(tenant, snapshot))
        await exchange.answer(200, msgspec.json.encode(made))

    async def _snapshot(self, tenant: Tenant, name: str) -> Snapshot:
        info = await self._find(tenant, name)
        snapshot = await self._sessions.snapshot(tenant, info.session.id)
        if snapshot is None:
            raise SessionMissing("session", name)
        return snapshot

    async def _turns(self, exchange: Exchange, tenant: Tenant, name: str) -> None:
        info = await self._find(tenant, name)
        rows = await self._store.turns(tenant, info.session.id)
        used = sum((row.usage for row in rows), Usage())
        await _say(exchange, {"turns": [_turn(row) for row in rows], "usage": _plain(used)})

    async def _find(self, tenant: Tenant, name: str) -> SessionInfo:
        """A session by its id, or by the key that means it."""
        session_id: SessionId | None
        if name.startswith("conv_"):
            try:
                session_id = SessionId(name)
            except InvalidId as error:
                raise bad_request("invalid_conversation_key", str(error)) from error
        else:
            row = await self._store.resolve(tenant, _key(name))
            session_id = row.session_id if row else None
        info = await self._store.info(tenant, session_id) if session_id else None
        if info is None:
            raise SessionMissing("session", name)
        if info.session.state == "deleted":
            raise SessionGone(name, why="deleted")
        return info

    # ── turns ──

    async def _turn(self, tenant: Tenant, name: str) -> TurnRow:
        row = await self._store.turn(tenant, _turn_id(name))
        if row is None:
            raise SessionMissing("turn", name)
        return row

    async def _cancel(self, exchange: Exchange, tenant: Tenant, name: str) -> None:
        outcome = await self._operations.cancel(tenant, _turn_id(name))
        row = await self._turn(tenant, name)
        await _say(exchange, _turn(row), status=202 if isinstance(outcome, StillRunning) else 200)

    async def _decide(self, exchange: Exchange, tenant: Tenant, name: str, body: bytes) -> None:
        if exchange.method == "GET":
            waiting = await self._approvals.waiting(tenant, _turn_id(name))
            await _say(exchange, {"approvals": waiting})
        else:
            await self._begin_decided(exchange, tenant, name, _read(body, Decisions), body)

    async def _begin_decided(
        self, exchange: Exchange, tenant: Tenant, name: str, decisions: Decisions, body: bytes
    ) -> None:
        begun = await self._approvals.decide(exchange, tenant, _turn_id(name), decisions, body)
        row = await self._turn(tenant, str(begun.turn_id))
        await _say(exchange, _turn(row), status=202)

    async def _events(self, exchange: Exchange, tenant: Tenant, name: str) -> None:
        """A turn's events as they happen, numbered; those after `starting_after` only."""
        after = _query(exchange).get("starting_after", "-1")
        if not re.fullmatch(r"-1|[0-9]{1,15}", after, re.ASCII):
            raise bad_request("invalid_value", "starting_after is a number", param="starting_after")
        watch = await self._sessions.watch(tenant, _turn_id(name))
        await exchange.start_stream({"x-turn-id": name})
        batches = watch.batches(int(after) + 1, quiet_s=limits.heartbeat_s)
        with exchange.while_present():
            async with aclosing(batches):
                async for records in batches:
                    frames = b"".join(data_frame(encode(record)) for record in records)
                    await exchange.write(frames or HEARTBEAT)
        row = await self._turn(tenant, name)
        await exchange.write(data_frame(msgspec.json.encode({"turn": _turn(row)})))
        await exchange.finish()


class Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What can be changed about a session. An attribute that is null is taken away."""

    title: str | None = None
    attributes: dict[str, str | None] | None = None


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where in a session's past."""

    version: Annotated[int, msgspec.Meta(ge=0)] | None = None


T = TypeVar("T")


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request("invalid_json", f"the body does not fit: {error}") from error


def _query(exchange: Exchange) -> dict[str, str]:
    """The query of a request; of what is there twice, the last."""
    found = parse_qs(exchange.query.decode("utf-8", "replace"))
    return {name: values[-1] for name, values in found.items()}


def _sought(text: str) -> Query:
    if len(text) > limits.query_chars_max:
        told = f"q has {limits.query_chars_max} characters at most"
        raise bad_request("invalid_value", told, param="q")
    return parse_query(text)


def _seconds(query: dict[str, str], name: str) -> int | None:
    """A time as the API gives it, in seconds, as the store has it."""
    text = query.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text, re.ASCII):
        raise bad_request("invalid_value", f"{name} is a time in seconds", param=name)
    return int(float(text) * 1000)


def _key(name: str) -> SessionKey:
    try:
        return SessionKey(name)
    except InvalidId as error:
        raise bad_request("invalid_conversation_key", str(error)) from error


def _turn_id(name: str) -> TurnId:
    try:
        return TurnId(name)
    except InvalidId as error:
        raise SessionMissing("turn", name) from error


def _limit(text: str | None) -> int:
    if text is None:
        return limits.page_size_default
    if not text.isdigit() or not 1 <= int(text) <= limits.page_size_max:
        raise bad_request("invalid_value", f"limit is 1 to {limits.page_size_max}", param="limit")
    return int(text)


def _session(info: SessionInfo) -> dict[str, object]:
    row = info.session
    return {
        "id": str(row.id),
        "keys": [str(key) for key in info.keys],
        "title": row.title or row.opening,
        "agent": row.agent,
        "version": int(row.head),
        "items": row.length,
        "open_turn": str(row.open_turn) if row.open_turn else None,
        "created_at": row.created_ms / 1000,
        "active_at": row.active_ms / 1000,
        "attributes": dict(row.settings.attributes),
    }


def _match(match: Match) -> dict[str, object]:
    """Where it was found. The excerpt is text in pieces, some of them hits; there is no markup in it."""
    return {
        "in": "title" if match.item is None else "message",
        "item": str(match.item) if match.item else None,
        "position": match.position,
        "excerpt": [{"text": piece.text, "hit": piece.hit} for piece in match.excerpt],
    }


def _turn(row: TurnRow) -> dict[str, object]:
    return {
        "id": str(row.turn_id),
        "session_id": str(row.session_id),
        "state": row.state,
        "ended_by": row.ended_by,
        "detail": row.detail,
        "base": int(row.base_head),
        "version": int(row.seq) if row.seq is not None else None,
        "attempt": row.attempt,
        "agent": row.agent,
        "usage": _plain(row.usage),
        "began_at": row.began_ms / 1000,
        "ended_at": row.ended_ms / 1000 if row.ended_ms else None,
    }


def _item(item: StoredItem) -> bytes:
    return b'{"type":"unreadable"}' if isinstance(item, Unreadable) else encode(item)


def _plain(value: msgspec.Struct) -> dict[str, object]:
    return msgspec.structs.asdict(value)


async def _say(
    exchange: Exchange, body: dict[str, object], *, status: int = 200, etag: str = ""
) -> None:
    headers = {"etag": etag} if etag else None
    await exchange.answer(status, msgspec.json.encode(body), headers=headers)


def _unknown(exchange: Exchange) -> Problem:
    return Problem(
        status=404,
        code="unknown_url",
        message=f"{exchange.method} {exchange.path} is not part of the API",
        should_retry=False,
    )
