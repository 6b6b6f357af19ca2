"""Lists of tasks: the newest first, page by page.

A list shows the tasks that clients of this protocol have sent to one agent: all of the tenant's to a key with the scope
`read`, to any other key those that it has sent itself. A page looks at a bounded number of turns, so that one tenant's
long past delays no other request; it may be short, and then has a token for the next one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from holdfast import limits
from holdfast.core.codec import Value
from holdfast.errors import InvalidId, SessionGone, SessionMissing
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.server.a2a.task_turns import FoundTask, TaskTurns
from holdfast.server.access.authentication import may
from holdfast.server.api.session_lookup import find_session
from holdfast.server.http.routing import Caller
from holdfast.store.rows import TurnRow
from holdfast.store.store import Store
from holdfast.wire.a2a.objects import ListParams, TaskPage
from holdfast.wire.a2a.requests import check_length
from holdfast.wire.a2a.tasks import task_object
from holdfast.wire.problems import bad_request

ROWS_AT_ONCE = 100
ROWS_MAX = 500
"""How many turns a page looks at, at most."""


class PageToken(Value):
    """Where a page ended."""

    before: TurnId
    seen: int
    """How many tasks there were up to there."""

    @property
    def text(self) -> str:
        return f"{self.before}.{self.seen}"


class TaskLists:
    """Lists the tasks of one agent."""

    def __init__(self, store: Store, turns: TaskTurns) -> None:
        self._store = store
        self._turns = turns

    async def page(self, caller: Caller, agent: str, asked: ListParams) -> TaskPage:
        """Raises Refused (400)."""
        size = limits.task_page_default if asked.page_size is None else asked.page_size
        if not 1 <= size <= limits.page_size_max:
            raise bad_request(
                "invalid_value", f"pageSize is 1 to {limits.page_size_max}", param="pageSize"
            )
        check_length(asked.history_length)
        since_ms = _since(asked.status_timestamp_after)
        token = _token(asked.page_token)
        session_id = await self._session(caller.tenant, asked.context_id)
        if asked.context_id and session_id is None:
            return TaskPage(tasks=(), next_page_token="", page_size=size, total_size=0)
        walk = _Walk(self._store, caller.tenant, session_id, token.before if token else None)
        found: list[FoundTask] = []
        while len(found) <= size and (row := await walk.next()) is not None:
            # Every task has an idempotency key, and so can be replayed: this spares the store most other turns.
            task = await self._turns.look(caller.tenant, row.turn_id) if row.replayable else None
            if (
                task is not None
                and _is_listed(task, caller, agent)
                and asked.status in ("TASK_STATE_UNSPECIFIED", task.state)
                and task.at_ms > since_ms
            ):
                found.append(task)
        shown = found[:size]
        seen = (token.seen if token else 0) + len(shown)
        following: PageToken | None = None
        if len(found) > size:
            following = PageToken(before=shown[-1].turns[0].row.turn_id, seen=seen)
        elif walk.last is not None and not walk.at_end:
            following = PageToken(before=walk.last, seen=seen)
        return TaskPage(
            tasks=tuple(
                task_object(
                    each.head,
                    each.end or each.state,
                    blobs=each.blobs,
                    history_length=asked.history_length,
                    with_artifacts=asked.include_artifacts,
                )
                for each in shown
            ),
            next_page_token=following.text if following else "",
            page_size=size,
            total_size=seen + (len(found) > size),
        )

    async def _session(self, tenant: Tenant, context_id: str) -> SessionId | None:
        if not context_id:
            return None
        try:
            return (await find_session(self._store, tenant, context_id)).session.id
        except (SessionMissing, SessionGone):
            return None


class _Walk:
    """Walks through turns, the newest first, as far as a page may look."""

    def __init__(
        self, store: Store, tenant: Tenant, session_id: SessionId | None, before: TurnId | None
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._session_id = session_id
        self.last = before
        self._rows: list[TurnRow] = []
        self._looked_at = 0
        self.at_end = False

    async def next(self) -> TurnRow | None:
        if not self._rows and not self.at_end and self._looked_at < ROWS_MAX:
            self._rows = list(reversed(await self._read()))
            self._looked_at += len(self._rows)
            self.at_end = len(self._rows) < ROWS_AT_ONCE
        if not self._rows:
            return None
        row = self._rows.pop()
        self.last = row.turn_id
        return row

    async def _read(self) -> tuple[TurnRow, ...]:
        if self._session_id is None:
            return await self._store.recent_turns(
                self._tenant, before=self.last, limit=ROWS_AT_ONCE
            )
        return await self._store.turns(
            self._tenant, self._session_id, before=self.last, limit=ROWS_AT_ONCE
        )


def _is_listed(task: FoundTask, caller: Caller, agent: str) -> bool:
    sent = task.sent
    if sent is None or sent.agent != agent:
        return False
    return may(caller.scopes, "read") or sent.key == (caller.key_id or "")


def _since(text: str) -> int:
    if not text:
        return -1
    try:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise bad_request(
            "invalid_value",
            "statusTimestampAfter is a time such as 2026-01-31T12:00:00Z",
            param="statusTimestampAfter",
        ) from None


def _token(text: str) -> PageToken | None:
    if not text:
        return None
    before, _, seen = text.partition(".")
    try:
        if re.fullmatch("[0-9]{1,9}", seen, re.ASCII):
            return PageToken(before=TurnId(before), seen=int(seen))
    except InvalidId:
        pass
    raise bad_request(
        "invalid_cursor", "this server did not hand that pageToken out", param="pageToken"
    )
