"""The conversations of another program's file, taken into a store one by one, each whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from holdfast.core.codec import Value
from holdfast.ids import SessionId, Tenant
from holdfast.peers import docker_agent, goose, openai_agents
from holdfast.peers.foreign import Foreign
from holdfast.peers.rebuilding import rebuild
from holdfast.store.audit import audit
from holdfast.store.base import Restored, Store

Read: TypeAlias = Callable[[Path], Iterator[Foreign]]

READERS: Mapping[str, Read] = {
    docker_agent.PEER: docker_agent.read,
    goose.PEER: goose.read,
    openai_agents.PEER: openai_agents.read,
}
"""Whose files can be read, by the name that people say."""


class MovedIn(Value):
    """A conversation of the file, and what became of it."""

    name: str
    """What it was called there."""
    how: Literal["fresh", "same", "skipped", "empty"]
    """`same`: it is here already. `skipped`: `why` says what is in the way. `empty`: nothing was said in it."""
    session_id: SessionId | None = None
    turns: int = 0
    why: str = ""
    repairs: tuple[str, ...] = ()
    """What was not well formed, and was closed or left out."""


async def move_in(store: Store, tenant: Tenant, peer: str, path: Path) -> AsyncIterator[MovedIn]:
    """Take in the conversations of a file. Raises NotTheirs if it is none of this program's."""
    conversations = READERS[peer](path)
    while (foreign := await asyncio.to_thread(next, conversations, None)) is not None:
        yield await _take_in(store, tenant, peer, foreign)


async def _take_in(store: Store, tenant: Tenant, peer: str, foreign: Foreign) -> MovedIn:
    rebuilt = await asyncio.to_thread(rebuild, foreign, peer=peer, tenant=tenant)
    if rebuilt is None:
        return MovedIn(name=foreign.id, how="empty", repairs=foreign.left_out)
    dump = rebuilt.dump
    broken = next(audit(dump), None)
    assert broken is None, f"{foreign.id} was rebuilt badly: {broken}"
    outcome = await store.restore(tenant, dump)
    if not isinstance(outcome, Restored):
        return MovedIn(name=foreign.id, how="skipped", why=outcome.why, repairs=rebuilt.repairs)
    return MovedIn(
        name=foreign.id,
        how="fresh" if outcome.fresh else "same",
        session_id=dump.session.id,
        turns=len(dump.turns),
        repairs=rebuilt.repairs,
    )
