"""Pydantic AI on DBOS: a turn is a durable workflow, whose model requests and tools are steps that are not done again.

The workflow of a turn stands in a queue that is partitioned by conversation and lets one of each run at a time. It
loads the history, runs the agent, and appends what is new, under its own id, since a step may be done twice. A
client's key is the id of the workflow, as DBOS has it for idempotency. Pieces of an answer go through a stream of
DBOS, so a turn does not depend on who listens.
"""

import contextlib
import uuid

import pydantic_history as stored
from dbos import DBOS, SetEnqueueOptions, SetWorkflowID, SetWorkflowTimeout
from harness import (
    AGENT,
    ARGS,
    DEADLINE_S,
    FOLDER,
    INSTRUCTIONS,
    KEY,
    MODEL,
    Peer,
    charge_soon,
    serve,
)
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

QUEUE = "turns"

DBOS(
    config={
        "name": "clerk",
        "system_database_url": f"sqlite:///{FOLDER}/dbos.sqlite",
        "log_level": "WARNING",
    }
)


async def to_client(context, events):
    async for event in events:
        if piece := stored.piece_of(event):
            await DBOS.write_stream_async("text", piece)


client = AsyncOpenAI(base_url=ARGS.upstream, max_retries=0)  # as its page on DBOS recommends
model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
agent = Agent(
    model,
    name=AGENT,
    instructions=INSTRUCTIONS,
    capabilities=[DBOSDurability(event_stream_handler=to_client)],
)


@agent.tool_plain
@DBOS.step()
async def charge(amount: int) -> str:
    """Charge somebody. It costs them money."""
    return await charge_soon()


load = DBOS.step(name="load")(stored.load)
append = DBOS.step(name="append")(stored.append)


@DBOS.workflow()
async def turn(conversation: str, text: str) -> str:
    history = await load(conversation)
    result = await agent.run(text, message_history=history)
    await append(conversation, result.new_messages_json(), run=DBOS.workflow_id)
    return result.output


class OnDbos(Peer):
    keeps_deadline = True

    def __init__(self) -> None:
        super().__init__()
        self.workflows = {}

    async def open(self):
        stored.create_tables()
        DBOS.launch()
        await DBOS.register_queue_async(QUEUE, partition_concurrency=1, polling_interval_sec=0.1)

    async def started(self, conversation, text):
        name = KEY.get() or str(uuid.uuid4())
        with contextlib.ExitStack() as stack:
            stack.enter_context(SetWorkflowID(name))
            stack.enter_context(SetWorkflowTimeout(DEADLINE_S))
            stack.enter_context(SetEnqueueOptions(queue_partition_key=conversation))
            handle = await DBOS.enqueue_workflow_async(QUEUE, turn, conversation, text)
        self.workflows[conversation] = handle.workflow_id
        return handle

    async def ask(self, conversation, text):
        handle = await self.started(conversation, text)
        return await handle.get_result(polling_interval_sec=0.1)

    async def stream(self, conversation, text):
        handle = await self.started(conversation, text)
        async for piece in DBOS.read_stream_async(
            handle.workflow_id, "text", polling_interval_sec=0.1
        ):
            yield piece
        await handle.get_result(polling_interval_sec=0.1)

    async def cancel(self, conversation):
        await DBOS.cancel_workflow_async(self.workflows[conversation])
        return "DBOS.cancel_workflow()"

    async def history(self, conversation):
        return stored.as_chat(await stored.load(conversation))


serve(OnDbos)
