"""`/api/turns/{id}/trace` and `/prompt`: where the time and the tokens of a turn went, and what its model was told.

Nothing is stored for this: a trace is made of the journal, or, once that is gone, of the turn's items (`wire/api/traces`).
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import Snapshot, seen_by_agent, seen_in_branch
from holdfast.core.items import Item
from holdfast.core.turns.events import Began, TurnRequest
from holdfast.core.turns.journal import Record, decode_records
from holdfast.errors import AgentUnavailable
from holdfast.ids import TurnId
from holdfast.loop.context import instructions_for
from holdfast.server.agents.directory import Directory
from holdfast.server.api.objects import turn_shown
from holdfast.server.api.session_lookup import find_turn
from holdfast.server.http.parameters import Parameter
from holdfast.server.http.routing import AnswerDescription, HttpCall, Route
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.store.rows import TurnRow
from holdfast.store.store import Store
from holdfast.wire.api.objects import items_shown
from holdfast.wire.api.traces import (
    StepPrompt,
    TracedTurn,
    TraceSpan,
    TurnTrace,
    traced_items,
    traced_records,
)
from holdfast.wire.problems import Refused, bad_request

NEXT_STEP = TraceSpan(
    kind="step",
    name="",
    agent="",
    path=(),
    began_at=0.0,
    first_at=None,
    ended_at=None,
    outcome="running",
)
"""The step of an open turn that no journal names yet."""


class TracesApi:
    """The endpoints. One instance serves every request."""

    def __init__(self, sessions: Sessions, directory: Directory, *, currency: str = "") -> None:
        self._store = sessions.store
        self._directory = directory
        self._currency = currency

    @Route(
        "GET /api/turns/{id}/trace",
        "read",
        "traceTurn",
        AnswerDescription("Its steps and calls, in order of begin.", TurnTrace),
    )
    async def trace(self, call: HttpCall) -> None:
        """What took how long in a turn, and what it cost.

        `timed_by` says how exact it is: a plain turn's journal is gone with its commit, and times are then those at
        which its items began. The tokens of its steps are known if there was one alone.
        """
        row = await find_turn(self._store, call)
        await call.say(await trace_of(self._store, row, currency=self._currency))

    @Route(
        "GET /api/turns/{id}/prompt",
        "admin",
        "readPrompt",
        AnswerDescription("Instructions and items.", StepPrompt),
        parameters=(
            Parameter("step", "Which step; the first one by default.", Annotated[int, Meta(ge=1)]),
        ),
    )
    async def prompt(self, call: HttpCall) -> None:
        """What the model was told in a step of a turn.

        It is rebuilt: the items are those of the history, the instructions those of the agent as it is served now.
        Tools that the model was offered, and what hooks have added, are not part of it.
        """
        row = await find_turn(self._store, call)
        records = await _records(self._store, row)
        traced = await _traced(self._store, row, records)
        text = call.query.get("step", "1")
        step = _step(traced, text, is_open=row.state in ("open", "queued"))
        past = await self._store.snapshot(row.tenant, row.session_id, version=row.base_head)
        snapshot = past or Snapshot(session_id=row.session_id)
        request = _request(records, row)
        name = step.agent or request.agent or row.agent
        now = await self._store.snapshot(row.tenant, row.session_id) or snapshot
        instructions, history_items_max, changed = self._agent(row, now, request, step, name)
        before: list[Item] = (
            [] if step.path else list(seen_by_agent(snapshot, items_max=history_items_max))
        )
        items = traced.items[: traced.before[step.step - 1]] if step.step else traced.items
        seen = seen_in_branch(items, step.path, after=() if step.path else before)
        shown = items_shown(seen)
        await call.say(
            StepPrompt(
                turn_id=row.turn_id,
                step=int(text),
                agent=name,
                instructions=instructions,
                agent_changed=changed,
                items=shown,
            )
        )

    def _agent(
        self, row: TurnRow, snapshot: Snapshot, request: TurnRequest, step: TraceSpan, name: str
    ) -> tuple[str | None, int | None, bool]:
        """The instructions of a step's agent, how many items it sees, and whether it has changed since."""
        # A session knows its agents from its first commit on; before that, the request named one.
        model = "" if snapshot.agent else name
        ask = Ask(tenant=row.tenant, name=row.session_id, agent=model)
        try:
            chosen = self._directory.choose(ask, snapshot)
        except (AgentUnavailable, Refused):
            return None, None, True
        agent = self._directory.resident(
            chosen.source_key, name or chosen.agent, source_name=chosen.source_name
        )
        if agent is None:
            return None, None, True
        told = instructions_for(
            agent, step.path, request, tenant=row.tenant, session_id=row.session_id
        )
        changed = bool(row.source_digest) and row.source_digest != chosen.source_digest
        return told, agent.history_items_max, changed


async def trace_of(store: Store, row: TurnRow, *, currency: str = "") -> TurnTrace:
    """The trace of a turn, by its journal if that is kept, else by its items."""
    records = await _records(store, row)
    traced = await _traced(store, row, records)
    return TurnTrace(
        turn=turn_shown(row),
        timed_by="journal" if records else "ids",
        currency=currency,
        spans=traced.spans,
    )


async def _traced(store: Store, row: TurnRow, records: tuple[Record, ...]) -> TracedTurn:
    if records:
        return traced_records(records, turn_shown(row))
    snapshot = await store.snapshot(row.tenant, row.session_id) if row.seq is not None else None
    if snapshot is None:
        return TracedTurn()
    return traced_items(snapshot.items[row.start : row.end], turn_shown(row))


async def _records(store: Store, row: TurnRow) -> tuple[Record, ...]:
    rows = await store.journal(row.tenant, row.turn_id)
    found = (record for each in rows for record in decode_records(each.records))
    return tuple(each for each in found if not isinstance(each, Unreadable))


def _request(records: tuple[Record, ...], row: TurnRow) -> TurnRequest:
    """The request that began a turn; of a turn without a journal, what its row says of it."""
    for record in records:
        if isinstance(record.event, Began):
            return record.event.request
    return TurnRequest(turn_id=TurnId(row.turn_id), agent=row.agent)


def _step(traced: TracedTurn, text: str, *, is_open: bool) -> TraceSpan:
    """The step that a query names; of an open turn also the next one. Raises Refused (400)."""
    number = int(text) if re.fullmatch("[1-9][0-9]{0,8}", text, re.ASCII) else 0
    if is_open and number == len(traced.before) + 1:
        return NEXT_STEP
    found = traced.step(number)
    if found is None:
        known = len(traced.before) + is_open
        raise bad_request("invalid_value", f"step is a number from 1 to {known}", param="step")
    return found
