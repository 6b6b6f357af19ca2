"""The `agent.py` of an ADK app: copied into a folder with the app's name, as `adk create` lays it out.

`root_agent` is what its documentation asks for; an `App` of the same name is what it asks for to make runs resumable.
"""

import asyncio
import os
import urllib.request
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.models.lite_llm import LiteLlm


def charge_now() -> str:
    request = urllib.request.Request(os.environ["BENCH_EFFECTS"], data=b"{}", method="POST")
    return urllib.request.urlopen(request, timeout=60).read().decode()


async def charge(amount: int) -> str:
    """Charge somebody. It costs them money."""
    return await asyncio.to_thread(charge_now)


root_agent = LlmAgent(
    name="clerk",
    model=LiteLlm(
        model=f"openai/{os.environ['BENCH_MODEL']}",
        api_base=os.environ["BENCH_UPSTREAM"],
        api_key="bench",
    ),
    instruction="You are a clerk. Charge people when they ask you to.",
    tools=[charge],
    timeout=float(os.environ["BENCH_DEADLINE"]) if os.environ["BENCH_DEADLINE"] else None,
)
if os.environ["BENCH_VARIANT"] == "resumable":
    app = App(
        name=Path(__file__).parent.name,
        root_agent=root_agent,
        resumability_config=ResumabilityConfig(is_resumable=True),
    )
