"""Records that agents share across conversations, each kept as one memory under a name of its own.

A changed record is a new memory, and the old one is deleted by the same commit. Two conversations that change one
record at the same time leave two memories of it: the later one counts, and the next change deletes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from holdfast import limits
from holdfast.core.codec import Value, encode
from holdfast.core.turns.events import Change, MemoryAdded, MemoryDeleted
from holdfast.tools.built_in_tools import BuiltInTool, Do
from holdfast.tools.tool import ToolRun, ToolSpec


class SharedRecord(Value):
    """What is kept under a name."""

    id: str


R = TypeVar("R", bound=SharedRecord)


class RecordTooLong(Exception):
    """The record is longer than a memory may be; the message is for the model."""


class Records(Generic[R]):
    """The records of one kind, as a call finds them. `changes` are what the call has changed."""

    def __init__(self, kind: type[R], run: ToolRun) -> None:
        self._run = run
        self._memories: dict[str, list[str]] = {}
        self.every: dict[str, R] = {}
        self.changes: list[Change] = []
        for memory, text in run.memories.items():
            record = _decoded(kind, text)
            if record is not None:
                self._memories.setdefault(record.id, []).append(memory)
                self.every[record.id] = record

    def put(self, record: R) -> None:
        """Keep a record, in place of the one with its id. Raises RecordTooLong."""
        text = encode(record).decode()
        if len(text.encode()) > limits.memory_text_bytes_max:
            raise RecordTooLong(
                f"It is too long: {limits.memory_text_bytes_max} bytes are kept at most. Make it shorter."
            )
        self.remove(record.id)
        memory = f"{self._run.call_key}_{len(self.changes)}"
        self.changes.append(MemoryAdded(memory_id=memory, agent=self._run.agent, text=text))
        self._memories[record.id] = [memory]
        self.every[record.id] = record

    def remove(self, name: str) -> None:
        self.every.pop(name, None)
        self.changes += (
            MemoryDeleted(memory_id=each, agent=self._run.agent)
            for each in self._memories.pop(name, ())
        )


def record_tool(
    name: str, description: str, schema: str, do: Do, *, owner: str, read_only: bool
) -> BuiltInTool:
    """A tool that works on the records of `owner`: an agent that no file can have, since its name has a slash."""
    assert "/" in owner
    spec = ToolSpec(
        name=name,
        description=description,
        parameters=schema,
        read_only=read_only,
        idempotent=True,  # memories are named by their call
        memories=True,
        memories_of=owner,
        state=owner,  # one call after the other: each sees what the one before has changed
    )
    return BuiltInTool(spec, do)


def _decoded(kind: type[R], text: str) -> R | None:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return None  # of a version that kept something else here


def as_json(records: Iterable[Mapping[str, object]] | Mapping[str, object]) -> str:
    return msgspec.json.format(msgspec.json.encode(records), indent=1).decode()
