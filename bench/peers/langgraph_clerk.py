"""The agent that `langgraph dev` serves, and the checkpointer for the variants that bring their own.

Copied into the folder that it is started in. What it needs to know comes by its environment.
"""

import asyncio
import os
import urllib.request
from contextlib import asynccontextmanager

from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver


def charge_now() -> str:
    request = urllib.request.Request(os.environ["CLERK_EFFECTS"], data=b"{}", method="POST")
    return urllib.request.urlopen(request, timeout=60).read().decode()


async def charge(amount: int) -> str:
    """Charge somebody. It costs them money."""
    return await asyncio.to_thread(charge_now)


agent = create_agent(
    ChatOpenAI(model=os.environ["CLERK_MODEL"], base_url=os.environ["CLERK_UPSTREAM"]),
    tools=[charge],
    system_prompt=os.environ["CLERK_INSTRUCTIONS"],
    middleware=[PatchToolCallsMiddleware()] if os.environ.get("CLERK_PATCHED") else [],
)


@asynccontextmanager
async def checkpointer():
    async with AsyncSqliteSaver.from_conn_string("langgraph.db") as saver:
        yield saver
