"""What a model sees in a step: instructions, the session's past, the turn so far, and the bytes of their blobs.

A sub-agent sees its task and its own work, nothing else.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from holdfast.agents.agent import Agent
from holdfast.core.codec import Value
from holdfast.core.exchanges import WHOLE
from holdfast.core.history.conversation import Snapshot, further, seen_in_turn
from holdfast.core.items import Path, Summary
from holdfast.core.ports import OpenTurn
from holdfast.core.turns.events import ToolDefinition, TurnRequest
from holdfast.core.turns.turn import Turn
from holdfast.errors import InvalidValue, TurnFailed
from holdfast.ids import SessionId, Tenant
from holdfast.loop.encoded_histories import (
    EncodedHistories,
    EncodedPast,
    EncodedPiece,
    fitted_piece,
    piece_of,
)
from holdfast.loop.parameters import parameters_for
from holdfast.loop.shortened_results import shortened
from holdfast.models.model import Dialect, ModelFailed, Prompt, openings_of
from holdfast.tools.redaction import redacted, redacted_json
from holdfast.tools.tool import for_tenant, instruction_of, news_of
from holdfast.wire.prefix_digest import Prefixes, texts_of

BLOB_BYTES = 6_000
"""The size that a picture or file counts as: no provider counts its bytes."""


class View(Value):
    """What a branch's agent sees of the past and of the turn so far. Blobs are only named, not loaded."""

    system: str
    pieces: tuple[EncodedPiece, ...]
    tools: tuple[ToolDefinition, ...] = ()
    here_bytes: int = 0
    """The size of the messages of this turn."""
    prefixes: tuple[tuple[str, str], ...] = ()
    """The digests of the whole prompt; see `Prompt.prefixes`."""

    @property
    def size_bytes(self) -> int:
        """Its size in a prompt."""
        size = len(self.system)
        for piece in self.pieces:
            size += len(piece.data) + BLOB_BYTES * len(piece.blobs)
        for tool in self.tools:
            size += len(tool.description) + len(tool.parameters)
        return size


def view_for(
    agent: Agent,
    path: Path,
    turn: OpenTurn,
    histories: EncodedHistories,
    *,
    tools: tuple[ToolDefinition, ...] = (),
    here_bytes_max: int | None = None,
) -> View:
    """What this agent sees now, in this branch of the turn.

    If the messages of the turn are larger than `here_bytes_max`, old results are shortened.
    """
    now, dialect = turn.turn, agent.model.dialect
    system = instructions_for(
        agent, path, now.request, tenant=turn.tenant, session_id=turn.snapshot.session_id
    )
    before = _openings(agent, path, now, system, tools) if dialect.binds else {}
    if path:
        past = EncodedPast()
    else:
        past = histories.past(
            summed_up(turn.snapshot, now),
            dialect,
            items_max=agent.history_items_max,
            shown=now.request.followed.shown if now.request.followed else WHOLE,
            before=before,
        )
    seen = seen_in_turn(now, path, after=past.open_step)
    here = dialect.encode(seen)
    if here_bytes_max is not None and len(here) > here_bytes_max:
        here = dialect.encode(shortened(seen, bytes_max=here_bytes_max))
    piece = piece_of(here, dialect)
    if before:
        piece = fitted_piece(piece, dialect, before)
    return View(
        system=system,
        pieces=(*past.pieces, piece) if piece.data else past.pieces,
        tools=tools,
        here_bytes=len(piece.data),
        prefixes=texts_of(before),
    )


def instructions_for(
    agent: Agent, path: Path, request: TurnRequest, *, tenant: Tenant, session_id: SessionId
) -> str:
    """What an agent's model is told before all messages: by its agent, its toolsets and the request."""
    toolsets = [for_tenant(each, str(tenant)) for each in agent.toolsets]
    told = (agent.instruction, *map(instruction_of, toolsets), *_date(agent, request))
    said = told if path else (*told, *request.instructions)
    news = (news_of(each, tenant=str(tenant), session_id=str(session_id)) for each in toolsets)
    return "\n\n".join(text for text in (*said, *news) if text)


def _openings(
    agent: Agent, path: Path, turn: Turn, system: str, tools: tuple[ToolDefinition, ...]
) -> Prefixes:
    """The digests of what the agent's model is told before the messages, where thoughts are bound to that."""
    parameters = parameters_for(agent.parameters, turn, path)
    try:
        return openings_of(
            agent.model, Prompt(system=system, messages=(), tools=tools, parameters=parameters)
        )
    except InvalidValue as error:
        raise ModelFailed(str(error), reason="invalid_request_error") from error


async def prompt_for(agent: Agent, path: Path, turn: OpenTurn, view: View) -> Prompt:
    """The prompt for this agent's model in the step that has just begun.

    Raises TurnFailed if a blob of the prompt is not in the store.
    """
    messages = await _with_blobs(view.pieces, turn, agent.model.dialect)
    return Prompt(
        system=redacted(view.system) if agent.redacts else view.system,
        messages=tuple(map(redacted_json, messages)) if agent.redacts else messages,
        tools=view.tools,
        prefixes=view.prefixes,
        parameters=parameters_for(agent.parameters, turn.turn, path),
        text_bytes=view.size_bytes,
        call_key=_step_name(turn.turn, path),
    )


def _date(agent: Agent, request: TurnRequest) -> tuple[str, ...]:
    """The day on which the turn began, if the agent wants the date: the same in every step, and after a crash."""
    if not agent.add_date:
        return ()
    began = datetime.fromtimestamp(request.turn_id.minted_at_ms / 1000, UTC)
    return (f"Today's date: {began:%Y-%m-%d} (UTC)",)


def summed_up(snapshot: Snapshot, turn: Turn) -> Snapshot:
    """The session as the turn began, with the summary that this turn has made of it, if any; in a continuation, without
    the interrupted text before it."""
    if turn.request.continues is not None:
        snapshot = snapshot.continued()
    made = [each for each in turn.items if isinstance(each, Summary) and not each.path]
    if not made:
        return snapshot
    return msgspec.structs.replace(snapshot, turn_summary=further(snapshot.turn_summary, *made))


async def _with_blobs(
    pieces: tuple[EncodedPiece, ...], turn: OpenTurn, dialect: Dialect
) -> tuple[bytes, ...]:
    """The pieces with the bytes of their blobs in place. The bytes are read now, and not cached."""
    named = frozenset[str]().union(*[each.blobs for each in pieces])
    if not named:  # nearly always
        return tuple([each.data for each in pieces])
    blobs = {digest: await _blob(digest, turn) for digest in sorted(named)}
    return tuple(
        dialect.with_blobs(each.data, blobs) if each.blobs else each.data for each in pieces
    )


async def _blob(digest: str, turn: OpenTurn) -> bytes:
    data = await turn.blob(digest)
    if data is None:
        raise TurnFailed(
            "model_error",
            f"the model cannot be shown {digest}: it is not in the store any more; "
            "hide the item that names it from the model, and go on",
            reason="blob_missing",
        )
    return data


def _step_name(turn: Turn, path: Path) -> str:
    """A unique name for one step of one turn, over all branches and attempts."""
    branch = turn.branch(path)
    assert branch is not None, "a model is asked in a branch"
    where = f"/{path[-1]}" if path else ""
    return f"{turn.request.turn_id}{where}/{branch.steps}"
