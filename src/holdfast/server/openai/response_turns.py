"""Turns as Responses: found by id, with what their requests asked for and how they ended.

What a Response repeats of its request is stored with the turn: on its items once it is committed, else in record 0 of
its journal, which exists while the turn is open and as long as a discarded turn is kept. A turn that a chat request
began is a Response as well, with the API's defaults.
"""

from __future__ import annotations

import msgspec

from holdfast.core.codec import Value
from holdfast.core.history.conversation import Flagged, Notes
from holdfast.core.items import Item, Items
from holdfast.core.turns import events as ev
from holdfast.errors import InvalidId
from holdfast.ids import ResponseId, Tenant
from holdfast.server.turns.answers import content_of, ending_of_watched, is_answered, problem_for
from holdfast.server.turns.stored_turns import LoadedTurn, stored_turn
from holdfast.sessions.session_requests import Ending
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.turns.store_retries import persistently
from holdfast.sessions.turns.watch import Watch
from holdfast.store.store import Store
from holdfast.wire.openai.responses.answer import (
    Echo,
    ResponseEnd,
    ResponseHead,
    Status,
    echo_of,
    ended_response,
)
from holdfast.wire.openai.responses.items import is_output
from holdfast.wire.problems import Problem, Refused, not_found


class StoredResponse(LoadedTurn, kw_only=True):
    """A stored Response: running, completed or failed."""

    head: ResponseHead

    @property
    def status(self) -> Status:
        """The status of a Response that has not ended."""
        return "queued" if self.head.echo.background and not self.begun else "in_progress"

    @property
    def input(self) -> Items:
        """The items of its request."""
        return tuple(each for each in (*self.before, *self.items) if not is_output(each))


class ResponseTurns:
    """Finds and deletes the Responses of all tenants."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._store: Store = sessions.store

    async def find(self, tenant: Tenant, name: str) -> StoredResponse:
        """A Response by its id. Raises Refused (404) if there is none, or it was deleted."""
        kept = await self.look(tenant, name)
        if kept is None:
            raise unknown_response(name)
        return kept

    async def look(self, tenant: Tenant, name: str) -> StoredResponse | None:
        try:
            response_id = ResponseId(name)
        except InvalidId:
            return None
        found = await stored_turn(self._sessions, tenant, response_id.turn_id)
        if found is None or is_deleted(found.snapshot.notes, response_id):
            return None
        head = ResponseHead(
            response_id=response_id,
            session_id=found.row.session_id,
            created_s=response_id.minted_at_ms // 1000,
            echo=echo_of((*found.chain, *found.items)) or Echo(model=found.row.agent, named=True),
        )
        return StoredResponse(**msgspec.structs.asdict(found), head=head)

    async def watch(self, tenant: Tenant, kept: StoredResponse) -> Watch:
        return await self._sessions.watch(tenant, kept.row.turn_id)

    async def delete(self, tenant: Tenant, kept: StoredResponse) -> None:
        """Hide a Response from later requests. Its items stay in the history."""
        patch = Flagged(name=_deleted(kept.head.response_id), value="true")
        await self._sessions.operations.annotate(tenant, kept.row.session_id, [(None, patch)])


class ResponseOutcome(Value):
    """How a turn ended: as a Response, and as the problem to answer with if it failed."""

    ending: Ending
    response: ResponseEnd
    problem: Problem


async def response_end(
    store: Store,
    tenant: Tenant,
    watch: Watch,
    *,
    stored: bool,
    now_s: int,
    before: Items = (),
    known_again: bool = False,
) -> ResponseOutcome:
    """Wait for a turn's end. `now_s` is taken for the time of the end if the store has none; `before` has the items of
    the turns that it continues, `known_again` says whether a retry of its request would be recognised."""
    ending = await ending_of_watched(watch, stored=stored)
    problem = await problem_for(
        store,
        tenant,
        watch,
        ending,
        stored=stored and not is_answered(ending),
        known_again=known_again,
    )
    # The turn has ended: its client is better served by waiting for the store, too, than by an error.
    row = await persistently(lambda: store.turn(tenant, ending.turn_id)) if stored else None
    items: tuple[Item, ...] = ()
    usage, filtered = ev.Usage(), False
    if ending.kept:
        content = await content_of(store, tenant, watch, ending)
        items = (*before, *content.items)
        usage, filtered = content.usage, content.filtered
    response = ended_response(
        ending.by,
        kept=ending.kept,
        items=items,
        usage=usage,
        completed_s=row.ended_ms // 1000 if row else now_s,
        version=ending.version if stored else None,
        problem=problem,
        filtered=filtered,
    )
    return ResponseOutcome(ending=ending, response=response, problem=problem)


def is_deleted(notes: Notes, response_id: ResponseId) -> bool:
    return (None, _deleted(response_id), "true") in notes.flags


def _deleted(response_id: ResponseId) -> str:
    return f"deleted.{response_id}"


def unknown_response(name: str) -> Refused:
    return not_found("response_not_found", f"Response with id '{name[:100]}' not found.")
