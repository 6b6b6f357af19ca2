"""Semantic Kernel: an agent that sends its chat history again, and one that goes on from the last response."""

from openai import AsyncOpenAI
from rounds import RETRIES, SAID, main
from semantic_kernel.agents import ChatCompletionAgent, OpenAIResponsesAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function


async def talk(here):
    class Weather:
        @kernel_function(name="get_weather", description="The weather in a city.")
        def get_weather(self, city: str) -> str:
            return here.weather(city)

    client = AsyncOpenAI(
        base_url=here.base_url,
        api_key="any",
        default_headers=here.headers or None,
        max_retries=RETRIES,
    )
    if here.responses:
        agent = OpenAIResponsesAgent(
            ai_model_id="root", client=client, name="Guide", plugins=[Weather()]
        )
    else:
        service = OpenAIChatCompletion(ai_model_id="root", async_client=client)
        agent = ChatCompletionAgent(service=service, name="Guide", plugins=[Weather()])
    thread = None
    for said in SAID:
        text = ""
        if here.streamed:
            async for each in agent.invoke_stream(messages=said, thread=thread):
                thread, text = each.thread, text + str(each.message)
        else:
            async for each in agent.invoke(messages=said, thread=thread):
                thread, text = each.thread, str(each.message)
        here.answers.append(text.removeprefix("Let me look.").strip())


main(talk)
