"""AutoGen: an assistant that reflects on what its tools gave."""

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from rounds import RETRIES, SAID, main

ABOUT = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": "unknown",
}


async def talk(here):
    async def get_weather(city: str) -> str:
        """The weather in a city."""
        return here.weather(city)

    client = OpenAIChatCompletionClient(
        model="root",
        base_url=here.base_url,
        api_key="any",
        model_info=ABOUT,
        default_headers=here.headers or None,
        max_retries=RETRIES,
    )
    agent = AssistantAgent(
        "guide",
        model_client=client,
        tools=[get_weather],
        system_message=None,
        model_client_stream=here.streamed,
        max_tool_iterations=5,
    )
    for said in SAID:
        result = await agent.run(task=said)
        here.answers.append(result.messages[-1].content)


main(talk)
