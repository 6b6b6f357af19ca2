"""The OpenAI SDK for Python, any major version: the calls are the same."""

import json

import openai
from pydantic import BaseModel
from telling import TRIP, forecast, main

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class Weather(BaseModel):
    city: str
    degrees: int


def client(base_url, **options):
    return openai.OpenAI(base_url=base_url, api_key="any", default_headers=TRIP, **options)


def user(text):
    return {"role": "user", "content": text}


def conversation(base_url):
    chat = client(base_url).chat.completions
    said = ("My name is Ada.", "What is my name?")
    answers = [chat.create(model="root", messages=[user(text)]) for text in said]
    return {"answers": [each.choices[0].message.content for each in answers]}


def resending(base_url):
    chat = client(base_url).chat.completions
    history, answers = [{"role": "developer", "content": "Be kind."}], []
    for text in ("one", "two", "three"):
        history.append(user(text))
        answer = chat.create(model="root", messages=history).choices[0].message
        history.append(answer)
        answers.append(answer.content)
    return {"answers": answers}


def stream(base_url):
    """By the helper, which follows the chunks and complains of any that do not fit."""
    with client(base_url).chat.completions.stream(
        model="root", messages=[user("one")], stream_options={"include_usage": True}
    ) as events:
        pieces = [event.delta for event in events if event.type == "content.delta"]
        answer = events.get_final_completion()
    return {
        "answers": [answer.choices[0].message.content],
        "pieces": pieces,
        "finish": answer.choices[0].finish_reason,
        "usage": [answer.usage.prompt_tokens, answer.usage.completion_tokens],
    }


def tools(base_url):
    """Only what is new is sent: the result alone, without the call that it answers."""
    chat = client(base_url).chat.completions
    ran, answers = [], []
    new = [user("Weather in Oslo?")]
    while True:
        choice = chat.create(model="root", messages=new, tools=[WEATHER]).choices[0]
        if choice.finish_reason != "tool_calls":
            break
        new = []
        for call in choice.message.tool_calls:
            arguments = json.loads(call.function.arguments)
            ran.append(arguments)
            new.append({"role": "tool", "tool_call_id": call.id, "content": forecast(**arguments)})
    answers.append(choice.message.content)
    after = chat.create(model="root", messages=[user("And tomorrow?")], tools=[WEATHER])
    answers.append(after.choices[0].message.content)
    return {"answers": answers, "ran": ran}


def tools_streamed(base_url):
    """By the helper; its own messages are sent back, with all that it adds to them."""
    chat = client(base_url).chat.completions
    ran, answers, messages = [], [], []
    for text in ("Weather in Oslo and Rome?", "And tomorrow?"):
        messages.append(user(text))
        while True:
            with chat.stream(model="root", messages=messages, tools=[WEATHER]) as events:
                message = events.get_final_completion().choices[0].message
            messages.append(message)
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                arguments = call.function.parsed_arguments
                ran.append(arguments)
                result = {"role": "tool", "tool_call_id": call.id, "content": forecast(**arguments)}
                messages.append(result)
        answers.append(message.content)
    return {"answers": answers, "ran": ran}


def responses(base_url):
    """Over Responses by the stream helper, in a conversation that is made for it."""
    here = openai.OpenAI(base_url=base_url, api_key="any")
    conversation = here.conversations.create().id
    tool = {"type": "function", **WEATHER["function"]}
    ran, answers = [], []
    for text in ("Weather in Oslo?", "And tomorrow?"):
        new = [user(text)]
        while new:
            with here.responses.stream(
                model="root", input=new, tools=[tool], conversation=conversation
            ) as events:
                answer = events.get_final_response()
            calls = [each for each in answer.output if each.type == "function_call"]
            ran += [json.loads(each.arguments) for each in calls]
            new = [
                {
                    "type": "function_call_output",
                    "call_id": each.call_id,
                    "output": forecast(**json.loads(each.arguments)),
                }
                for each in calls
            ]
        answers.append(answer.output_text)
    return {"answers": answers, "ran": ran}


def typed(base_url):
    answer = client(base_url).chat.completions.parse(
        model="root", messages=[user("Weather in Oslo?")], response_format=Weather
    )
    return {"typed": answer.choices[0].message.parsed.model_dump()}


def retry(base_url):
    """The SDK's own: nobody here notices that something failed."""
    chat = client(base_url).chat.completions
    answers = [chat.create(model="root", messages=[user(text)]) for text in ("one", "two")]
    return {"answers": [each.choices[0].message.content for each in answers]}


def broken_stream(base_url):
    chat = client(base_url).chat.completions
    answers, failures = [], []
    for text in ("one", "two", "two"):
        said = ""
        try:
            for chunk in chat.create(model="root", messages=[user(text)], stream=True):
                said += chunk.choices[0].delta.content or "" if chunk.choices else ""
        except openai.APIError as error:
            failures.append({"code": error.code, "before": said})
        else:
            answers.append(said)
    return {"answers": answers, "failures": failures}


def keyed(base_url):
    chat = client(base_url).chat.completions
    answers = [
        chat.create(
            model="root", messages=[user("one")], extra_headers={"Idempotency-Key": "order-7"}
        )
        for _ in range(2)
    ]
    return {"answers": [each.choices[0].message.content for each in answers]}


def models(base_url):
    here = client(base_url).models
    try:
        here.retrieve("nobody")
    except openai.NotFoundError as error:
        missing = error.code
    return {
        "listed": [each.id for each in here.list()],
        "found": here.retrieve("root").id,
        "missing": missing,
    }


main(
    conversation,
    resending,
    stream,
    tools,
    tools_streamed,
    responses,
    typed,
    retry,
    broken_stream,
    keyed,
    models,
)
