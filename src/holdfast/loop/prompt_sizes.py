"""Estimates of prompt sizes and context windows in tokens, corrected by what providers report.

We count bytes; models count tokens, each in its own way. A provider reports after every step how many tokens it
has read, so the bytes per token are known from then on, for this session and model. Before that, four bytes count
as a token. No estimate has to be right: one that is too high makes a summary a little early, one that is too low
meets the provider's refusal, which corrects it as well.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from holdfast import limits
from holdfast.agents.agent import Agent
from holdfast.core.turns.estimates import BYTES_PER_TOKEN
from holdfast.ids import SessionId
from holdfast.models.windows import context_window

BYTES_PER_TOKEN_MIN, BYTES_PER_TOKEN_MAX = 1.0, 60.0
"""Outside these bounds the provider counts something else than our bytes, such as a picture inside them."""

SIZE_BYTES_MIN = 4_000
"""Smaller prompts are not measured: the text that a provider adds around them outweighs them."""


@dataclass
class _Known:
    bytes_per_token: float = BYTES_PER_TOKEN
    refused_tokens: int | None = None
    """A prompt of this size was too large."""


class PromptSizes:
    """The measured prompt sizes of recent sessions. Forgetting them costs precision only."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[SessionId, str], _Known] = OrderedDict()

    def window(self, agent: Agent, session: SessionId) -> int | None:
        """How many tokens this agent's model accepts; None if that is not known."""
        stated = agent.context_window or context_window(agent.model.name)
        known = self._known.get((session, agent.model.name))
        said = [each for each in (stated, known and known.refused_tokens) if each]
        return min(said, default=None)

    def tokens(self, agent: Agent, session: SessionId, size_bytes: int) -> int:
        return round(size_bytes / self._ratio(agent, session))

    def bytes(self, agent: Agent, session: SessionId, tokens: float) -> int:
        return round(tokens * self._ratio(agent, session))

    def learn(self, agent: Agent, session: SessionId, size_bytes: int, *, tokens: int) -> None:
        """Note that a provider has counted `tokens` in a prompt of this size."""
        if tokens > 0 and size_bytes >= SIZE_BYTES_MIN:
            ratio = min(max(size_bytes / tokens, BYTES_PER_TOKEN_MIN), BYTES_PER_TOKEN_MAX)
            self._entry(agent, session).bytes_per_token = ratio

    def learn_refused(self, agent: Agent, session: SessionId, size_bytes: int) -> None:
        """Note that a provider has refused a prompt of this size as too large."""
        tokens = self.tokens(agent, session, size_bytes)
        entry = self._entry(agent, session)
        entry.refused_tokens = min(tokens, entry.refused_tokens or tokens)

    def _ratio(self, agent: Agent, session: SessionId) -> float:
        known = self._known.get((session, agent.model.name))
        return known.bytes_per_token if known else BYTES_PER_TOKEN

    def _entry(self, agent: Agent, session: SessionId) -> _Known:
        name = (session, agent.model.name)
        entry = self._known.setdefault(name, _Known())
        self._known.move_to_end(name)
        if len(self._known) > limits.gauge_entries_max:
            self._known.popitem(last=False)
        return entry

    def __repr__(self) -> str:
        return f"<PromptSizes of {len(self._known)} sessions>"
