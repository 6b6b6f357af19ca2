"""Pydantic AI with a stored history: as its chat example does, or with revisions and with runs that were cut short."""

import asyncio

import pydantic_history as stored
from harness import AGENT, ARGS, DEADLINE_S, INSTRUCTIONS, MODEL, Peer, charge_soon, serve
from pydantic_ai import Agent, CancellationToken, RunCancelled
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import repair_messages
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_conversations import SqliteConversations

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=ARGS.upstream))
agent = Agent(model, name=AGENT, instructions=INSTRUCTIONS)


@agent.tool_plain
async def charge(amount: int) -> str:
    """Charge somebody. It costs them money."""
    return await charge_soon()


class ChatExample(Peer):
    """A run's messages are stored when it has ended well."""

    keeps_deadline = True

    def __init__(self) -> None:
        super().__init__()
        self.tokens = {}

    async def open(self):
        stored.create_tables()

    def stoppable(self, conversation):
        token = self.tokens[conversation] = CancellationToken()
        return {"cancellation_token": token, "timeout": DEADLINE_S}

    async def ask(self, conversation, text):
        history = await stored.load(conversation)
        how = self.stoppable(conversation)
        result = await agent.run(text, message_history=history, **how)
        await stored.append(conversation, result.new_messages_json())
        return result.output

    async def stream(self, conversation, text):
        history = await stored.load(conversation)
        how = self.stoppable(conversation)
        async with agent.run_stream(text, message_history=history, **how) as result:
            async for piece in pieces(result):
                yield piece
            await stored.append(conversation, result.new_messages_json())

    async def cancel(self, conversation):
        self.tokens[conversation].cancel()
        return "CancellationToken.cancel()"

    async def history(self, conversation):
        return stored.as_chat(await stored.load(conversation))


class Kept(ChatExample):
    """A conversation is saved under its revision, and a run that is cut short is saved as far as it came."""

    conflicts = (ConversationConflict,)

    def __init__(self) -> None:
        super().__init__()
        self.store = SqliteConversations()

    async def loaded(self, conversation):
        found = await self.store.load(conversation)
        return found or Conversation(conversation_id=conversation)

    async def ask(self, conversation, text):
        before = await self.loaded(conversation)
        try:
            result = await agent.run(text, conversation=before, **self.stoppable(conversation))
        except (asyncio.CancelledError, RunCancelled) as error:
            await self.save_cut_short(before, error)
            raise
        await self.store.save(result)
        return result.output

    async def stream(self, conversation, text):
        before = await self.loaded(conversation)
        how = self.stoppable(conversation)
        try:
            async with agent.run_stream_events(text, conversation=before, **how) as events:
                async for event in events:
                    if piece := stored.piece_of(event):
                        yield piece
            await self.store.save(events.result)
        except (asyncio.CancelledError, RunCancelled) as error:
            await self.save_cut_short(before, error)
            raise

    async def save_cut_short(self, before, error):
        cut = RunCancelled.from_cancellation(error)
        if cut is None:
            return
        after = Conversation(
            messages=repair_messages(cut.all_messages()),
            usage=cut.usage,
            conversation_id=before.conversation_id,
            revision=before.revision,
        )
        await asyncio.shield(self.store.save(after))

    async def history(self, conversation):
        return stored.as_chat((await self.loaded(conversation)).messages)


async def pieces(result):
    """What is new of a text that grows; its deltas would leave the message out of the history."""
    told = ""
    async for text in result.stream_text(debounce_by=None):
        yield text[len(told) :]
        told = text


serve(Kept if ARGS.variant == "kept" else ChatExample)
