"""Strands Agents."""

from rounds import RETRIES, SAID, main
from strands import Agent, tool
from strands.models.openai import OpenAIModel


async def talk(here):
    @tool
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: Its name.
        """
        return here.weather(city)

    args = {
        "base_url": here.base_url,
        "api_key": "any",
        "default_headers": here.headers or None,
        "max_retries": RETRIES,
    }
    model = OpenAIModel(client_args=args, model_id="root", params={}, stream=here.streamed)
    agent = Agent(model=model, tools=[get_weather], callback_handler=None)
    for said in SAID:
        if here.streamed:
            async for each in agent.stream_async(said):
                result = each.get("result")
        else:
            result = await agent.invoke_async(said)
        here.answers.append(str(result).strip())


main(talk)
