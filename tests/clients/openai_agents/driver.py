"""OpenAI's Agents SDK over chat completions. A run resends what it has collected itself."""

import asyncio
from pathlib import Path

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import APIError, AsyncOpenAI, DefaultAsyncHttpxClient
from telling import TRIP, forecast, main
from weather import Weather

set_tracing_disabled(True)


def agent(base_url, headers=TRIP, client=None, **options):
    model = OpenAIChatCompletionsModel(
        model="root", openai_client=client or AsyncOpenAI(base_url=base_url, api_key="any")
    )
    settings = ModelSettings(extra_headers=headers, include_usage=True)
    return Agent(name="Assistant", model=model, model_settings=settings, **options)


def ask(here, *said):
    async def each():
        return [(await Runner.run(here, text)).final_output for text in said]

    return asyncio.run(each())


def conversation(base_url):
    return {"answers": ask(agent(base_url), "My name is Ada.", "What is my name?")}


def resending(base_url):
    async def talk():
        here, history, answers = agent(base_url, instructions="Be kind."), [], []
        for text in ("one", "two", "three"):
            result = await Runner.run(here, [*history, {"role": "user", "content": text}])
            history = result.to_input_list()
            answers.append(result.final_output)
        return answers

    return {"answers": asyncio.run(talk())}


async def streamed(here, text):
    """The pieces of an answer, how the run ended, and what it used."""
    run, pieces = Runner.run_streamed(here, text), []
    try:
        async for event in run.stream_events():
            if event.type != "raw_response_event":
                continue
            if event.data.type == "response.output_text.delta":
                pieces.append(event.data.delta)
    except APIError as error:
        return pieces, error, None
    return pieces, None, run.context_wrapper.usage


def stream(base_url):
    pieces, error, usage = asyncio.run(streamed(agent(base_url), "one"))
    return {
        "answers": ["".join(pieces)],
        "pieces": pieces,
        "finish": "stop" if error is None else "error",
        "usage": [usage.input_tokens, usage.output_tokens],
    }


def weather_tool(ran):
    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        ran.append({"city": city})
        return forecast(city)

    return get_weather


def weather_agent(base_url, ran):
    return agent(base_url, tools=[weather_tool(ran)])


def tools(base_url):
    ran = []
    here = weather_agent(base_url, ran)
    return {"answers": ask(here, "Weather in Oslo?", "And tomorrow?"), "ran": ran}


def tools_streamed(base_url):
    async def talk(here):
        history, answers = [], []
        for text in ("Weather in Oslo and Rome?", "And tomorrow?"):
            run = Runner.run_streamed(here, [*history, {"role": "user", "content": text}])
            async for _ in run.stream_events():
                pass
            history = run.to_input_list()
            answers.append(run.final_output)
        return answers

    ran = []
    return {"answers": asyncio.run(talk(weather_agent(base_url, ran))), "ran": ran}


def responses(base_url):
    """Over Responses, with the SDK's own session, which keeps the items in a conversation."""
    ran, client = [], AsyncOpenAI(base_url=base_url, api_key="any")

    async def talk():
        model = OpenAIResponsesModel(model="root", openai_client=client)
        here = Agent(name="Assistant", model=model, tools=[weather_tool(ran)])
        session = OpenAIConversationsSession(openai_client=client)
        answers = []
        for text in ("Weather in Oslo?", "And tomorrow?"):
            run = Runner.run_streamed(here, text, session=session)
            async for _ in run.stream_events():
                pass
            answers.append(run.final_output)
        return answers

    return {"answers": asyncio.run(talk()), "ran": ran}


def chained(base_url):
    """Over Responses, each run going on from the last response of the one before."""
    ran, client = [], AsyncOpenAI(base_url=base_url, api_key="any")

    async def talk():
        model = OpenAIResponsesModel(model="root", openai_client=client)
        here, answers, previous = (
            Agent(name="Assistant", model=model, tools=[weather_tool(ran)]),
            [],
            None,
        )
        for text in ("Weather in Oslo?", "And tomorrow?"):
            result = await Runner.run(
                here, text, previous_response_id=previous, auto_previous_response_id=True
            )
            previous = result.last_response_id
            answers.append(result.final_output)
        return answers

    return {"answers": asyncio.run(talk()), "ran": ran}


def typed(base_url):
    (found,) = ask(agent(base_url, output_type=Weather), "Weather in Oslo?")
    return {"typed": found.model_dump()}


def broken_stream(base_url):
    async def talk():
        here, answers, failures = agent(base_url), [], []
        for text in ("one", "two", "two"):
            pieces, error, _ = await streamed(here, text)
            if error is None:
                answers.append("".join(pieces))
            else:
                failures.append({"code": error.code, "before": "".join(pieces)})
        return {"answers": answers, "failures": failures}

    return asyncio.run(talk())


def keyed(base_url):
    here = agent(base_url, headers={**TRIP, "Idempotency-Key": "order-7"})
    return {"answers": ask(here, "one", "one")}


def write_down(status):
    with Path("refused").open("a") as file:
        file.write(f"{status}\n")


def busy(base_url):
    """The runner's own retry, with the SDK's switched off. Each refusal leaves a line in a file."""

    async def note(response):
        if response.status_code != 200:
            write_down(response.status_code)

    client = AsyncOpenAI(
        base_url=base_url,
        api_key="any",
        max_retries=0,
        http_client=DefaultAsyncHttpxClient(event_hooks={"response": [note]}),
    )
    here = agent(base_url, headers={**TRIP, "X-On-Busy": "reject"}, client=client)
    return {"answers": ask(here, "two")}


main(globals())
