"""`POST /api/sessions/{name}/compact`: sum up a session's past now, outside of any turn.

Turns sum up by themselves when they need the room. This is for a client that wants it earlier: before a long job, or
because a conversation has become expensive. The summary continues the previous one; if a turn or another request has
stored a new one meanwhile, nothing is stored and the caller gets `summary_moved`.
"""

from __future__ import annotations

from holdfast.core.history.conversation import Snapshot
from holdfast.core.turns.events import TurnRequest
from holdfast.core.turns.unfinished_turns import may_pass
from holdfast.errors import TurnFailed
from holdfast.ids import Tenant, TurnId
from holdfast.loop.compaction import coverable, summarize
from holdfast.loop.single_answers import SingleAnswer
from holdfast.models.model import ModelFailed
from holdfast.server.agents.directory import Directory
from holdfast.server.problems import CAUSES, REFUSED_BY_UPSTREAM
from holdfast.server.turns.turn_failures import code_of
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.store.outcomes import SummaryMoved
from holdfast.wire.api.objects import SessionSummary, UsageObject
from holdfast.wire.problems import Problem, Refused, bad_request, permanent

PORTION_BYTES = 128 * 1024
"""How much the model sums up at once: about 30,000 tokens, which fit into any window that is worth a summary."""


class CompactionApi:
    """The endpoint. One instance serves every request."""

    def __init__(self, sessions: Sessions, directory: Directory) -> None:
        self._sessions = sessions
        self._directory = directory

    async def compact(self, tenant: Tenant, snapshot: Snapshot) -> SessionSummary:
        """Sum up everything that is not summed up yet. Raises Refused and AgentUnavailable."""
        covers_to = coverable(snapshot, keep_bytes=0)
        if covers_to is None:
            raise bad_request("nothing_to_compact", "everything here is summed up already")
        made = await self.write(Ask(tenant=tenant, name=snapshot.session_id), snapshot, covers_to)
        outcome = await self._sessions.operations.compact(
            tenant,
            snapshot.session_id,
            made.text,
            covers_to=covers_to,
            summary_rev=snapshot.notes.summary_rev,
        )
        if isinstance(outcome, SummaryMoved):
            raise Refused(_MOVED)
        return SessionSummary(
            summary=made.text,
            covers_to=covers_to,
            items=len(snapshot.items),
            usage=UsageObject.of(made.usage),
        )

    async def write(self, ask: Ask, snapshot: Snapshot, covers_to: int) -> SingleAnswer:
        """A summary up to a position, by the agent that would answer this request. Nothing is stored.

        Raises Refused and AgentUnavailable.
        """
        choice = self._directory.choose(ask, snapshot)
        mint = self._sessions.mint
        request = TurnRequest(
            turn_id=mint(TurnId),
            source_key=choice.source_key,
            source_digest=choice.source_digest,
            agent=choice.agent,
        )
        try:
            with self._directory.team_for(request) as team:
                return await summarize(
                    team.agents[choice.agent or team.entry],
                    snapshot,
                    covers_to,
                    portion_bytes=PORTION_BYTES,
                    mint=mint,
                    key=f"{request.turn_id}/summary",
                )
        except ModelFailed as failure:
            raise Refused(_not_written(failure, code_of(failure))) from failure
        except TurnFailed as failure:
            raise Refused(_not_written(failure, failure.reason)) from failure


_MOVED = permanent(
    409,
    "summary_moved",
    "another request has summed up the session meanwhile; look at it, and try again if need be",
    kind="conflict_error",
)


def _not_written(failure: TurnFailed, code: str) -> Problem:
    cause = CAUSES.get(code, REFUSED_BY_UPSTREAM)
    return Problem(
        status=cause.status,
        code=code,
        message=f"no summary could be written: {failure}. Nothing was changed.",
        kind=cause.kind,
        should_retry=may_pass("model_error", code),
    )
