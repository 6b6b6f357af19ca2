"""What the model sees: the session's past, the turn so far, instructions, and the bytes of what they show.

A sub-agent sees its task and its own work, nothing else.
"""

from __future__ import annotations

import msgspec

from holdfast.agents.base import Agent
from holdfast.core.conversation import Snapshot, further, seen_in_turn
from holdfast.core.events import ToolDefinition
from holdfast.core.items import Path, Summary
from holdfast.core.ports import OpenTurn
from holdfast.core.turn import Turn
from holdfast.errors import TurnFailed
from holdfast.loop.histories import Histories, Past, Piece, piece_of
from holdfast.loop.parameters import parameters_for
from holdfast.models.base import Dialect, Prompt


async def prompt_for(
    agent: Agent,
    path: Path,
    turn: OpenTurn,
    histories: Histories,
    *,
    tools: tuple[ToolDefinition, ...] = (),
) -> Prompt:
    """What this agent's model is asked next, in this branch of the turn.

    Raises TurnFailed if a blob that it would have to see is not in the store.
    """
    now = turn.turn
    pieces = _pieces(path, now, turn.snapshot, histories, agent.model.dialect)
    said = (agent.instruction,) if path else (agent.instruction, *now.request.instructions)
    return Prompt(
        system="\n\n".join(text for text in said if text),
        messages=await _with_blobs(pieces, turn, agent.model.dialect),
        tools=tools,
        parameters=parameters_for(agent.parameters, now, path),
        call_key=_step_name(now, path),
    )


def _pieces(
    path: Path, turn: Turn, snapshot: Snapshot, histories: Histories, dialect: Dialect
) -> tuple[Piece, ...]:
    if path:
        past = Past(pieces=(), open_step=())
    else:
        past = histories.past(_summed_up(snapshot, turn), dialect)
    here = dialect.encode(seen_in_turn(turn, path, after=past.open_step))
    return (*past.pieces, piece_of(here, dialect)) if here else past.pieces


def _summed_up(snapshot: Snapshot, turn: Turn) -> Snapshot:
    """The session as it stood, seen with a summary that this turn has made of it."""
    made = [each for each in turn.items if isinstance(each, Summary) and not each.path]
    if not made:
        return snapshot
    return msgspec.structs.replace(snapshot, turn_summary=further(snapshot.turn_summary, *made))


async def _with_blobs(
    pieces: tuple[Piece, ...], turn: OpenTurn, dialect: Dialect
) -> tuple[bytes, ...]:
    """The pieces with the bytes of their blobs in place: read when they are needed, kept by nobody."""
    named = frozenset[str]().union(*(each.blobs for each in pieces))
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
    """Names one step of one turn: no other step, branch or attempt has the same."""
    branch = turn.branch(path)
    assert branch is not None, "who is asked has a branch"
    where = f"/{path[-1]}" if path else ""
    return f"{turn.request.turn_id}{where}/{branch.steps}"
