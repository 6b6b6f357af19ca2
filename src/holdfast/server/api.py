"""`/api`: sessions and turns as operators and tools see them. Nothing here loads an agent."""

from __future__ import annotations

import re
from contextlib import aclosing
from hashlib import sha256
from typing import TypeVar

import msgspec

from holdfast import limits
from holdfast.core.codec import encode
from holdfast.core.conversation import SettingsMerged, Snapshot, patch_decoder
from holdfast.core.events import Began, Usage
from holdfast.core.identity import portable_key
from holdfast.core.journal import Record
from holdfast.errors import InvalidId, SessionGone, SessionMissing
from holdfast.ids import SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.server.approvals import Approvals
from holdfast.server.compacting import Compacting
from holdfast.server.directory import BrokenSource, Directory, ModelEntry
from holdfast.server.farewells import Farewells
from holdfast.server.finding import find_session, session_key
from holdfast.server.routing import Call
from holdfast.server.search_queue import SearchQueue
from holdfast.server.shown import match_shown, session_shown, turn_shown
from holdfast.server.transfer import send_session, take_sessions
from holdfast.sessions.operations import StillRunning
from holdfast.sessions.sessions import Sessions
from holdfast.store.base import Attempt, Query, SessionFilter, SessionInfo
from holdfast.store.matches import parse_query
from holdfast.store.rows import TurnRow
from holdfast.wire import api
from holdfast.wire.headers import read_naming
from holdfast.wire.pages import read_limit
from holdfast.wire.problems import bad_request
from holdfast.wire.reading import read_body
from holdfast.wire.sse import HEARTBEAT, data_frame


class Api:
    """The endpoints under `/api`."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        approvals: Approvals,
        compacting: Compacting,
        *,
        deadline_s: float,
    ) -> None:
        self._deadline_s = deadline_s
        self._sessions = sessions
        self._approvals = approvals
        self._compacting = compacting
        self._operations = sessions.operations
        self._store = sessions.store
        self._directory = directory
        self._farewells = Farewells(directory)
        self._searches = SearchQueue()

    async def agents(self, call: Call) -> None:
        agents = tuple(map(_agent, self._directory.entries(call.tenant)))
        broken = tuple(map(_broken, self._directory.broken(call.tenant)))
        await _say(call, api.Agents(agents=agents, broken=broken))

    # ── sessions ──

    async def sessions(self, call: Call) -> None:
        tenant, query = call.tenant, call.query
        where = SessionFilter(
            agent=query.get("agent"),
            key_prefix=query.get("key_prefix"),
            active_from_ms=_seconds(query, "active_from"),
            active_before_ms=_seconds(query, "active_before"),
            busy=_flag(query, "busy"),
            anonymous=_flag(query, "anonymous") or False,
        )
        cursor, limit = query.get("cursor"), read_limit(query)
        if "q" in query:
            sought = _sought(query["q"])
            with (
                call.exchange.while_present()
            ):  # what nobody waits for is not looked for any further
                async with self._searches.turn(tenant):
                    results = await self._store.search(
                        tenant, sought, where=where, cursor=cursor, limit=limit
                    )
            found = tuple(map(match_shown, results.matches))
            await _say(call, api.SessionPage(sessions=found, cursor=results.cursor))
            return
        page = await self._store.sessions(tenant, where=where, cursor=cursor, limit=limit)
        listed = tuple(map(session_shown, page.sessions))
        await _say(call, api.SessionPage(sessions=listed, cursor=page.cursor))

    async def session(self, call: Call) -> None:
        info = await self._find(call)
        await _say(call, session_shown(info), etag=info.session.head.etag)

    async def patch(self, call: Call) -> None:
        tenant, asked = call.tenant, _read(call.body, api.Changes)
        info = await self._find(call)
        if asked.title is not None:
            await self._operations.title(tenant, info.session.id, asked.title)
        if asked.attributes is not None:
            merged = SettingsMerged(attributes=tuple(sorted(asked.attributes.items())))
            try:
                patch = patch_decoder.strict(encode(merged))
            except msgspec.DecodeError as error:
                raise bad_request("invalid_value", str(error), param="attributes") from error
            await self._operations.annotate(tenant, info.session.id, [(None, patch)])
        await self._show(call, info.session.id)

    async def delete(self, call: Call) -> None:
        info = await self._find(call)
        await self._operations.delete(call.tenant, info.session.id)
        await self._farewells.say(info.session)
        await _say(call, api.Deleted(id=info.session.id, deleted=True))

    async def take_in(self, call: Call) -> None:
        how = call.query.get("on_conflict", "stop")
        await _say(call, await take_sessions(self._store, call.tenant, call.body, how))

    async def export(self, call: Call) -> None:
        info = await self._find(call)
        await send_session(call.exchange, self._store, call.tenant, info.session.id)

    async def fork(self, call: Call) -> None:
        """Make a session that begins as this one stood, now or at a version."""
        version = _version(call)
        info = await self._find(call)
        row = await self._operations.fork(call.tenant, info.session.id, version)
        await self._show(call, row.id)

    async def reset(self, call: Call) -> None:
        """Make a key mean a new session."""
        _version(call)
        row = await self._operations.reset(call.tenant, _only_key(call, "reset"))
        await self._show(call, row.id)

    async def rewind(self, call: Call) -> None:
        """Make a key mean its session as it was."""
        version, key = _version(call), _only_key(call, "rewind")
        if version is None:
            raise bad_request("missing_required_parameter", "version is missing", param="version")
        row = await self._operations.rewind(call.tenant, key, version)
        await self._show(call, row.id)

    async def _show(self, call: Call, session_id: SessionId) -> None:
        """Answer with a session that is there, since we have just changed or made it."""
        info = await self._store.info(call.tenant, session_id)
        if info is None or info.session.state == "deleted":  # by somebody else, meanwhile
            raise SessionGone(session_id, why="deleted")
        await _say(call, session_shown(info), etag=info.session.head.etag)

    async def items(self, call: Call) -> None:
        """A session's items: as they are, or with `view=model` as its agent's model sees them now."""
        view = call.query.get("view", "people")
        if view not in ("people", "model"):
            raise bad_request("invalid_value", "view is people or model", param="view")
        snapshot = await self._snapshot(call)
        items_max = self._directory.history_items_max(snapshot)
        as_model = view == "model"
        await _say(call, api.items_of(snapshot, as_model=as_model, items_max=items_max))

    async def compact(self, call: Call) -> None:
        snapshot = await self._snapshot(call)
        made = await call.exchange.unless_gone(self._compacting.compact(call.tenant, snapshot))
        await _say(call, made)

    async def _snapshot(self, call: Call) -> Snapshot:
        info = await self._find(call)
        snapshot = await self._sessions.snapshot(call.tenant, info.session.id)
        if snapshot is None:
            raise SessionMissing("session", call.names[0])
        return snapshot

    async def turns(self, call: Call) -> None:
        info = await self._find(call)
        rows = await self._store.turns(call.tenant, info.session.id)
        used = sum((row.usage for row in rows), Usage())
        turns = tuple(map(turn_shown, rows))
        await _say(call, api.Turns(turns=turns, usage=api.Usage.of(used)))

    async def _find(self, call: Call) -> SessionInfo:
        """The session that a path names by its id, or by the key that means it."""
        return await find_session(self._store, call.tenant, call.names[0])

    # ── turns ──

    async def turn(self, call: Call) -> None:
        await _say(call, turn_shown(await self._row(call.tenant, _turn_id(call))))

    async def cancel(self, call: Call) -> None:
        outcome = await self._operations.cancel(call.tenant, _turn_id(call))
        row = await self._row(call.tenant, _turn_id(call))
        await _say(call, turn_shown(row), status=202 if isinstance(outcome, StillRunning) else 200)

    async def go_on(self, call: Call) -> None:
        """Continue an unfinished turn, because a person asks for it."""
        turn_id, headers = _turn_id(call), call.exchange.headers
        attempt = Attempt(
            request_hash=sha256(call.exchange.path.encode()).digest(),
            key=read_naming(headers, names=()).idempotency_key,
        )
        watch = await self._sessions.continue_turn(
            call.tenant, turn_id, attempt=attempt, deadline_s=self._deadline_s
        )
        row = await self._row(call.tenant, watch.admission.turn_id)
        await _say(call, turn_shown(row), status=202)

    async def approvals(self, call: Call) -> None:
        waiting = await self._approvals.waiting(call.tenant, _turn_id(call))
        await _say(call, api.WaitingCalls(approvals=waiting))

    async def decide(self, call: Call) -> None:
        """Decide on all calls of a turn that wait for it."""
        await self._decide(call, _read(call.body, api.Decisions))

    async def decide_one(self, call: Call) -> None:
        _, waiting = call.names
        decision = _read(call.body, api.Decision)
        await self._decide(call, api.Decisions(decisions={waiting: decision}))

    async def _decide(self, call: Call, decisions: api.Decisions) -> None:
        begun = await self._approvals.decide(call, _turn_id(call), decisions)
        await _say(call, turn_shown(await self._row(call.tenant, begun.turn_id)), status=202)

    async def _row(self, tenant: Tenant, turn_id: TurnId) -> TurnRow:
        row = await self._store.turn(tenant, turn_id)
        if row is None:
            raise SessionMissing("turn", turn_id)
        return row

    async def events(self, call: Call) -> None:
        """A turn's events as they happen, numbered; those after `starting_after` only."""
        exchange, turn_id = call.exchange, _turn_id(call)
        after = call.query.get("starting_after", "-1")
        if not re.fullmatch(r"-1|[0-9]{1,15}", after, re.ASCII):
            raise bad_request("invalid_value", "starting_after is a number", param="starting_after")
        watch = await self._sessions.watch(call.tenant, turn_id)
        await exchange.start_stream({"x-turn-id": turn_id})
        batches = watch.batches(int(after) + 1, quiet_s=limits.heartbeat_s)
        with exchange.while_present():
            async with aclosing(batches):
                async for records in batches:
                    frames = b"".join(data_frame(encode(_as_shown(record))) for record in records)
                    await exchange.write(frames or HEARTBEAT)
        row = await self._row(call.tenant, turn_id)
        await exchange.write(data_frame(encode(api.TurnEnded(turn=turn_shown(row)))))
        await exchange.finish()


T = TypeVar("T")


def _as_shown(record: Record) -> Record:
    """An event as it is shown: whose agent it is, and not where on this machine its file lies."""
    if not isinstance(record.event, Began):
        return record
    request = record.event.request
    shown = msgspec.structs.replace(request, source_key=portable_key(request.source_key))
    return msgspec.structs.replace(record, event=Began(request=shown))


def _read(body: bytes, kind: type[T]) -> T:
    return read_body(msgspec.json.Decoder(kind), body)


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


def _flag(query: dict[str, str], name: str) -> bool | None:
    text = query.get(name)
    if text not in ("true", "false", None):
        raise bad_request("invalid_value", f"{name} is true or false", param=name)
    return None if text is None else text == "true"


def _only_key(call: Call, verb: str) -> SessionKey:
    """What a path names, if that is a key."""
    (name,) = call.names
    if name.startswith("conv_"):
        raise bad_request("invalid_conversation_key", f"a {verb} is about a key, not about an id")
    return session_key(name)


def _version(call: Call) -> Version | None:
    """Where in a session's past, if a body says so."""
    at = _read(call.body, api.Place).version if call.body else None
    return None if at is None else Version(at)


def _turn_id(call: Call) -> TurnId:
    """The turn that a path names. A name that none can have is one that none has."""
    name = call.names[0]
    try:
        return TurnId(name)
    except InvalidId as error:
        raise SessionMissing("turn", name) from error


def _agent(entry: ModelEntry) -> api.Agent:
    return api.Agent(
        id=entry.id,
        agent=entry.agent,
        source=entry.source,
        description=entry.description,
        welcome_message=entry.welcome_message,
        commands=tuple(
            api.Command(name=each.name, description=each.description, instruction=each.instruction)
            for each in entry.commands
        ),
    )


def _broken(broken: BrokenSource) -> api.BrokenSource:
    return api.BrokenSource(source=broken.source, problems=broken.problems, serving=broken.serving)


async def _say(call: Call, body: msgspec.Struct, *, status: int = 200, etag: str = "") -> None:
    headers = {"etag": etag} if etag else None
    await call.exchange.answer(status, encode(body), headers=headers)
