"""Pydantic AI with the `StepPersistence` of its harness: a snapshot after each step, and of runs that were cut short.

A turn goes on from the last snapshot of the last run of its conversation that has one, cut short or not, with calls
that never got a result closed by `repair_messages`, as its documentation says for a new prompt.
"""

import pydantic_history as stored
from harness import AGENT, ARGS, DEADLINE_S, FOLDER, INSTRUCTIONS, MODEL, Peer, charge_soon, serve
from pydantic_ai import Agent, CancellationToken
from pydantic_ai.messages import repair_messages
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai_harness import StepPersistence
from pydantic_ai_harness.step_persistence import SqliteStepStore, continue_run

store = SqliteStepStore(database=FOLDER / "runs.db")
model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=ARGS.upstream))
agent = Agent(
    model, name=AGENT, instructions=INSTRUCTIONS, capabilities=[StepPersistence(store=store)]
)


@agent.tool_plain
async def charge(amount: int) -> str:
    """Charge somebody. It costs them money."""
    return await charge_soon()


class WithSteps(Peer):
    keeps_deadline = True

    def __init__(self) -> None:
        super().__init__()
        self.tokens = {}

    async def how(self, conversation):
        token = self.tokens[conversation] = CancellationToken()
        return {
            "message_history": await loaded(conversation),
            "conversation_id": conversation,
            "cancellation_token": token,
            "timeout": DEADLINE_S,
        }

    async def ask(self, conversation, text):
        return (await agent.run(text, **await self.how(conversation))).output

    async def stream(self, conversation, text):
        async with agent.run_stream_events(text, **await self.how(conversation)) as events:
            async for event in events:
                if piece := stored.piece_of(event):
                    yield piece

    async def cancel(self, conversation):
        self.tokens[conversation].cancel()
        return "CancellationToken.cancel()"

    async def history(self, conversation):
        return stored.as_chat(await loaded(conversation))


async def loaded(conversation):
    for run in reversed(await store.list_runs(conversation_id=conversation)):
        try:
            found = await continue_run(store, run_id=run.run_id, include_interrupted=True)
        except LookupError:
            continue  # it came to nothing
        return repair_messages(found)
    return []


serve(WithSteps)
