"""Converts the conversations of another program's file, one by one, into exports that every import accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from holdfast.core.codec import Value
from holdfast.ids import LOCAL
from holdfast.peers import docker_agent, goose, openai_agents, openclaw
from holdfast.peers.foreign_conversation import ForeignConversation
from holdfast.peers.rebuilt_session import rebuild
from holdfast.store.transfer import export_lines

Read: TypeAlias = Callable[[Path], Iterator[ForeignConversation]]

READERS: Mapping[str, Read] = {
    docker_agent.PEER: docker_agent.read,
    goose.PEER: goose.read,
    openai_agents.PEER: openai_agents.read,
    openclaw.PEER: openclaw.read,
}
"""The name of a program, as `--from` takes it → the reader of its files."""


class Converted(Value):
    """A conversation of the file."""

    name: str
    """Its name in the other program."""
    exported: bytes = b""
    """The lines of its export; empty if the conversation is empty."""
    turns: int = 0
    repairs: tuple[str, ...] = ()
    """What was not well formed, and was closed or left out."""


def convert(peer: str, path: Path) -> Iterator[Converted]:
    """The conversations of a file, as they are read. Raises NotTheirs if it is not a file of this program."""
    for foreign in READERS[peer](path):
        rebuilt = rebuild(foreign, peer=peer, tenant=LOCAL)
        if rebuilt is None:
            yield Converted(name=foreign.id, repairs=foreign.left_out)
            continue
        last = export_lines.to_line(export_lines.FileEnd(sessions=1))
        yield Converted(
            name=foreign.id,
            exported=b"".join((export_lines.HEADER, *export_lines.block_of(rebuilt.dump), last)),
            turns=len(rebuilt.dump.turns),
            repairs=rebuilt.repairs,
        )
