"""What the steps of agents have used of their budgets, over all turns of a conversation.

The sums are session state, and change with each answer: a discarded turn has used nothing. Agents with a budget of one
name share it. A budget is looked at before each step, so that it can be passed by the step under way, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.agents.agent import Agent, Budget
from holdfast.core.codec import Decoder, Value, encode
from holdfast.core.history.conversation import changed_state
from holdfast.core.ports import OpenTurn
from holdfast.core.turns.events import Change, StateSet, Usage

STATE = "budgets"


class Spending(Value):
    """What was used of one budget."""

    cost_micros: int = 0
    tokens: int = 0
    time_ms: int = 0

    def with_step(self, usage: Usage, time_ms: int) -> Spending:
        return Spending(
            cost_micros=self.cost_micros + usage.cost_micros,
            tokens=self.tokens + usage.input_tokens + usage.output_tokens,
            time_ms=self.time_ms + time_ms,
        )


_decode: Decoder[dict[str, Spending]] = Decoder(dict[str, Spending])


def exhausted_budget(agent: Agent, turn: OpenTurn) -> str | None:
    """The bound that an agent's next step would pass, as the file says it: `budgets.small.max_cost`; None if none."""
    if not agent.budgets:
        return None
    spent = _spent(turn)
    for budget in agent.budgets:
        if (field := _reached(budget, spent.get(budget.name, Spending()))) is not None:
            return f"{budget.name}.{field}"
    return None


def paid_from_budgets(
    agent: Agent, turn: OpenTurn, usage: Usage, time_ms: int
) -> tuple[Change, ...]:
    """The change of state by which an agent's step is paid for."""
    if not agent.budgets:
        return ()
    spent = dict(_spent(turn))
    for name in {budget.name for budget in agent.budgets}:
        spent[name] = spent.get(name, Spending()).with_step(usage, time_ms)
    return (StateSet(name=STATE, value=encode(dict(sorted(spent.items()))).decode()),)


def _spent(turn: OpenTurn) -> Mapping[str, Spending]:
    state = dict(changed_state(turn.snapshot.state, turn.turn.changes))
    return _decode.strict(state.get(STATE) or "{}")


def _reached(budget: Budget, spent: Spending) -> str | None:
    bounds = (
        ("max_cost", budget.cost_micros_max, spent.cost_micros),
        ("max_tokens", budget.tokens_max, spent.tokens),
        ("max_time", budget.time_ms_max, spent.time_ms),
    )
    return next((name for name, most, used in bounds if most is not None and used >= most), None)
