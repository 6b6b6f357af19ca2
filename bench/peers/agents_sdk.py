"""One turn through the OpenAI Agents SDK with its SQLite session, a model that answers at once, and no network.

Run by `bench/speed/library.py` in an environment of its own. Prints one JSON object a line.
"""

import asyncio
import json
import os
import sys
import tempfile
import time

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText


class AtOnce(Model):
    async def get_response(self, *args, **kwargs):
        text = ResponseOutputText(text="word " * 6, type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="msg_1", content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


async def measure(history: int, turns: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        session = SQLiteSession("bench", os.path.join(folder, "peer.db"))
        past = [
            {"role": "user" if n % 2 == 0 else "assistant", "content": "hello " * 4}
            for n in range(history)
        ]
        await session.add_items(past)
        agent = Agent(name="bench", instructions="", model=AtOnce())
        await Runner.run(agent, "hello", session=session)
        began = time.process_time()
        for _ in range(turns):
            await Runner.run(agent, "hello", session=session)
        return (time.process_time() - began) / turns * 1e6


for history in map(int, sys.argv[2:]):
    cpu_us = asyncio.run(measure(history, int(sys.argv[1])))
    print(json.dumps({"history": history, "cpu_us": cpu_us}), flush=True)
