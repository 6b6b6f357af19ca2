"""Pydantic AI with its model for chat completions."""

import asyncio

from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from telling import TRIP, forecast, main
from weather import Weather


def agent(base_url, headers=TRIP, **options):
    model = OpenAIChatModel("root", provider=OpenAIProvider(base_url=base_url, api_key="any"))
    return Agent(model, model_settings={"extra_headers": headers}, **options)


def ask(here, *said):
    async def each():
        return [(await here.run(text)).output for text in said]

    return asyncio.run(each())


def conversation(base_url):
    return {"answers": ask(agent(base_url), "My name is Ada.", "What is my name?")}


def resending(base_url):
    async def talk():
        here, history, answers = agent(base_url, instructions="Be kind."), [], []
        for text in ("one", "two", "three"):
            result = await here.run(text, message_history=history)
            history = result.all_messages()
            answers.append(result.output)
        return answers

    return {"answers": asyncio.run(talk())}


def stream(base_url):
    async def talk():
        async with agent(base_url).run_stream("one") as result:
            pieces = [each async for each in result.stream_text(delta=True, debounce_by=None)]
            return pieces, result.usage, result.response.finish_reason

    pieces, usage, finish = asyncio.run(talk())
    return {
        "answers": ["".join(pieces)],
        "pieces": pieces,
        "finish": finish,
        "usage": [usage.input_tokens, usage.output_tokens],
    }


def weather_tool(ran):
    async def get_weather(city: str) -> str:
        """The weather in a city."""
        ran.append({"city": city})
        return forecast(city)

    return get_weather


def tools(base_url):
    ran = []
    here = agent(base_url, tools=[weather_tool(ran)])
    return {"answers": ask(here, "Weather in Oslo?", "And tomorrow?"), "ran": ran}


def talk(here, text):
    """Ask this, and about tomorrow; the history is handed on. A run with somebody who listens asks for streams."""

    async def listen(context, events):
        async for _ in events:
            pass

    async def both():
        history, answers = [], []
        for each in (text, "And tomorrow?"):
            result = await here.run(each, message_history=history, event_stream_handler=listen)
            history = result.all_messages()
            answers.append(result.output)
        return answers

    return asyncio.run(both())


def tools_streamed(base_url):
    ran = []
    here = agent(base_url, tools=[weather_tool(ran)])
    return {"answers": talk(here, "Weather in Oslo and Rome?"), "ran": ran}


def responses(base_url, **settings):
    ran, provider = [], OpenAIProvider(base_url=base_url, api_key="any")
    model = OpenAIResponsesModel("root", provider=provider)
    here = Agent(model, tools=[weather_tool(ran)], model_settings=settings)
    return {"answers": talk(here, "Weather in Oslo?"), "ran": ran}


def chained(base_url):
    return responses(base_url, openai_previous_response_id="auto")


def typed(base_url):
    (found,) = ask(agent(base_url, output_type=NativeOutput(Weather)), "Weather in Oslo?")
    return {"typed": found.model_dump()}


def broken_stream(base_url):
    async def talk():
        here, answers, failures = agent(base_url), [], []
        for text in ("one", "two", "two"):
            said = ""
            try:
                async with here.run_stream(text) as result:
                    async for piece in result.stream_text(delta=True, debounce_by=None):
                        said += piece
            except AgentRunError as error:
                failures.append({"code": str(error), "before": said})
            else:
                answers.append(said)
        return {"answers": answers, "failures": failures}

    return asyncio.run(talk())


def keyed(base_url):
    here = agent(base_url, headers={**TRIP, "Idempotency-Key": "order-7"})
    return {"answers": ask(here, "one", "one")}


main(globals())
