"""The protocol of a model: a prompt goes in, deltas come out.

A model has one dialect: how a history looks on its provider's wire. The loop keeps histories encoded in
that dialect, so that a turn on a long conversation costs only its new items; a model therefore gets bytes, not items.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Protocol, cast, runtime_checkable

from holdfast.core.codec import Value
from holdfast.core.items import Item
from holdfast.core.turns.deltas import Delta, FinishDelta, UsageDelta
from holdfast.core.turns.events import Parameters, StepEstimate, ToolDefinition
from holdfast.errors import FailedBy, InvalidValue, TurnFailed
from holdfast.wire.openai.chat.chunks import ErrorObject, read_error
from holdfast.wire.prefix_digest import Prefixes
from holdfast.wire.stream_parser import StreamFailure


class Dialect(Protocol):
    """How items look on one provider's wire. Pure, and the same for every model of that provider."""

    name: str
    binds: bool
    """Some thoughts are bound to the prompt before them: it is a `BindingDialect`."""

    def encode(self, items: Sequence[Item]) -> bytes:
        """The messages that these items make, as JSON without the brackets of the list around them.

        Called with whole turns, or with a turn so far: never with half a step. Empty if they make none.
        Blobs are named by their digests, so that a stored history stays small.
        """
        ...

    def blobs_in(self, messages: bytes) -> frozenset[str]:
        """The digests of the blobs that encoded messages name."""
        ...

    def with_blobs(self, messages: bytes, blobs: Mapping[str, bytes]) -> bytes:
        """The same messages with the blobs' bytes in place of their names, as a provider takes them."""
        ...


@runtime_checkable
class BindingDialect(Dialect, Protocol):
    """A dialect in which thoughts go back only after exactly what they came after."""

    def fit(self, messages: bytes, before: Prefixes) -> bytes:
        """Encoded messages without the thoughts that do not fit after `before`, which goes on to their end.

        Messages are sent only after this. Empty if nothing is left of them.
        """
        ...


class Prompt(Value):
    """A request to a model: instructions, history, tools and parameters."""

    system: str
    """All instructions, joined."""
    messages: tuple[bytes, ...]
    """The history in the model's dialect: pieces as `Dialect.encode` makes them, in order."""
    tools: tuple[ToolDefinition, ...] = ()
    parameters: Parameters = Parameters()
    prefixes: tuple[tuple[str, str], ...] = ()
    """For each binding dialect, the digest of the whole prompt: what its answer's thoughts are bound to."""
    text_bytes: int | None = None
    """The size of what is in the prompt, without the bytes of blobs; None if there are no blobs in it."""
    call_key: str = ""
    """Identifies this step of this turn; sent as an idempotency key where a provider takes one."""

    @property
    def size_bytes(self) -> int:
        """Its size, as far as that says something about tokens."""
        if self.text_bytes is not None:
            return self.text_bytes
        tools = sum(len(each.description) + len(each.parameters) for each in self.tools)
        return len(self.system) + sum(map(len, self.messages)) + tools


class KeyMissing(InvalidValue):
    """The environment has no API key for a model. The model's settings themselves are fine."""

    code = "key_missing"

    def __init__(self, variable: str, *, what: str = "the API key is missing") -> None:
        super().__init__(f"{what}: set the environment variable {variable}")
        self.variable = variable


class Model(Protocol):
    """Answers prompts."""

    name: str
    """The name that people know: `openai/gpt-5`."""
    dialect: Dialect
    knows: frozenset[str]
    """The names of the parameters that this model honours; others are reported as ignored."""

    def stream(self, prompt: Prompt) -> AsyncGenerator[Sequence[Delta], None]:
        """The answer as it arrives: each yield has the deltas that arrived together, in order, and waits for no more.
        Ends normally only after the provider has said that it is done.

        Raises ModelFailed. Closing the generator cancels the request: a caller that may stop early
        wraps it in `contextlib.aclosing`.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class TokenCounter(Protocol):
    """A model whose provider may count the tokens of a prompt without answering it."""

    @property
    def count_dialect(self) -> Dialect | None:
        """The dialect of the prompts that are counted; None if the provider offers no count."""
        ...

    async def count(self, prompt: Prompt) -> int:
        """The size of this prompt in tokens. Raises ModelFailed. Call it only if there is a `count_dialect`."""
        ...


def counter_of(model: Model) -> TokenCounter | None:
    """The model as a TokenCounter; None if it is none."""
    return model if isinstance(model, TokenCounter) and model.count_dialect is not None else None


class BindingModel(Protocol):
    """A model that may bind thoughts to the prompt before them."""

    def openings(self, prompt: Prompt) -> Prefixes:
        """The digest of what a request says before its messages, for each dialect of this model that binds thoughts.

        Raises InvalidValue for a part that cannot be sent.
        """
        ...


def openings_of(model: Model, prompt: Prompt) -> Prefixes:
    """See `BindingModel.openings`; empty for other models."""
    # Not `isinstance`, here and below: for a protocol it goes through all bases of the class, in every step.
    return cast("BindingModel", model).openings(prompt) if hasattr(model, "openings") else {}


class EstimatedModel(Protocol):
    """A model whose usage is estimated where its provider does not report it."""

    def estimate(self, prompt_bytes: int) -> StepEstimate | None:
        """How a step with a prompt of this size is counted; None if no wrapped model is estimated."""
        ...


def estimate_of(model: Model, prompt_bytes: int) -> StepEstimate | None:
    """See `EstimatedModel.estimate`; None for other models."""
    if not hasattr(model, "estimate"):
        return None
    return cast("EstimatedModel", model).estimate(prompt_bytes)


class WrappingModel:
    """The base of models that wrap models. Tokens are counted by the first wrapped model, without retries or fallback: a
    caller that gets no count makes an estimate of its own."""

    def __init__(self, *models: Model) -> None:
        self._wrapped = models
        self._model = models[0]
        self._counter = counter_of(models[0])
        self.name = models[0].name
        self.dialect: Dialect = models[0].dialect
        self.knows = models[0].knows

    def openings(self, prompt: Prompt) -> Prefixes:
        found: Prefixes = {}
        for model in self._wrapped:
            found |= openings_of(model, prompt)
        return found

    def estimate(self, prompt_bytes: int) -> StepEstimate | None:
        return estimate_of(self._wrapped[0], prompt_bytes)

    @property
    def count_dialect(self) -> Dialect | None:
        return self._counter.count_dialect if self._counter else None

    async def count(self, prompt: Prompt) -> int:
        assert self._counter is not None, "a count needs a count_dialect"
        return await self._counter.count(prompt)

    async def close(self) -> None:
        for model in self._wrapped:
            await model.close()


class CountRequest(Protocol):
    """How to ask one provider for a count. Pure, as `Wire` is."""

    dialect: Dialect
    path: str
    """The path below the base URL."""

    def body(self, prompt: Prompt) -> bytes:
        """The request's body. Raises InvalidValue for a part that cannot be sent."""
        ...

    def read(self, body: bytes) -> int:
        """The count in the answer. Raises StreamFailure."""
        ...


class AnswerParser(Protocol):
    """Parses one answer as it streams in. Pure: bytes in, deltas out; cuts between the bytes make no difference."""

    failure: StreamFailure | None
    """What is wrong with the stream, in the upstream's words."""

    @property
    def finished(self) -> bool:
        """The server has said how the answer ended: it is whole."""
        ...

    @property
    def over(self) -> bool:
        """The stream has ended, or the rest can be ignored."""
        ...

    def feed(self, piece: bytes) -> Sequence[Delta]:
        """The deltas in these bytes. Check `failure` afterwards."""
        ...


class Wire(Protocol):
    """The API of one model: the bytes of requests, and the meaning of answers. Pure; `HttpModel` does the I/O."""

    dialect: Dialect
    knows: frozenset[str]

    def body(self, prompt: Prompt) -> bytes:
        """The request's body. Raises InvalidValue for a part that cannot be sent."""
        ...

    def opening(self, prompt: Prompt) -> bytes | None:
        """What a request says before its messages, if thoughts are bound to it; otherwise None."""
        return None

    def without_thoughts(self, prompt: Prompt) -> Prompt | None:
        """The prompt without what only its provider can read; None if there is no such thing on this wire."""
        return None

    def parser(self, prompt: Prompt) -> AnswerParser:
        """A parser for the answer to this prompt."""
        ...

    def whole(self, body: bytes, prompt: Prompt) -> Sequence[Delta]:
        """An answer that arrived in one piece, as the deltas it could have been. Raises StreamFailure."""
        ...

    def error(self, body: bytes) -> tuple[ErrorObject, float | None]:
        """The error in the body of an HTTP error, and how many seconds the server asks us to wait."""
        return read_error(body), None


def shows(delta: Delta) -> bool:
    """Whether a watcher sees something of this delta. Until then, the answer may be started again."""
    return not isinstance(delta, UsageDelta | FinishDelta)


async def beginning(answer: AsyncIterator[Sequence[Delta]]) -> list[Delta]:
    """The deltas of an answer up to the first that shows. `answer` still yields the rest."""
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

    If the upstream sends no code, `reason` is one of ours: `upstream_unreachable`,
    `upstream_timeout`, `upstream_broke_off`, `upstream_garbled`; or `context_length_exceeded`,
    which replaces each server's own wording.
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
