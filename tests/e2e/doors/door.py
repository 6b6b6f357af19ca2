"""The interface of a door: what a client of any protocol can do, in the terms of `tests/e2e/test_doors.py`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Literal, NamedTuple, Protocol, TypeAlias

from tests.e2e.world import World

Behaviour: TypeAlias = Literal[
    "failed_turn",
    "nothing_new",
    "disconnect",
    "kill",
    "two_first_requests",
    "retry",
    "retry_after_acting",
    "cancel",
    "busy",
]
"""What is claimed about every door; each is a test in `tests/e2e/test_doors.py`."""


class DoorAnswer(NamedTuple):
    """What a client was told."""

    text: str = ""
    """The agent's words, as far as the protocol counts them as the answer."""
    error: str = ""
    """Non-empty if the client was told of a failure: the stable code, wherever the protocol carries it."""


class Door(Protocol):
    """One protocol, spoken by a client of its own: a vendor's SDK where there is one."""

    name: str
    lacks: Mapping[Behaviour, str]
    """Behaviours that this protocol has no notion of, each with the reason."""
    goes_on_alone: bool
    """Whether a turn is finished although its client has gone, since the protocol says how the client comes back."""

    async def ask(self, world: World, said: str, *, to: str, key: str | None = None) -> DoorAnswer:
        """Say something in a conversation, and wait for the end of the answer. `key` makes a retry recognisable, by
        whatever the protocol has for that."""
        ...

    def begun(self, world: World, said: str, *, to: str) -> AbstractAsyncContextManager[object]:
        """Say something, and enter once the request is under way; leaving breaks the connection off."""
        ...

    async def cancel(self, world: World, *, to: str) -> None:
        """Stop the turn that runs in a conversation, by the protocol's own means."""
        ...

    async def session(self, world: World, *, to: str) -> str:
        """The name or id under which `/api/sessions` has the conversation."""
        ...
