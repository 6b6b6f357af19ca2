"""CrewAI: an agent with a role, which is told everything that was said before with each kickoff."""

import os
import sys

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_TRACING_ENABLED": "false",
}

from crewai import LLM, Agent
from crewai.tools import tool
from rounds import RETRIES, SAID, main


def talk(here):
    @tool("get_weather")
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return here.weather(city)

    llm = LLM(
        model="openai/root",
        base_url=here.base_url,
        api_key="any",
        stream=here.streamed,
        default_headers=here.headers or None,
        max_retries=RETRIES,
    )
    guide = Agent(
        role="Guide",
        goal="Be kind.",
        backstory="You know the weather.",
        tools=[get_weather],
        llm=llm,
    )
    messages = []
    for said in SAID:
        messages.append({"role": "user", "content": said})
        answer = guide.kickoff(list(messages)).raw
        messages.append({"role": "assistant", "content": answer})
        here.answers.append(answer)


main(talk)
sys.stdout.flush()
os._exit(0)  # else it prints more
