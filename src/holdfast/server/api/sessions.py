"""`/api`: sessions and turns as operators and tools see them. Nothing here loads an agent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import aclosing
from hashlib import sha256
from typing import Literal, TypeVar

import msgspec
from msgspec import UNSET

from holdfast import limits
from holdfast.agents.registry import Broken, Listed
from holdfast.core.codec import encode
from holdfast.core.history.conversation import SettingsMerged, Snapshot, patch_decoder
from holdfast.core.identity import portable_key
from holdfast.core.turns.events import Began, Usage
from holdfast.core.turns.journal import Record
from holdfast.errors import SessionMissing
from holdfast.ids import SessionKey, Version
from holdfast.server.agents.directory import Directory
from holdfast.server.agents.session_end_hooks import SessionEndHooks
from holdfast.server.api.approvals import ApprovalsApi
from holdfast.server.api.compaction import CompactionApi
from holdfast.server.api.objects import match_shown, session_shown, turn_shown
from holdfast.server.api.search_queue import SearchQueue
from holdfast.server.api.session_lookup import (
    find_turn,
    named_session,
    say_session,
    session_key,
    turn_id_of,
)
from holdfast.server.api.session_outcomes import read_outcome, sessions_standing, with_outcomes
from holdfast.server.api.transfer import send_session, take_sessions
from holdfast.server.http.parameters import (
    LIMIT,
    NARROW,
    ONCE,
    POLICY,
    AfterRecord,
    Flag,
    Parameter,
    Seconds,
    Words,
)
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route
from holdfast.server.openapi import error_codes as errors
from holdfast.server.turns.turn_requests import TurnSettings
from holdfast.sessions.operations import StillRunning
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.turns.watch import turn_row
from holdfast.store.outcomes import Attempt, Query, SessionFilter
from holdfast.store.search.matches import parse_query
from holdfast.wire.api import objects as api
from holdfast.wire.body_parser import BodyDecoder, read_body
from holdfast.wire.headers import ETAG, TURN_ID, read_naming
from holdfast.wire.openai.pages import read_limit
from holdfast.wire.problems import ErrorAnswer, bad_request
from holdfast.wire.sse import HEARTBEAT, data_frame

_SESSION = AnswerDescription("The session.", api.Session, headers=(ETAG.name,))
RESERVED = "holdfast."
"""The beginning of attributes that only the server sets."""

_BEGUN = AnswerDescription("The turn that carries out the decision.", api.TurnObject, 202)
_DECIDING = (
    *errors.TURN,
    "approval_closed",
    "approval_expired",
    "approval_not_found",
    "approvals_missing",
    "invalid_tool",
    "model_not_found",
    "too_many_grants",
)


class SessionsApi:
    """The endpoints under `/api`."""

    def __init__(
        self,
        sessions: Sessions,
        directory: Directory,
        approvals: ApprovalsApi,
        compacting: CompactionApi,
        settings: TurnSettings,
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._approvals = approvals
        self._compacting = compacting
        self._operations = sessions.operations
        self._store = sessions.store
        self._directory = directory
        self._end_hooks = SessionEndHooks(directory)
        self._searches = SearchQueue()

    @Route("GET /api/agents", "read", "listAgents", AnswerDescription("All of them.", api.Agents))
    async def agents(self, call: HttpCall) -> None:
        """The agents with their sources, and the sources that cannot be loaded."""
        agents = tuple(map(_agent, self._directory.entries(call.tenant)))
        broken = tuple(map(_broken, self._directory.broken(call.tenant)))
        await call.say(api.Agents(agents=agents, broken=broken))

    # ── sessions ──

    @Route(
        "GET /api/sessions",
        "read",
        "listSessions",
        AnswerDescription("Some sessions, the last active first.", api.SessionPage),
        parameters=(
            Parameter("q", "Words to look for in messages and titles.", Words),
            Parameter("agent", "Only sessions of this agent."),
            Parameter("key_prefix", "Only sessions with a key that begins with this."),
            Parameter("active_from", "Only sessions that were active then or later.", Seconds),
            Parameter("active_before", "Only sessions that were last active before.", Seconds),
            Parameter("busy", "Only sessions with a running turn, or without.", Flag),
            Parameter("anonymous", "Sessions without a name, in place of the others.", Flag),
            Parameter(
                "outcome",
                "Only sessions that stand like this: the last turn waits for a person, broke off, or failed lately.",
                Literal["waiting", "unfinished", "failed"],
            ),
            Parameter("outcomes", "Say of each session how it stands.", Flag),
            Parameter("cursor", "Continue where a page ended."),
            LIMIT,
        ),
        codes=("invalid_cursor",),
    )
    async def sessions(self, call: HttpCall) -> None:
        """List, filter and search sessions.

        See [search](search.md).
        """
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
        outcome = read_outcome(query)
        stands = outcome is not None or _flag(query, "outcomes")
        if "q" in query:
            sought = _sought(query["q"])
            with call.exchange.while_present():  # the search stops when its client disconnects
                async with self._searches.turn(tenant):
                    results = await self._store.search(
                        tenant, sought, where=where, cursor=cursor, limit=limit
                    )
            found = tuple(map(match_shown, results.matches))
            if stands:
                infos = [each.info for each in results.matches]
                found = await with_outcomes(self._store, tenant, infos, found, only=outcome)
            damaged = results.damaged or UNSET
            await call.say(api.SessionPage(sessions=found, cursor=results.cursor, damaged=damaged))
            return
        if outcome is not None:
            page = await sessions_standing(self._store, tenant, outcome, where, limit)
        else:
            page = await self._store.sessions(tenant, where=where, cursor=cursor, limit=limit)
        listed = tuple(map(session_shown, page.sessions))
        if stands:
            listed = await with_outcomes(self._store, tenant, page.sessions, listed, only=outcome)
        damaged = page.damaged or UNSET
        await call.say(api.SessionPage(sessions=listed, cursor=page.cursor, damaged=damaged))

    @Route(
        "POST /api/sessions/import",
        "admin",
        "importSessions",
        AnswerDescription("Which sessions were imported, and which were not.", api.Imported),
        body=BodyDescription(bytes, "", media_type="application/jsonl"),
        parameters=(
            Parameter(
                "on_conflict",
                "What to do about a session that differs from a stored one.",
                Literal["stop", "skip"],
            ),
        ),
        codes=("import_conflict", "invalid_export"),
        body_bytes_max=limits.import_body_bytes_max,
        audit="session.import",
    )
    async def take_in(self, call: HttpCall) -> None:
        """Import sessions from an export.

        See its [format](export-format.md).
        """
        how = call.query.get("on_conflict", "stop")
        await call.say(await take_sessions(self._store, call.tenant, call.body, how))

    @Route("GET /api/sessions/{name}", "read", "retrieveSession", _SESSION)
    async def session(self, call: HttpCall) -> None:
        """A session, by its key or its id."""
        info = await named_session(self._store, call)
        await call.say(session_shown(info), etag=info.session.head.etag)

    @Route(
        "PATCH /api/sessions/{name}",
        "chat",
        "updateSession",
        _SESSION,
        body=BodyDescription(api.Changes, {"title": "Oslo", "attributes": {"colour": "red"}}),
    )
    async def patch(self, call: HttpCall) -> None:
        """Change a session's title and attributes."""
        tenant, asked = call.tenant, _read(call.body, api.Changes)
        info = await named_session(self._store, call)
        if asked.title is not None:
            await self._operations.title(tenant, info.session.id, asked.title)
        if asked.attributes is not None:
            _refuse_reserved(asked.attributes)
            merged = SettingsMerged(attributes=tuple(sorted(asked.attributes.items())))
            try:
                patch = patch_decoder.strict(encode(merged))
            except msgspec.DecodeError as error:
                raise bad_request("invalid_value", str(error), param="attributes") from error
            await self._operations.annotate(tenant, info.session.id, [(None, patch)])
        await say_session(self._store, call, info.session.id)

    @Route(
        "DELETE /api/sessions/{name}",
        "admin",
        "deleteSession",
        AnswerDescription("The session is deleted.", api.Deleted),
        audit="session.delete",
    )
    async def delete(self, call: HttpCall) -> None:
        """Delete a session."""
        info = await named_session(self._store, call)
        await self._operations.delete(call.tenant, info.session.id)
        await self._end_hooks.run(info.session)
        await call.say(api.Deleted(id=info.session.id, deleted=True))

    @Route(
        "GET /api/sessions/{name}/items",
        "read",
        "listSessionItems",
        AnswerDescription("All items.", api.Items),
        parameters=(
            Parameter(
                "view",
                "`model`: what its agent's model sees, in place of everything.",
                Literal["people", "model"],
            ),
        ),
    )
    async def items(self, call: HttpCall) -> None:
        """All items of a session.

        `?view=model` shows what its model is sent: a summary in place of the past, no hidden items, and no more items
        than `num_history_items` of its agent.
        """
        view = call.query.get("view", "people")
        if view not in ("people", "model"):
            raise bad_request("invalid_value", "view is people or model", param="view")
        snapshot = await self._snapshot(call)
        items_max = self._directory.history_items_max(snapshot)
        as_model = view == "model"
        await call.say(api.items_of(snapshot, as_model=as_model, items_max=items_max))

    @Route(
        "GET /api/sessions/{name}/turns",
        "read",
        "listTurns",
        AnswerDescription("All turns, and what they consumed.", api.Turns),
    )
    async def turns(self, call: HttpCall) -> None:
        """A session's turns, discarded ones too."""
        info = await named_session(self._store, call)
        rows = await self._store.turns(call.tenant, info.session.id)
        used = sum((row.usage for row in rows), Usage())
        turns = tuple(map(turn_shown, rows))
        await call.say(api.Turns(turns=turns, usage=api.UsageObject.of(used)))

    @Route(
        "GET /api/sessions/{name}/export",
        "admin",
        "exportSession",
        AnswerDescription("An export.", bytes, media_type="application/jsonl"),
        audit="session.export",
    )
    async def export(self, call: HttpCall) -> None:
        """A session, its past, and all lines of its chat as lines of JSON."""
        info = await named_session(self._store, call)
        await send_session(call.exchange, self._store, call.tenant, info.session.id)

    @Route(
        "POST /api/sessions/{name}/fork",
        "chat",
        "forkSession",
        _SESSION,
        body=BodyDescription(api.Place, {"version": 1}, required=False),
        codes=("version_not_found",),
    )
    async def fork(self, call: HttpCall) -> None:
        """Make a session that begins with the history of this one.

        The history as it is now, or at the version that the body names, `{"version": 1}`.
        """
        version = _version(call)
        info = await named_session(self._store, call)
        row = await self._operations.fork(call.tenant, info.session.id, version)
        await say_session(self._store, call, row.id)

    @Route(
        "POST /api/sessions/{name}/reset",
        "chat",
        "resetSession",
        _SESSION,
        body=BodyDescription(api.Place, {}, required=False),
    )
    async def reset(self, call: HttpCall) -> None:
        """Point a key to a new, empty session."""
        _version(call)
        row = await self._operations.reset(call.tenant, _only_key(call, "reset"))
        await say_session(self._store, call, row.id)

    @Route(
        "POST /api/sessions/{name}/rewind",
        "chat",
        "rewindSession",
        _SESSION,
        body=BodyDescription(api.Place, {"version": 1}),
        codes=("version_not_found",),
    )
    async def rewind(self, call: HttpCall) -> None:
        """Point a key to a fork of its session at an earlier version.

        The body names the version, `{"version": 1}`.
        """
        version, key = _version(call), _only_key(call, "rewind")
        if version is None:
            raise bad_request("missing_required_parameter", "version is missing", param="version")
        row = await self._operations.rewind(call.tenant, key, version)
        await say_session(self._store, call, row.id)

    @Route(
        "POST /api/sessions/{name}/compact",
        "chat",
        "compactSession",
        AnswerDescription("The summary.", api.SessionSummary),
        codes=(*errors.AGENT, *errors.ASKING, "nothing_to_compact", "summary_moved"),
        passes_codes_on=True,
        load="turns",
    )
    async def compact(self, call: HttpCall) -> None:
        """Let the model see a summary in place of the past."""
        snapshot = await self._snapshot(call)
        made = await call.exchange.unless_gone(self._compacting.compact(call.tenant, snapshot))
        await call.say(made)

    async def _snapshot(self, call: HttpCall) -> Snapshot:
        info = await named_session(self._store, call)
        snapshot = await self._sessions.snapshot(call.tenant, info.session.id)
        if snapshot is None:
            raise SessionMissing("session", call.names[0])
        return snapshot

    # ── turns ──

    @Route(
        "GET /api/turns/{id}",
        "read",
        "retrieveTurn",
        AnswerDescription("The turn.", api.TurnObject),
    )
    async def turn(self, call: HttpCall) -> None:
        """A turn, and how it ended."""
        await call.say(turn_shown(await find_turn(self._store, call)))

    @Route(
        "GET /api/turns/{id}/events",
        "read",
        "watchTurn",
        AnswerDescription(
            "Events, each with its number; the last one says how the turn ended.",
            events=(api.TurnEvent, api.TurnEnded, ErrorAnswer),
            headers=(TURN_ID.name,),
        ),
        parameters=(
            Parameter("starting_after", "Leave out the events up to this number.", AfterRecord),
        ),
        load="watchers",
    )
    async def events(self, call: HttpCall) -> None:
        """A turn's events as they happen.

        `?starting_after=N` leaves out the events up to number N.
        """
        exchange, turn_id = call.exchange, turn_id_of(call)
        after = call.query.get("starting_after", "-1")
        if not re.fullmatch(r"-1|[0-9]{1,15}", after, re.ASCII):
            raise bad_request("invalid_value", "starting_after is a number", param="starting_after")
        watch = await self._sessions.watch(call.tenant, turn_id)
        await exchange.start_stream({TURN_ID.name: turn_id})
        batches = watch.batches(int(after) + 1, quiet_s=limits.heartbeat_s)
        with exchange.while_present():
            async with aclosing(batches):
                async for records in batches:
                    frames = b"".join(data_frame(encode(_as_shown(record))) for record in records)
                    await exchange.write(frames or HEARTBEAT)
        row = await turn_row(self._store, call.tenant, turn_id)
        await exchange.write(data_frame(encode(api.TurnEnded(turn=turn_shown(row)))))
        await exchange.finish()

    @Route(
        "POST /api/turns/{id}/cancel",
        "chat",
        "cancelTurn",
        AnswerDescription("The turn as it ended.", api.TurnObject),
        AnswerDescription("The turn has not stopped yet.", api.TurnObject, 202),
        audit="turn.cancel",
    )
    async def cancel(self, call: HttpCall) -> None:
        """Stop a turn.

        Answers with the turn as it ended, even if it had ended before.
        """
        by = call.caller.key_id or "a client without a key"
        outcome = await self._operations.cancel(call.tenant, turn_id_of(call), by=by)
        row = await turn_row(self._store, call.tenant, turn_id_of(call))
        await call.say(turn_shown(row), status=202 if isinstance(outcome, StillRunning) else 200)

    @Route(
        "POST /api/turns/{id}/continue",
        "chat",
        "continueTurn",
        AnswerDescription("The new turn that continues it.", api.TurnObject, 202),
        parameters=(ONCE,),
        codes=(
            *errors.AGENT,
            "conversation_gone",
            "conversation_locked",
            "idempotency_key_reused",
            "invalid_idempotency_key",
            "model_not_found",
            "turn_complete",
            "turn_not_head",
            "turn_not_kept",
        ),
        load="turns",
    )
    async def go_on(self, call: HttpCall) -> None:
        """Continue a turn that broke off.

        See [asking again](../guides/conversations.md#asking-again).
        """
        turn_id, headers = turn_id_of(call), call.exchange.headers
        attempt = Attempt(
            request_hash=sha256(call.exchange.path.encode()).digest(),
            key=read_naming(headers, names=()).idempotency_key,
        )
        watch = await self._sessions.continue_turn(
            call.tenant, turn_id, attempt=attempt, deadline_s=self._settings.deadline_s
        )
        row = await turn_row(self._store, call.tenant, watch.admission.turn_id)
        await call.say(turn_shown(row), status=202)

    @Route(
        "GET /api/turns/{id}/approvals",
        "read",
        "listApprovals",
        AnswerDescription("The calls that wait.", api.WaitingCalls),
    )
    async def approvals(self, call: HttpCall) -> None:
        """The calls of a turn that wait for a decision."""
        waiting = await self._approvals.waiting(call.tenant, turn_id_of(call))
        await call.say(api.WaitingCalls(approvals=waiting))

    @Route(
        "POST /api/turns/{id}/approvals",
        "chat",
        "decide",
        _BEGUN,
        body=BodyDescription(
            api.Decisions, {"decisions": {"fc_00000000000000000000000000": {"approve": True}}}
        ),
        parameters=(ONCE, POLICY, NARROW),
        codes=_DECIDING,
        load="turns",
        audit="approval.decide",
    )
    async def decide(self, call: HttpCall) -> None:
        """Decide on all calls of a turn that wait for approval.

        See [approvals](../guides/approvals.md).
        """
        await self._decide(call, _read(call.body, api.Decisions))

    @Route(
        "POST /api/turns/{id}/approvals/{call}",
        "chat",
        "decideOne",
        _BEGUN,
        body=BodyDescription(api.Decision, {"approve": True}),
        parameters=(ONCE, POLICY, NARROW),
        codes=_DECIDING,
        load="turns",
        audit="approval.decide",
    )
    async def decide_one(self, call: HttpCall) -> None:
        """Decide on one call that waits for approval."""
        _, waiting = call.names
        decision = _read(call.body, api.Decision)
        await self._decide(call, api.Decisions(decisions={waiting: decision}))

    async def _decide(self, call: HttpCall, decisions: api.Decisions) -> None:
        begun = await self._approvals.decide(call, turn_id_of(call), decisions)
        await call.say(
            turn_shown(await turn_row(self._store, call.tenant, begun.turn_id)), status=202
        )


T = TypeVar("T")


def _as_shown(record: Record) -> Record:
    """An event as clients see it: without the path of the agent's file on this machine."""
    if not isinstance(record.event, Began):
        return record
    request = record.event.request
    shown = msgspec.structs.replace(request, source_key=portable_key(request.source_key))
    return msgspec.structs.replace(record, event=Began(request=shown))


def _read(body: bytes, kind: type[T]) -> T:
    return read_body(BodyDecoder[T](kind), body)


def _sought(text: str) -> Query:
    if len(text) > limits.query_chars_max:
        told = f"q has {limits.query_chars_max} characters at most"
        raise bad_request("invalid_value", told, param="q")
    return parse_query(text)


def _seconds(query: dict[str, str], name: str) -> int | None:
    """A time of the query, in seconds, as the store's milliseconds."""
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


def _only_key(call: HttpCall, verb: str) -> SessionKey:
    """The key that a path names. Raises Refused (400) if it names an id."""
    (name,) = call.names
    if name.startswith("conv_"):
        raise bad_request("invalid_conversation_key", f"a {verb} is about a key, not about an id")
    return session_key(name)


def _version(call: HttpCall) -> Version | None:
    """The version that the body names, if it names one."""
    at = _read(call.body, api.Place).version if call.body else None
    return None if at is None else Version(at)


def _agent(entry: Listed) -> api.AgentObject:
    return api.AgentObject(
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


def _broken(broken: Broken) -> api.BrokenSource:
    return api.BrokenSource(source=broken.source, problems=broken.problems, serving=broken.serving)


def _refuse_reserved(attributes: Iterable[str]) -> None:
    """Raise Refused if a client wants to set an attribute by which the server decides what a key may see."""
    for name in attributes:
        if name.startswith(RESERVED):
            raise bad_request(
                "invalid_value",
                f"attributes that begin with {RESERVED!r} are the server's",
                param="attributes",
            )
