"""The parts of `/api` for the console: histories in pages, lineage and forks, the hash chain, annotations, nodes.

1. Nothing here loads an agent, and nothing rewrites a history: annotations are appended.
2. A page of a history costs its own turns and one look at the snapshot, which is cached; not the whole session.
3. Another tenant's session answers as one that does not exist. Nodes belong to no tenant, so they need the scope
   `metrics`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from holdfast import limits
from holdfast.core.history.conversation import Segment, Snapshot, seen_by_model, summary_seen
from holdfast.core.items import StoredItem, item_id
from holdfast.errors import InvalidId, SessionMissing
from holdfast.ids import ItemId, SessionId, Tenant, TurnId
from holdfast.observe.recent_log import RecentLog
from holdfast.server.api.objects import turn_shown
from holdfast.server.api.session_lookup import named_session
from holdfast.server.http.parameters import Limit, Parameter
from holdfast.server.http.routing import AnswerDescription, BodyDescription, HttpCall, Route
from holdfast.server.processes.number_history import NumberHistory
from holdfast.sessions.sessions import Sessions
from holdfast.store.outcomes import SessionInfo
from holdfast.store.rows import TurnRow
from holdfast.store.verification.verification import IndexCheck, check_session
from holdfast.wire.api import overview as shown
from holdfast.wire.api.objects import items_shown
from holdfast.wire.body_parser import BodyDecoder, read_body
from holdfast.wire.openai.pages import read_page
from holdfast.wire.problems import bad_request

_remarks: BodyDecoder[shown.Remark] = BodyDecoder(shown.Remark)


class Overview:
    """The endpoints. One instance serves every request."""

    def __init__(
        self, sessions: Sessions, recent: RecentLog, history: NumberHistory, *, currency: str = ""
    ) -> None:
        self._sessions = sessions
        self._store = sessions.store
        self._recent = recent
        self._history = history
        self._currency = currency

    @Route("GET /api/me", "read", "retrieveMe", AnswerDescription("You.", shown.Me))
    async def me(self, call: HttpCall) -> None:
        """The caller's tenant, key and scopes."""
        caller = call.caller
        await call.say(
            shown.Me(
                tenant=caller.tenant,
                key=caller.key_id,
                scopes=caller.scopes,
                currency=self._currency,
            )
        )

    @Route(
        "GET /api/nodes",
        "metrics",
        "listNodes",
        AnswerDescription("All nodes, and the server's time.", shown.Nodes),
    )
    async def nodes(self, call: HttpCall) -> None:
        """The processes that hold leases on the store."""
        here = self._sessions.lease.node
        nodes = [
            shown.Node(
                id=row.node_id,
                here=row.node_id == here,
                since=row.since_ms / 1000,
                expires_at=row.expires_ms / 1000,
            )
            for row in await self._store.nodes()
        ]
        await call.say(shown.Nodes(nodes=tuple(nodes), now=time.time()))

    @Route(
        "GET /api/numbers",
        "metrics",
        "listNumbers",
        AnswerDescription("Samples of the last hour.", shown.NumbersOverTime),
    )
    async def numbers(self, call: HttpCall) -> None:
        """How the numbers of the server have changed in the last hour."""
        await call.say(self._history.shown())

    @Route(
        "GET /api/log",
        "metrics",
        "listLogRecords",
        AnswerDescription("The last warnings and errors, the newest first.", shown.RecentRecords),
    )
    async def log(self, call: HttpCall) -> None:
        """The last warnings and errors of the process that answers."""
        records = tuple(
            shown.LogRecord(at=each.at, level=each.level, log=each.log, words=each.words)
            for each in self._recent.lines
        )
        node = str(self._sessions.lease.node)
        await call.say(shown.RecentRecords(node=node, records=records))

    # ── one session ──

    @Route(
        "GET /api/sessions/{name}/history",
        "read",
        "readHistory",
        AnswerDescription("Some turns, and the annotations.", shown.History),
        parameters=(
            Parameter("before", "Continue before the turn with this id."),
            Parameter("limit", "How many turns at most.", Limit),
        ),
    )
    async def history(self, call: HttpCall) -> None:
        """Turns in every state with their items, the newest first.

        `?before=` continues where an answer ended; in a fork it continues with the turns before the fork.
        """
        info = await named_session(self._store, call)
        before, limit = _before(call), read_page(call.query).limit
        # In this order, so that the snapshot has every turn that these rows show as committed.
        own = await self._store.turns(call.tenant, info.session.id, before=before, limit=limit)
        snapshot = await self._snapshot(call.tenant, info.session.id)
        past = await self._past(call.tenant, snapshot, before, limit - len(own))
        rows = (*own, *past)
        seen = frozenset(each.id for each in seen_by_model(snapshot))
        await call.say(
            shown.History(
                session_id=info.session.id,
                pages=tuple(_page(snapshot, row, seen) for row in rows),
                # A full page may be the last one; then the next is empty and has no `before`.
                before=rows[-1].turn_id if len(rows) == limit else None,
                annotations=_annotations(snapshot),
            ),
        )

    async def _past(
        self, tenant: Tenant, snapshot: Snapshot, before: TurnId | None, limit: int
    ) -> list[TurnRow]:
        """The turns that a fork has from before it was forked, the newest first."""
        if not snapshot.lineage or limit <= 0:
            return []
        marks = snapshot.marks[: snapshot.lineage[-1].upto_version]
        # If `before` is a turn of the fork itself, all of these come before it.
        upto = next((n for n, each in enumerate(marks) if each.turn_id == before), len(marks))
        wanted = reversed(marks[max(0, upto - limit) : upto])
        rows = [await self._store.turn(tenant, each.turn_id) for each in wanted]
        return [row for row in rows if row is not None]

    @Route(
        "GET /api/sessions/{name}/blobs/{digest}",
        "read",
        "readBlob",
        AnswerDescription("The bytes.", bytes, media_type="application/octet-stream"),
    )
    async def blob(self, call: HttpCall) -> None:
        """The bytes of a picture or a file that an item of a session names by its digest."""
        digest = call.names[1]
        session_id = (await named_session(self._store, call)).session.id
        data = await self._store.blob(call.tenant, session_id, digest)
        if data is None:
            raise SessionMissing("blob", digest[:100])
        headers = {"content-disposition": "attachment"}
        await call.exchange.answer(
            200, data, headers=headers, media_type="application/octet-stream"
        )

    @Route(
        "GET /api/sessions/{name}/lineage",
        "read",
        "readLineage",
        AnswerDescription("Its past, and its forks.", shown.Lineage),
    )
    async def lineage(self, call: HttpCall) -> None:
        """The sessions that a session was forked from, and its forks."""
        row = (await named_session(self._store, call)).session
        past = [
            _branch(await self._store.info(call.tenant, each.session_id), each)
            for each in row.lineage
        ]
        ids = await self._store.forks(call.tenant, row.id, limit=limits.page_size_max)
        infos = [await self._store.info(call.tenant, each) for each in ids]
        forks = [
            _branch(each, msgspec.structs.replace(last, session_id=each.session.id))
            for each in infos
            if each is not None and each.session.state == "live"
            for last in each.session.lineage[-1:]
            if last.session_id == row.id  # from this very session, and not from a fork of it
        ]
        await call.say(
            shown.Lineage(
                session_id=row.id,
                version=row.head,
                past=tuple(past),
                forks=tuple(sorted(forks, key=lambda fork: (fork.at, fork.id))),
            ),
        )

    @Route(
        "GET /api/sessions/{name}/chain",
        "read",
        "checkChain",
        AnswerDescription("The problems that were found; none if all is well.", shown.Chain),
    )
    async def chain(self, call: HttpCall) -> None:
        """Check a session's hash chain, and all of its rows in the store, now."""
        row = (await named_session(self._store, call)).session
        index = IndexCheck(self._store)
        found = await check_session(self._store, call.tenant, row.id, index=index)
        problems = [
            shown.Damage(code=each.code, where=each.where, what=each.what) for each in found
        ]
        await call.say(
            shown.Chain(
                session_id=row.id,
                version=row.head,
                link=row.link.hex(),
                problems=tuple(problems),
            ),
        )

    @Route(
        "POST /api/sessions/{name}/annotations",
        "chat",
        "annotateSession",
        AnswerDescription("All annotations of the session.", shown.Annotations),
        body=BodyDescription(shown.Remark, {"flag": {"name": "starred", "value": "yes"}}),
        codes=("item_not_found",),
    )
    async def annotate(self, call: HttpCall) -> None:
        """Annotate an item or a session, beside its history.

        Hide an item from people or from the model, show it again, or flag it.
        """
        remark = read_body(_remarks, call.body)
        session_id = (await named_session(self._store, call)).session.id
        patches = remark.patches()
        if not patches:
            raise bad_request("missing_required_parameter", "nothing is said: show it, or flag it")
        if remark.item is None and remark.about_visibility:
            raise bad_request("missing_required_parameter", "name the item", param="item")
        item = _item(await self._snapshot(call.tenant, session_id), remark.item)
        await self._sessions.operations.annotate(
            call.tenant, session_id, [(item, each) for each in patches]
        )
        await call.say(_annotations(await self._snapshot(call.tenant, session_id)))

    async def _snapshot(self, tenant: Tenant, session_id: SessionId) -> Snapshot:
        snapshot = await self._sessions.snapshot(tenant, session_id)
        if snapshot is None:
            raise SessionMissing("session", session_id)
        return snapshot


# ── from rows to answers ─────────────────────────────────────────────────────────────────────


def _page(snapshot: Snapshot, row: TurnRow, seen: frozenset[ItemId]) -> shown.HistoryTurn:
    kept = row.state == "committed"
    items: Sequence[StoredItem] = snapshot.items[row.start : row.end] if kept else ()
    readable = frozenset(found for each in items if (found := item_id(each)) is not None)
    return shown.HistoryTurn(
        turn=turn_shown(row),
        retry_of=row.retry_of,
        replayable=row.replayable,
        start=row.start,
        items=items_shown(items),
        unseen=shown.ids_among(items, readable - seen),
        hidden=shown.ids_among(items, snapshot.notes.hidden_from_people),
    )


def _annotations(snapshot: Snapshot) -> shown.Annotations:
    summary = summary_seen(snapshot)
    return shown.Annotations(
        version=snapshot.version,
        summary=shown.SummaryShown(id=summary.id, text=summary.text, covers_to=summary.covers_to)
        if summary
        else None,
        waiting=tuple(
            each.id
            for each in snapshot.waiting
            if each.waits_for == "client" or each in snapshot.asked
        ),
        flags=tuple(
            shown.Flag(item=item, name=name, value=value)
            for item, name, value in sorted(snapshot.notes.flags, key=str)
        ),
        state=dict(snapshot.state),
    )


def _branch(info: SessionInfo | None, segment: Segment) -> shown.RelatedSession:
    """A related session; of a deleted one only the id and the version of the fork are shown."""
    at = segment.upto_version
    if info is None or info.session.state == "deleted":
        return shown.RelatedSession(id=segment.session_id, title="", keys=(), at=at, version=None)
    row = info.session
    return shown.RelatedSession(
        id=row.id, title=row.title or row.opening, keys=info.keys, at=at, version=row.head
    )


def _item(snapshot: Snapshot, name: str | None) -> ItemId | None:
    """The item that a remark is about. Raises SessionMissing if the session has no such item."""
    found = next((each for each in map(item_id, snapshot.items) if each == name), None)
    if found is None and name is not None:
        raise SessionMissing("item", name)
    return found


def _before(call: HttpCall) -> TurnId | None:
    name = call.query.get("before")
    try:
        return None if name is None else TurnId(name)
    except InvalidId as error:
        raise bad_request("invalid_value", str(error), param="before") from error
