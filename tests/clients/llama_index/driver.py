"""LlamaIndex: a function agent with a memory of its own."""

from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from rounds import RETRIES, SAID, main


async def talk(here):
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return here.weather(city)

    options = {"model": "root", "api_base": here.base_url, "api_key": "any"}
    headers = {"default_headers": here.headers or None, "max_retries": RETRIES}
    if here.responses:
        llm = OpenAIResponses(**options, **headers, context_window=100_000, store=True)
    else:
        llm = OpenAILike(**options, **headers, is_chat_model=True, is_function_calling_model=True)
    agent = FunctionAgent(tools=[get_weather], llm=llm, streaming=here.streamed)
    memory = ChatMemoryBuffer.from_defaults(token_limit=100_000)
    for said in SAID:
        running = agent.run(said, memory=memory)
        pieces = [
            event.delta async for event in running.stream_events() if isinstance(event, AgentStream)
        ]
        assert len(pieces) > 1 or not here.streamed
        here.answers.append(str(await running))


main(talk)
