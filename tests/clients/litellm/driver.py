"""LiteLLM as a client of an OpenAI-compatible server."""

import json

import litellm
import openai
from telling import TRIP, WEATHER, forecast, main
from weather import Weather

litellm.suppress_debug_info = True  # else it prints to stdout


def complete(base_url, *messages, headers=None, **options):
    said = [
        {"role": "user", "content": each} if isinstance(each, str) else each for each in messages
    ]
    return litellm.completion(
        model="openai/root",
        base_url=base_url,
        api_key="any",
        messages=said,
        extra_headers={**TRIP, **(headers or {})},
        **options,
    )


def text(answer):
    return answer.choices[0].message.content


def conversation(base_url):
    said = ("My name is Ada.", "What is my name?")
    return {"answers": [text(complete(base_url, each)) for each in said]}


def resending(base_url):
    history, answers = [{"role": "system", "content": "Be kind."}], []
    for said in ("one", "two", "three"):
        history.append(said)
        answer = complete(base_url, *history)
        history.append(answer.choices[0].message.model_dump())
        answers.append(text(answer))
    return {"answers": answers}


def stream(base_url):
    chunks = list(complete(base_url, "one", stream=True, stream_options={"include_usage": True}))
    whole = litellm.stream_chunk_builder(chunks)
    return {
        "answers": [text(whole)],
        "pieces": [each.choices[0].delta.content for each in chunks if each.choices],
        "finish": whole.choices[0].finish_reason,
        "usage": [whole.usage.prompt_tokens, whole.usage.completion_tokens],
    }


def exchange(ask, messages):
    """Ask until there is an answer, running what is called; returns the calls. Adds to the messages."""
    ran = []
    while True:
        message = ask(messages).choices[0].message
        messages.append(message.model_dump())
        for call in message.tool_calls or []:
            arguments = json.loads(call.function.arguments)
            ran.append(arguments)
            result = {"role": "tool", "tool_call_id": call.id, "content": forecast(**arguments)}
            messages.append(result)
        if not message.tool_calls:
            return ran


def tools(base_url):
    messages = ["Weather in Oslo?"]
    ran = exchange(lambda said: complete(base_url, *said, tools=[WEATHER]), messages)
    after = complete(base_url, "And tomorrow?", tools=[WEATHER])
    return {"answers": [messages[-1]["content"], text(after)], "ran": ran}


def tools_streamed(base_url):
    def ask(said):
        chunks = list(complete(base_url, *said, tools=[WEATHER], stream=True))
        return litellm.stream_chunk_builder(chunks)

    messages, answers, ran = [], [], []
    for said in ("Weather in Oslo and Rome?", "And tomorrow?"):
        messages.append(said)
        ran += exchange(ask, messages)
        answers.append(messages[-1]["content"])
    return {"answers": answers, "ran": ran}


def chained(base_url):
    """Over Responses, each going on from the one before."""
    tool = {"type": "function", **WEATHER["function"]}
    ran, answers, previous = [], [], None
    for said in ("Weather in Oslo?", "And tomorrow?"):
        new = [{"role": "user", "content": said}]
        while new:
            answer = litellm.responses(
                model="openai/root",
                input=new,
                tools=[tool],
                previous_response_id=previous,
                api_base=base_url,
                api_key="any",
            )
            previous = answer.id
            calls = [each for each in answer.output if each.type == "function_call"]
            new = []
            for call in calls:
                arguments = json.loads(call.arguments)
                ran.append(arguments)
                new.append(
                    {
                        "type": "function_call_output",
                        "call_id": call.call_id,
                        "output": forecast(**arguments),
                    }
                )
        (message,) = [each for each in answer.output if each.type == "message"]
        answers.append(message.content[0].text)
    return {"answers": answers, "ran": ran}


def typed(base_url):
    answer = complete(base_url, "Weather in Oslo?", response_format=Weather)
    return {"typed": Weather.model_validate_json(text(answer)).model_dump()}


def broken_stream(base_url):
    answers, failures = [], []
    for each in ("one", "two", "two"):
        said = ""
        try:
            for chunk in complete(base_url, each, stream=True):
                said += chunk.choices[0].delta.content or ""
        except openai.APIError as error:  # whatever LiteLLM raises is one of these
            failures.append({"code": error.code, "before": said})
        else:
            answers.append(said)
    return {"answers": answers, "failures": failures}


def keyed(base_url):
    key = {"Idempotency-Key": "order-7"}
    return {"answers": [text(complete(base_url, "one", headers=key)) for _ in range(2)]}


main(globals())
