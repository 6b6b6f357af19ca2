"""LangGraph's agent with a checkpointer: SQLite, or PostgreSQL.

A variant is a few words: where it stores (`sqlite`, `postgres`), a `durability`, and what is done about a turn that
has not ended, which LangGraph leaves to its users:

    patched    deepagents' middleware gives calls without a result one that says so
    resumed    the turn is finished first, by `ainvoke(None, …)`; if it is what is asked again, that is the answer
    rewound    the next turn starts from the last checkpoint at which nothing was left to do

The last two would take a turn that still runs for one that never ended, so they come with a lock for each thread.
"""

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack, nullcontext

from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
from harness import AGENT, ARGS, FOLDER, INSTRUCTIONS, MODEL, Peer, charge_soon, serve
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

CHOSEN = ARGS.variant.split()
DURABILITY = next((each for each in CHOSEN if each in ("sync", "exit")), None)
ROLES = {"human": "user", "ai": "assistant", "tool": "tool"}


async def charge(amount: int) -> str:
    """Charge somebody. It costs them money."""
    return await charge_soon()


class LangGraph(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.opened = AsyncExitStack()
        self.locks = defaultdict(asyncio.Lock)

    async def open(self):
        self.agent = create_agent(
            ChatOpenAI(model=MODEL, base_url=ARGS.upstream),
            tools=[charge],
            system_prompt=INSTRUCTIONS,
            middleware=[PatchToolCallsMiddleware()] if "patched" in CHOSEN else [],
            checkpointer=await self.saver(),
            name=AGENT,
        )

    async def saver(self):
        if "postgres" not in CHOSEN:
            path = str(FOLDER / "langgraph.db")
            return await self.opened.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        pool = AsyncConnectionPool(ARGS.postgres, open=False, kwargs=settings)
        saver = AsyncPostgresSaver(await self.opened.enter_async_context(pool))
        await saver.setup()
        return saver

    async def ask(self, conversation, text):
        async with self.alone(conversation):
            start, config = await self.ready(conversation, text)
            state = await self.agent.ainvoke(start, config, durability=DURABILITY)
            return state["messages"][-1].text

    async def stream(self, conversation, text):
        async with self.alone(conversation):
            start, config = await self.ready(conversation, text)
            events = self.agent.astream(
                start, config, stream_mode="messages", durability=DURABILITY
            )
            async for message, _ in events:
                if isinstance(message, AIMessageChunk) and message.text:
                    yield message.text

    def alone(self, conversation):
        recovers = "resumed" in CHOSEN or "rewound" in CHOSEN
        return self.locks[conversation] if recovers else nullcontext()

    async def ready(self, conversation, text):
        """What a turn starts with, and where, once what the last one has left behind is dealt with."""
        config = thread(conversation)
        start = {"messages": [{"role": "user", "content": text}]}
        if "rewound" in CHOSEN:
            state = await self.finished(conversation)
            return start, state.config if state else config
        if "resumed" in CHOSEN:
            state = await self.agent.aget_state(config)
            if state.next and asked_last(state) == text:
                return None, config  # a retry: to resume is to answer it
            if state.next:
                await self.agent.ainvoke(None, config, durability=DURABILITY)
        return start, config

    async def finished(self, conversation):
        """The newest checkpoint at which nothing was left to do."""
        async for state in self.agent.aget_state_history(thread(conversation)):
            if not state.next:
                return state
        return None

    async def history(self, conversation):
        if "rewound" in CHOSEN:
            state = await self.finished(conversation)
        else:
            state = await self.agent.aget_state(thread(conversation))
        return [as_chat(each) for each in state.values.get("messages", ())] if state else []


def thread(conversation):
    return {"configurable": {"thread_id": conversation}}


def asked_last(state):
    texts = [each.text for each in state.values.get("messages", ()) if each.type == "human"]
    return texts[-1] if texts else None


def as_chat(message):
    chat = {"role": ROLES[message.type], "content": message.text}
    if message.type == "ai":
        chat["tool_calls"] = [{"id": call["id"]} for call in message.tool_calls]
    if message.type == "tool":
        chat["tool_call_id"] = message.tool_call_id
    return chat


serve(LangGraph)
