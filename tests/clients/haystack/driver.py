"""Haystack: an agent component, whose messages are told again by the program around it."""

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret
from rounds import RETRIES, SAID, main

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def talk(here):
    weather = Tool(
        name="get_weather",
        description="The weather in a city.",
        parameters=SCHEMA,
        function=lambda city: here.weather(city),
    )
    kind = OpenAIResponsesChatGenerator if here.responses else OpenAIChatGenerator
    pieces = []
    generator = kind(
        model="root",
        api_base_url=here.base_url,
        api_key=Secret.from_token("any"),
        streaming_callback=pieces.append if here.streamed else None,
        generation_kwargs={"extra_headers": here.headers},
        max_retries=RETRIES,
    )
    agent = Agent(chat_generator=generator, tools=[weather])
    messages = []
    for said in SAID:
        messages = agent.run(messages=[*messages, ChatMessage.from_user(said)])["messages"]
        here.answers.append(messages[-1].text)
    assert bool(pieces) == here.streamed


main(talk)
