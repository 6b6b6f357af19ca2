"""Microsoft's Agent Framework: agents with sessions, which send everything again, or go on from the last response."""

from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient
from openai import AsyncOpenAI
from rounds import RETRIES, SAID, main


async def talk(here):
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return here.weather(city)

    kind = OpenAIChatClient if here.responses else OpenAIChatCompletionClient
    sdk = AsyncOpenAI(
        base_url=here.base_url,
        api_key="any",
        default_headers=here.headers or None,
        max_retries=RETRIES,
    )
    client = kind(model="root", async_client=sdk)
    agent = Agent(client=client, tools=[get_weather])
    session = agent.create_session()
    for said in SAID:
        if here.streamed:
            stream = agent.run(said, session=session, stream=True)
            async for _ in stream:
                pass
            text = (
                await stream.get_final_response()
            ).text  # an update may replace the ones before it
        else:
            text = (await agent.run(said, session=session)).text
        here.answers.append(text.removeprefix("Let me look.").strip())


main(talk)
