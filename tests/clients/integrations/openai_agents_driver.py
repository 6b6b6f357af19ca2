"""The Agents SDK's own runner on our session: what is in the history after each kind of trouble."""

import asyncio
import json
import sys

from agents import (
    Agent,
    Model,
    ModelResponse,
    Runner,
    Usage,
    UserError,
    function_tool,
    set_tracing_disabled,
)
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from holdfast import Sessions, nobody_plays, open_store
from holdfast.errors import SessionConflict
from holdfast.integrations.openai_agents import HoldfastSession

set_tracing_disabled(True)


class OutOfOrder(Exception):
    pass


class Scripted(Model):
    """Answers by what was said last, and notes what it was shown."""

    def __init__(self):
        self.shown = []
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def get_response(self, system_instructions, input, *rest, **more):  # noqa: A002 (the SDK's name)
        items = [{"role": "user", "content": input}] if isinstance(input, str) else list(input)
        self.shown.append([_words(each) for each in items])
        last = items[-1]
        if last.get("type") == "function_call_output":
            return _said(f"The tool says: {last['output']}")
        said = _words(last)
        if said == "fail":
            raise OutOfOrder("as asked")
        if said.startswith("act"):
            return _called(said)
        if said == "wait":
            self.asked.set()
            await self.go.wait()
        return _said(f"You said {said}")

    def stream_response(self, *rest, **more):
        raise NotImplementedError


def _words(item):
    content = item.get("content", item.get("output", item.get("name", "")))
    return content if isinstance(content, str) else "".join(each["text"] for each in content)


def _said(text):
    content = [ResponseOutputText(text=text, type="output_text", annotations=[])]
    message = ResponseOutputMessage(
        id="msg_1", content=content, role="assistant", status="completed", type="message"
    )
    return ModelResponse(output=[message], usage=Usage(), response_id=None)


def _called(name):
    call = ResponseFunctionToolCall(
        arguments="{}", call_id="call_1", name=name.replace(" ", "_"), type="function_call"
    )
    return ModelResponse(output=[call], usage=Usage(), response_id=None)


EFFECTS = []


@function_tool
def act() -> str:
    """Acts."""
    EFFECTS.append("act")
    return "done"


@function_tool(failure_error_function=None)
def act_and_fail() -> str:
    """Acts, and fails."""
    EFFECTS.append("act_and_fail")
    raise OutOfOrder("in the tool")


def agent(model):
    return Agent(name="Assistant", model=model, tools=[act, act_and_fail])


async def history(sessions):
    return [_words(each) for each in await HoldfastSession(sessions, "trip").get_items()]


async def trouble(sessions):
    """A run that fails, one that fails in a tool, and one that is stopped: none leaves a trace."""
    model, session = Scripted(), HoldfastSession(sessions, "trip")
    here = agent(model)
    await Runner.run(here, "one", session=session)
    before = await history(sessions)
    for said in ("fail", "act and fail"):
        try:
            await Runner.run(here, said, session=session)
        except (OutOfOrder, UserError):  # the SDK wraps what a tool raises
            continue
        raise AssertionError(f"{said} did not fail")
    stopped = asyncio.create_task(Runner.run(here, "wait", session=session))
    await model.asked.wait()
    stopped.cancel()
    await asyncio.gather(stopped, return_exceptions=True)
    after = await history(sessions)
    await Runner.run(here, "act", session=session)
    return {
        "before": before,
        "after": after,
        "shown": model.shown[-2],
        "history": await history(sessions),
        "effects": EFFECTS,
    }


async def together(sessions):
    """Two first runs at once: one lands, the other is told; asked again, it lands as well."""
    slow = Scripted()
    first = asyncio.create_task(
        Runner.run(agent(slow), "wait", session=HoldfastSession(sessions, "trip"))
    )
    await slow.asked.wait()
    model = Scripted()
    await Runner.run(agent(model), "quick", session=HoldfastSession(sessions, "trip"))
    slow.go.set()
    try:
        await first
    except SessionConflict as error:
        conflict = error.code
    else:
        conflict = ""
    await Runner.run(agent(slow), "wait", session=HoldfastSession(sessions, "trip"))
    return {"conflict": conflict, "shown": slow.shown[-1], "history": await history(sessions)}


async def back(sessions):
    """The last turn is taken back, and then everything."""
    session = HoldfastSession(sessions, "trip")
    here = agent(Scripted())
    await Runner.run(here, "one", session=session)
    await Runner.run(here, "two", session=session)
    popped = _words(await session.pop_item())
    left = await history(sessions)
    await Runner.run(here, "three", session=session)
    went_on = await history(sessions)
    await session.clear_session()
    return {"popped": popped, "left": left, "went_on": went_on, "cleared": await history(sessions)}


SCENARIOS = {"trouble": trouble, "together": together, "back": back}


async def main(store, scenario):
    async with Sessions(await open_store(store), play=nobody_plays) as sessions:
        told = await SCENARIOS[scenario](sessions)
    async with Sessions(await open_store(store), play=nobody_plays) as sessions:
        told["reopened"] = await history(sessions)
    sys.stdout.write(json.dumps(told))


asyncio.run(main(*sys.argv[1:]))
