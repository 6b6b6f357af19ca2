"""Agno's own server, as its documentation deploys it: an `AgentOS` around one agent, under uvicorn.

It is told what to do by its environment. Every run of a session goes into the context: by default three do, and this
is not about windows.
"""

import asyncio
import os
import urllib.request

import uvicorn
from agno.agent import Agent
from agno.db.postgres import PostgresDb
from agno.db.sqlite import SqliteDb
from agno.job_queue.config import QueueConfig
from agno.models.openai import OpenAIChat
from agno.os import AgentOS

VARIANT = os.environ["BENCH_VARIANT"]
DEADLINE = os.environ["BENCH_DEADLINE"]


def charge_now() -> str:
    request = urllib.request.Request(os.environ["BENCH_EFFECTS"], data=b"{}", method="POST")
    return urllib.request.urlopen(request, timeout=60).read().decode()


async def charge(amount: int) -> str:
    """Charge somebody. It costs them money."""
    return await asyncio.to_thread(charge_now)


db, queue = SqliteDb(db_file="agno.db"), None
if VARIANT == "queue":
    url = os.environ["BENCH_POSTGRES"].replace("postgresql://", "postgresql+psycopg://")
    db = PostgresDb(db_url=url)
    queue = QueueConfig(
        durable=True, lock_grace_seconds=5, timeout_seconds=int(float(DEADLINE or 3600))
    )

clerk = Agent(
    id=os.environ["BENCH_AGENT"],
    name="clerk",
    model=OpenAIChat(
        id=os.environ["BENCH_MODEL"], base_url=os.environ["BENCH_UPSTREAM"], api_key="bench"
    ),
    instructions="You are a clerk. Charge people when they ask you to.",
    tools=[charge],
    db=db,
    add_history_to_context=True,
    num_history_runs=1000,
    checkpoint="tool-batch" if VARIANT == "checkpoints" else None,
    telemetry=False,
)
app = AgentOS(agents=[clerk], db=db, queue=queue, telemetry=False).get_app()
uvicorn.run(app, host="127.0.0.1", port=int(os.environ["BENCH_PORT"]), log_level="warning")
