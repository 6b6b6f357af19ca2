"""The OpenAI SDK for Python, any major version: the calls are the same."""

import asyncio
import inspect
import json

import openai
from telling import TRIP, WEATHER, forecast, main
from weather import Weather


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
            new = [result(each) for each in calls]
        answers.append(answer.output_text)
    return {"answers": answers, "ran": ran}


def chained(base_url):
    """Over Responses, each going on from the one before; what each is to be is said by a type."""
    here = openai.OpenAI(base_url=base_url, api_key="any")
    tool = {"type": "function", **WEATHER["function"]}
    ran, answers, previous = [], [], None
    for text in ("Weather in Oslo?", "And tomorrow?"):
        new = [user(text)]
        while new:
            answer = here.responses.create(
                model="root",
                input=new,
                tools=[tool],
                **({"previous_response_id": previous} if previous else {}),
            )
            previous = answer.id
            calls = [each for each in answer.output if each.type == "function_call"]
            ran += [json.loads(each.arguments) for each in calls]
            new = [result(each) for each in calls]
        answers.append(answer.output_text)
    return {"answers": answers, "ran": ran}


def result(call):
    text = forecast(**json.loads(call.arguments))
    return {"type": "function_call_output", "call_id": call.call_id, "output": text}


def socket(base_url):
    """The same over one WebSocket, and nothing of it is stored."""
    here = openai.OpenAI(base_url=base_url, api_key="any")
    tool = {"type": "function", **WEATHER["function"]}
    ran, answers, previous = [], [], None
    with here.responses.connect() as connection:
        for text in ("Weather in Oslo?", "And tomorrow?"):
            new = [user(text)]
            while new:
                connection.response.create(
                    model="root",
                    input=new,
                    tools=[tool],
                    store=False,
                    **({"previous_response_id": previous} if previous else {}),
                )
                said = ""
                for event in connection:
                    if event.type == "response.output_text.delta":
                        said += event.delta
                    if event.type == "response.completed":
                        break
                    assert event.type != "error", event
                previous = event.response.id
                calls = [each for each in event.response.output if each.type == "function_call"]
                ran += [json.loads(each.arguments) for each in calls]
                new = [result(each) for each in calls]
            answers.append(said)
    return {"answers": answers, "ran": ran}


async def done(value):
    """What a call of either client has come to."""
    return await value if inspect.isawaitable(value) else value


async def all_of(found):
    """Everything that is told one by one: a stream's events, or a list, page by page."""
    found = await done(found)
    return [each async for each in found] if hasattr(found, "__aiter__") else list(found)


async def helped(manager):
    """The answer of the stream helper."""
    if hasattr(manager, "__aenter__"):
        async with manager as stream:
            return await stream.get_final_response()
    with manager as stream:
        return stream.get_final_response()


async def refused(call):
    """The status and the code of what is refused."""
    try:
        await done(call())
    except openai.APIStatusError as error:
        return [error.status_code, error.code]


async def every_method(here):
    """Everything that there is under `responses` and `conversations`, once."""
    responses, conversations = here.responses, here.conversations
    made = await done(
        conversations.create(metadata={"topic": "a"}, items=[user("one"), user("two")])
    )
    updated = await done(conversations.update(made.id, metadata={"topic": "b"}))
    added = await done(conversations.items.create(made.id, items=[user("three")]))
    listed = await all_of(conversations.items.list(made.id, limit=2, order="asc"))
    item = await done(conversations.items.retrieve(listed[0].id, conversation_id=made.id))
    await done(conversations.items.delete(listed[1].id, conversation_id=made.id))
    left = await all_of(conversations.items.list(made.id))

    first = await done(responses.create(model="root", input="four", conversation=made.id))
    stream = await all_of(responses.create(model="root", input="five", stream=True))
    helper = await helped(responses.stream(model="root", input="six"))
    found = await done(responses.retrieve(first.id))
    again = await all_of(responses.retrieve(stream[-1].response.id, stream=True))
    rest = await all_of(
        responses.retrieve(
            stream[-1].response.id, stream=True, starting_after=again[-3].sequence_number
        )
    )
    brought = await all_of(responses.input_items.list(first.id))
    later = await done(responses.create(model="root", input="seven", background=True))
    later = await done(
        responses.retrieve(
            (await all_of(responses.retrieve(later.id, stream=True)))[-1].response.id
        )
    )
    stopped = await done(responses.cancel(later.id))
    await done(responses.delete(helper.id))

    facts = {
        "made": [made.object, made.metadata, updated.metadata],
        "added": [each.content[0].text for each in added.data],
        "listed": [each.content[0].text for each in listed],
        "item": item.content[0].text,
        "left": [each.content[0].text for each in left],
        "first": [first.status, first.output_text, first.conversation.id == made.id],
        "stream": [
            stream[0].type,
            stream[-1].type,
            "".join(each.delta for each in stream if each.type == "response.output_text.delta"),
        ],
        "helper": helper.output_text,
        "found": found == first,
        "again": [again[-1].response == stream[-1].response, len(rest)],
        "brought": [each.content[0].text for each in brought],
        "later": [later.status, later.output_text, stopped.status],
        "deleted": await refused(lambda: responses.retrieve(helper.id)),
        "sync_cancel": await refused(lambda: responses.cancel(first.id)),
        "lost": await refused(
            lambda: responses.create(model="root", input="x", previous_response_id="resp_none")
        ),
    }
    if hasattr(responses, "input_tokens"):
        count = await done(responses.input_tokens.count(model="root", input="How many?"))
        compact = await done(responses.compact(model="root", previous_response_id=first.id))
        facts["count"] = [count.object, count.input_tokens > 0]
        facts["compact"] = [compact.object, [each.type for each in compact.output]]
    await done(conversations.delete(made.id))
    facts["gone"] = await refused(lambda: conversations.retrieve(made.id))
    return facts


def methods(base_url):
    async def both():
        async with openai.AsyncOpenAI(base_url=base_url, api_key="any") as client:
            return await every_method(client)

    blocking = openai.OpenAI(base_url=base_url, api_key="any")
    return {"sync": asyncio.run(every_method(blocking)), "async": asyncio.run(both())}


def parsed(base_url):
    """A typed answer over Responses."""
    here = openai.OpenAI(base_url=base_url, api_key="any")
    answer = here.responses.parse(model="root", input="Weather in Oslo?", text_format=Weather)
    return {"typed": answer.output_parsed.model_dump()}


def typed(base_url):
    answer = client(base_url).chat.completions.parse(
        model="root", messages=[user("Weather in Oslo?")], response_format=Weather
    )
    return {"typed": answer.choices[0].message.parsed.model_dump()}


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


main(globals())
