"""One question to a model, outside of the conversation, and the words of its answer."""

from __future__ import annotations

from contextlib import aclosing

from holdfast.core.codec import Value
from holdfast.core.transcript import ends
from holdfast.core.turns import events as ev
from holdfast.core.turns.deltas import FinishDelta, TextDelta, UsageDelta
from holdfast.models.model import Model, ModelFailed, Prompt
from holdfast.tools.execution import clean


class SingleAnswer(Value):
    """The words of an answer, and its usage."""

    text: str
    usage: ev.Usage


async def single_answer(model: Model, prompt: Prompt, *, chars_max: int) -> SingleAnswer:
    """The answer of a model; of a longer text both ends are kept. Raises ModelFailed, also for an empty answer."""
    words: list[str] = []
    usage, finished = ev.Usage(), False
    async with aclosing(model.stream(prompt)) as deltas:
        async for heard in deltas:
            for delta in heard:
                match delta:
                    case TextDelta(refusal=False):
                        words.append(delta.text)
                    case UsageDelta():
                        usage = delta.usage
                    case FinishDelta():
                        finished = True
                    case _:
                        pass  # reasoning, and calls of tools that were not offered
    text = clean("".join(words)).strip()
    if not finished or not text:
        raise ModelFailed("the model wrote nothing", reason="upstream_broke_off")
    return SingleAnswer(text=ends(text, chars_max), usage=usage)
