"""Tasks, found by id. A task is a turn, and the turns in which a person decides about the calls that it left waiting.

Everything is read from the store, so any replica answers for any task. A turn that began in another API is a task as
well; lists show only the tasks that clients of this protocol have begun.
"""

from __future__ import annotations

from holdfast.core.codec import Value
from holdfast.core.items import AssistantMessage, Items, Reasoning, ToolCall, UserMessage
from holdfast.errors import InvalidId
from holdfast.ids import SessionId, Tenant, TurnId
from holdfast.server.turns.answers import content_of, ending_of_watched, is_answered, problem_for
from holdfast.server.turns.stored_turns import LoadedTurn, stored_turn
from holdfast.sessions.session_requests import ending_of
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.turns.store_retries import persistently
from holdfast.sessions.turns.watch import Watch
from holdfast.wire.a2a.messages import Blobs, SentMessage, blobs_of, history_of, sent_in
from holdfast.wire.a2a.objects import TERMINAL, TaskState
from holdfast.wire.a2a.tasks import TaskEnd, TaskHead, ended_task, waiting_text
from holdfast.wire.problems import Problem, Refused, not_found

REPLACED = (
    "another message came before a person had decided, and the calls that waited were refused"
)


class FoundTask(Value):
    """A task as the store has it."""

    head: TaskHead
    end: TaskEnd | None
    """None while its turn is queued or played."""
    turns: tuple[LoadedTurn, ...]
    """The task's own turn, then the turns that brought decisions about its calls."""
    blobs: Blobs
    sent: SentMessage | None
    """The message that began it; None if it came in another way."""

    @property
    def last(self) -> LoadedTurn:
        """The turn that it stands at."""
        return self.turns[-1]

    @property
    def state(self) -> TaskState:
        if self.end is not None:
            return self.end.state
        queued = self.last.row.state == "queued" or not self.last.begun
        return "TASK_STATE_SUBMITTED" if queued else "TASK_STATE_WORKING"

    @property
    def at_ms(self) -> int:
        """When it came into its state."""
        return self.end.at_ms if self.end else self.head.created_ms

    @property
    def before(self) -> Items:
        """The items of its earlier turns, and of the turns that it continues."""
        earlier = tuple(item for each in self.turns[:-1] for item in (*each.before, *each.items))
        return (*earlier, *self.last.before)

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL


class TaskTurns:
    """Finds the tasks of all tenants."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._store = sessions.store

    async def find(self, tenant: Tenant, name: str) -> FoundTask:
        """A task by its id. Raises Refused (404)."""
        try:
            turn_id = TurnId(name)
        except InvalidId:
            raise unknown_task(name) from None
        found = await self.look(tenant, turn_id)
        if found is None:
            raise unknown_task(name)
        return found

    async def look(self, tenant: Tenant, turn_id: TurnId) -> FoundTask | None:
        first = await stored_turn(self._sessions, tenant, turn_id)
        if first is None:
            return None
        context_id = await self._context(tenant, first.row.session_id)
        turns, replaced = await self._decided(tenant, first)
        items = tuple(item for each in turns for item in (*each.before, *each.items))
        blobs = await self.blobs(tenant, first.row.session_id, items)
        head = TaskHead(
            task_id=str(turn_id),
            context_id=context_id,
            created_ms=turn_id.minted_at_ms,
            history=history_of(
                first.items, task_id=str(turn_id), context_id=context_id, blobs=blobs
            ),
        )
        found = FoundTask(head=head, end=None, turns=turns, blobs=blobs, sent=sent_in(first.items))
        end = await self._end(tenant, found, replaced=replaced)
        return FoundTask(head=head, end=end, turns=turns, blobs=blobs, sent=found.sent)

    async def blobs(self, tenant: Tenant, session_id: SessionId, items: Items) -> Blobs:
        """The bytes of the blobs that these items name."""
        return {
            digest: await self._store.blob(tenant, session_id, digest) or b""
            for digest in sorted(blobs_of(items))
        }

    async def _context(self, tenant: Tenant, session_id: SessionId) -> str:
        """The name of a session as a client may send it: its key, or its id if it has none."""
        info = await self._store.info(tenant, session_id)
        return str(info.keys[0]) if info and info.keys else str(session_id)

    async def _decided(
        self, tenant: Tenant, first: LoadedTurn
    ) -> tuple[tuple[LoadedTurn, ...], bool]:
        """A turn, the turns that brought decisions about its calls, and whether a new message came in place of a decision."""
        turns = [first]
        while _waits(turns[-1]):
            turn_id = await self._next(tenant, turns[-1])
            following = await stored_turn(self._sessions, tenant, turn_id) if turn_id else None
            if following is None:
                break
            if _is_message(following.items):
                return tuple(turns), following.row.state == "committed"
            turns.append(following)
        return tuple(turns), False

    async def _next(self, tenant: Tenant, turn: LoadedTurn) -> TurnId | None:
        """The turn after a committed one: that of the next version, or the one that is played now."""
        snapshot, version = turn.snapshot, turn.row.seq
        assert version is not None, "a committed turn has made a version"
        if snapshot.session_id == turn.row.session_id and len(snapshot.marks) > version:
            return snapshot.marks[version].turn_id
        session = await self._store.session(tenant, turn.row.session_id)
        return session.open_turn if session and session.head == version else None

    async def _end(self, tenant: Tenant, found: FoundTask, *, replaced: bool) -> TaskEnd | None:
        row = found.last.row
        ending = ending_of(row)
        if ending is None:
            return None
        if replaced:
            return TaskEnd(
                state="TASK_STATE_CANCELED",
                at_ms=row.ended_ms,
                items=(*found.before, *found.last.items),
                text=REPLACED,
            )
        problem: Problem | None = None
        if not is_answered(ending):
            watch = await self._sessions.watch(tenant, row.turn_id)
            problem = await problem_for(self._store, tenant, watch, ending, stored=True)
        items = (*found.before, *found.last.items) if ending.kept else found.before
        waits = waiting_text(found.last.items, row.turn_id) if ending.kept else ""
        return ended_task(
            ending.by,
            items=items,
            waits=waits,
            at_ms=row.ended_ms,
            version=ending.version,
            problem=problem,
        )

    async def watched_end(
        self, tenant: Tenant, watch: Watch, before: Items
    ) -> tuple[TaskEnd, Blobs]:
        """Wait for the end of a turn that a request has begun, or has found. `before` has the items of the turns that it
        continues."""
        ending = await ending_of_watched(watch, stored=True)
        problem: Problem | None = None
        if not is_answered(ending):
            problem = await problem_for(
                self._store, tenant, watch, ending, stored=True, known_again=True
            )
        items: Items = ()
        if ending.kept:
            items = (await content_of(self._store, tenant, watch, ending)).items
        # The turn has ended: its client is better served by waiting for the store than by an error.
        row = await persistently(lambda: self._store.turn(tenant, ending.turn_id))
        end = ended_task(
            ending.by,
            items=(*before, *items),
            waits=waiting_text(items, ending.turn_id),
            at_ms=row.ended_ms if row else ending.turn_id.minted_at_ms,
            version=ending.version,
            problem=problem,
        )
        return end, await self.blobs(tenant, ending.session_id, end.items)


def _waits(turn: LoadedTurn) -> bool:
    """Whether a turn has left calls to a person."""
    return turn.row.state == "committed" and bool(waiting_text(turn.items, turn.row.turn_id))


def _is_message(items: Items) -> bool:
    """Whether a turn began with a message that decides nothing."""
    for item in items:
        if isinstance(item, AssistantMessage | Reasoning | ToolCall):
            return False
        if isinstance(item, UserMessage) and not item.decisions:
            return True
    return False


def unknown_task(name: str) -> Refused:
    return not_found("task_not_found", f"there is no task {name[:100]!r}")
