"""Pydantic AI's own agent on our history: what is in it after each kind of trouble."""

import asyncio
import json
import sys

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel

from holdfast import Sessions, nobody_plays, open_store
from holdfast.errors import SessionConflict
from holdfast.integrations.pydantic_ai import MessageHistory


class OutOfOrder(Exception):
    pass


class Scripted:
    """Answers by what was said last, and notes what it was shown."""

    def __init__(self):
        self.shown = []
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, messages, info):
        self.shown.append(words(messages))
        last = messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            return ModelResponse(parts=[TextPart(f"The tool says: {last.content}")])
        said = last.content
        if said == "fail":
            raise OutOfOrder("as asked")
        if said.startswith("act"):
            return ModelResponse(parts=[ToolCallPart(said.replace(" ", "_"), {"n": 1})])
        if said == "wait":
            self.asked.set()
            await self.go.wait()
        return ModelResponse(parts=[TextPart(f"You said {said}")])


def words(messages):
    found = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                found.append(f"{part.tool_name} {part.args_as_json_str()}")
            elif (
                isinstance(part, UserPromptPart | TextPart | ToolReturnPart)
                or part.part_kind == "system-prompt"
            ):
                found.append(str(part.content))
    return found


EFFECTS = []


def agent(model):
    here = Agent(FunctionModel(model), system_prompt="Be kind.")

    @here.tool_plain
    def act(n: int) -> str:
        EFFECTS.append("act")
        return "done"

    @here.tool_plain
    def act_and_fail(n: int) -> str:
        EFFECTS.append("act_and_fail")
        raise OutOfOrder("in the tool")

    return here


async def ask(history, here, said):
    async with history.turn("trip") as turn:
        result = await here.run(said, message_history=turn.messages)
        turn.keep(result.new_messages())


async def trouble(history):
    """A run that fails, one that fails in a tool, and one that is stopped: none leaves a trace."""
    model = Scripted()
    here = agent(model)
    await ask(history, here, "one")
    before = words(await history.read("trip"))
    for said in ("fail", "act and fail"):
        try:
            await ask(history, here, said)
        except OutOfOrder:
            continue
        raise AssertionError(f"{said} did not fail")
    stopped = asyncio.create_task(ask(history, here, "wait"))
    await model.asked.wait()
    stopped.cancel()
    await asyncio.gather(stopped, return_exceptions=True)
    after = words(await history.read("trip"))
    await ask(history, here, "act")
    return {
        "before": before,
        "after": after,
        "shown": model.shown[-2],
        "history": words(await history.read("trip")),
        "effects": EFFECTS,
    }


async def together(history):
    """Two first runs at once: one lands, the other is told; asked again, it lands as well."""
    slow = Scripted()
    first = asyncio.create_task(ask(history, agent(slow), "wait"))
    await slow.asked.wait()
    await ask(history, agent(Scripted()), "quick")
    slow.go.set()
    try:
        await first
    except SessionConflict as error:
        conflict = error.code
    else:
        conflict = ""
    await ask(history, agent(slow), "wait")
    return {
        "conflict": conflict,
        "shown": slow.shown[-1],
        "history": words(await history.read("trip")),
    }


SCENARIOS = {"trouble": trouble, "together": together}


async def main(store, scenario):
    async with Sessions(await open_store(store), play=nobody_plays) as sessions:
        told = await SCENARIOS[scenario](MessageHistory(sessions, ModelMessagesTypeAdapter))
    async with Sessions(await open_store(store), play=nobody_plays) as sessions:
        again = MessageHistory(sessions, ModelMessagesTypeAdapter)
        told["reopened"] = words(await again.read("trip"))
    sys.stdout.write(json.dumps(told))


asyncio.run(main(*sys.argv[1:]))
