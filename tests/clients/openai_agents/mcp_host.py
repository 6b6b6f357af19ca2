"""OpenAI's Agents SDK as an MCP host: its agent uses ours as a tool, over streamable HTTP."""

import asyncio
import json
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI

set_tracing_disabled(True)


async def main(server: str, upstream: str) -> None:
    client = AsyncOpenAI(base_url=upstream, api_key="any")
    async with MCPServerStreamableHttp(params={"url": f"{server}/mcp"}) as ours:
        agent = Agent(
            name="Host",
            model=OpenAIChatCompletionsModel(model="any", openai_client=client),
            mcp_servers=[ours],
        )
        result = await Runner.run(agent, "delegate")
    outputs = [each.output for each in result.new_items if each.type == "tool_call_output_item"]
    sys.stdout.write(json.dumps({"answer": result.final_output, "outputs": outputs}))


asyncio.run(main(*sys.argv[1:]))
