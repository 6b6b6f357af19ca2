"""The `model_picker` toolset: an agent chooses which of several models it goes on with.

The choice is session state, for each agent: it holds for the next steps of the conversation, until it is changed. A
discarded turn leaves it as it was. Nothing outside of the conversation changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from holdfast.core.codec import Decoder, encode
from holdfast.core.turns.events import StateSet
from holdfast.tools.built_in_tools import (
    BuiltInToolset,
    harmless_tool,
    parameters,
    text_in,
    text_output,
)
from holdfast.tools.tool import Json, ToolOutput, ToolRun

STATE = "model_choice"
_tool = partial(harmless_tool, state=STATE)
_decode: Decoder[dict[str, str]] = Decoder(dict[str, str])


def choices_in(state: Mapping[str, str]) -> dict[str, str]:
    """The models that agents have chosen: agent → model, by the name that the agent file has for it."""
    return _decode.strict(state.get(STATE) or "{}")


class ModelPickerToolset(BuiltInToolset):
    """`change_model`, `revert_model`."""

    def __init__(self, models: tuple[str, ...]) -> None:
        self.models = models
        named: list[Json] = [*models]
        chosen = parameters(["model"], model={"type": "string", "enum": named})
        there = ", ".join(models)
        super().__init__(
            _tool("change_model", f"Go on with another model: {there}.", chosen, _change),
            _tool("revert_model", "Go back to your own model.", parameters(), _revert),
            instruction=f"You can go on with another model, where it fits the task better: {there}. "
            "Call change_model before such a task, and revert_model after it.",
        )


async def _change(run: ToolRun) -> ToolOutput:
    model = text_in(run.arguments, "model")
    made = {**choices_in(run.state), run.agent: model}
    return text_output(f"{model} goes on from here.", _set(made))


async def _revert(run: ToolRun) -> ToolOutput:
    made = choices_in(run.state)
    made.pop(run.agent, None)
    return text_output("Your own model goes on from here.", _set(made))


def _set(choices: Mapping[str, str]) -> StateSet:
    return StateSet(name=STATE, value=encode(choices).decode())
