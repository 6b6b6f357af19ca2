"""The protocol of a model: a prompt goes in, deltas come out.

A model knows one dialect: how a history looks on its provider's wire. The loop keeps histories encoded in
that dialect, so that a turn on a long conversation costs what is new; a model therefore gets bytes, not items.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from holdfast.core.codec import Value
from holdfast.core.items import Item
from holdfast.core.turns.deltas import Delta, FinishDelta, UsageDelta
from holdfast.core.turns.events import Parameters, ToolDefinition
from holdfast.errors import FailedBy, InvalidValue, TurnFailed
from holdfast.wire.openai.chat.chunks import ErrorObject
from holdfast.wire.openai.chat.stream_parser import StreamFailure


class Dialect(Protocol):
    """How items look on one provider's wire. Pure, and the same for every model of that provider."""

    name: str

    def encode(self, items: Sequence[Item]) -> bytes:
        """The messages that these items make, as JSON without the brackets of the list around them.

        Called with whole turns, or with a turn so far: never with half a step. Empty if they make none.
        Blobs are named by their digests, so that a kept history stays small.
        """
        ...

    def blobs_in(self, messages: bytes) -> frozenset[str]:
        """The digests of the blobs that encoded messages name."""
        ...

    def with_blobs(self, messages: bytes, blobs: Mapping[str, bytes]) -> bytes:
        """The same messages with the blobs' bytes in place of their names: as a provider takes them."""
        ...


class Prompt(Value):
    """What a model is asked."""

    system: str
    """The instructions, put together."""
    messages: tuple[bytes, ...]
    """The history in the model's dialect: pieces as `Dialect.encode` makes them, in order."""
    tools: tuple[ToolDefinition, ...] = ()
    parameters: Parameters = Parameters()
    call_key: str = ""
    """Names this one step of this one turn; passed on where a provider takes such a thing."""


class KeyMissing(InvalidValue):
    """The environment has no API key for a model. Nothing is wrong with how the model is described."""

    code = "key_missing"

    def __init__(self, variable: str) -> None:
        super().__init__(f"the API key is missing: set the environment variable {variable}")
        self.variable = variable


class Model(Protocol):
    """Somebody who answers."""

    name: str
    """As people know it: `openai/gpt-5`."""
    dialect: Dialect
    knows: frozenset[str]
    """The names of the parameters that this model honours; others are reported as ignored."""

    def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        """The answer, as it comes: each time, what came together, in order. Nobody waits for more to come.
        Ends normally only after the provider has said that it is done.

        Raises ModelFailed. Closing the generator breaks the request off: whoever may leave early
        holds it in `contextlib.aclosing`.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class TokenCounter(Protocol):
    """A model whose provider may say how large a prompt is, without answering it."""

    @property
    def count_dialect(self) -> Dialect | None:
        """The dialect of the prompts that are counted; None if the provider offers no count."""
        ...

    async def count(self, prompt: Prompt) -> int:
        """How many tokens this prompt is. Raises ModelFailed. Only for whoever has a `count_dialect`."""
        ...


def counter_of(model: Model) -> TokenCounter | None:
    """The model as one whose prompts can be counted, if they can."""
    return model if isinstance(model, TokenCounter) and model.count_dialect is not None else None


class DelegatedCount:
    """For models around models: their prompts are counted by the one that is meant. Once, and by nobody else: whoever
    asks has an estimate of their own."""

    def __init__(self, model: Model) -> None:
        self._counter = counter_of(model)

    @property
    def count_dialect(self) -> Dialect | None:
        return self._counter.count_dialect if self._counter else None

    async def count(self, prompt: Prompt) -> int:
        assert self._counter is not None, "only who has a dialect for it can be asked for a count"
        return await self._counter.count(prompt)


class CountRequest(Protocol):
    """How one provider is asked for a count. Pure, as `Wire` is."""

    dialect: Dialect
    path: str
    """Where it is asked, below the base address."""

    def body(self, prompt: Prompt) -> bytes:
        """The request. Raises InvalidValue for a part that cannot be put in it."""
        ...

    def read(self, body: bytes) -> int:
        """What the answer says. Raises Failing."""
        ...


class AnswerParser(Protocol):
    """Listens to one answer as it streams in. Pure: bytes in, what they say out, whatever the cuts."""

    failure: StreamFailure | None
    """What is wrong with the stream, with the upstream's own words."""

    @property
    def finished(self) -> bool:
        """The server has said how the answer ended: it is whole."""
        ...

    @property
    def over(self) -> bool:
        """Nothing more is to come, or is worth hearing."""
        ...

    def feed(self, piece: bytes) -> Sequence[Delta]:
        """What these bytes say. Look at `failure` afterwards."""
        ...


class Wire(Protocol):
    """How one model is spoken to: what is sent, and what comes back. Pure; whoever holds it does the I/O."""

    dialect: Dialect
    knows: frozenset[str]

    def body(self, prompt: Prompt) -> bytes:
        """The request. Raises InvalidValue for a part that cannot be put in it."""
        ...

    def hearing(self) -> AnswerParser: ...

    def whole(self, body: bytes) -> Sequence[Delta]:
        """An answer that came in one piece, as the deltas it could have been. Raises Failing."""
        ...

    def error(self, body: bytes) -> tuple[ErrorObject, float | None]:
        """What the body of an HTTP error says, and for how long it asks to be left alone, in seconds."""
        ...


def shows(delta: Delta) -> bool:
    """Whether a watcher sees something of this delta. Until one does, an answer may begin anew."""
    return not isinstance(delta, UsageDelta | FinishDelta)


async def beginning(answer: AsyncIterator[Sequence[Delta]]) -> list[Delta]:
    """An answer until something of it shows, or all of it. What follows is still in `answer`."""
    begun: list[Delta] = []
    async for deltas in answer:
        begun += deltas
        if any(map(shows, deltas)):
            break
    return begun


class ModelFailed(TurnFailed):
    """A provider refused, failed or broke off.

    `status` is the upstream's HTTP status (0: there was none), `reason` its own code, `retry_after_s`
    its hint. `transient` says whether the same request may succeed later.

    Where the upstream has no code of its own, `reason` is one of ours: `upstream_unreachable`,
    `upstream_timeout`, `upstream_broke_off`, `upstream_garbled`; or `context_length_exceeded`,
    whatever words a server has for it.
    """

    code = "model_failed"

    def __init__(
        self,
        detail: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after_s: float | None = None,
        transient: bool = False,
        ended_by: FailedBy = "model_error",
    ) -> None:
        super().__init__(ended_by, detail, reason=reason)
        self.status = status
        self.retry_after_s = retry_after_s
        self.transient = transient
