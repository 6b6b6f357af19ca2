"""LangChain's model for OpenAI, and its messages."""

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import APIError
from telling import TRIP, forecast, main
from weather import Weather


def model(base_url):
    return ChatOpenAI(
        model="root", base_url=base_url, api_key="any", default_headers=TRIP, stream_usage=True
    )


def conversation(base_url):
    here = model(base_url)
    said = ("My name is Ada.", "What is my name?")
    return {"answers": [here.invoke(text).text for text in said]}


def resending(base_url):
    here, history, answers = model(base_url), [SystemMessage("Be kind.")], []
    for text in ("one", "two", "three"):
        history.append(HumanMessage(text))
        answer = here.invoke(history)
        history.append(answer)
        answers.append(answer.text)
    return {"answers": answers}


def joined(chunks):
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


def stream(base_url):
    chunks = list(model(base_url).stream("one"))
    whole = joined(chunks)
    return {
        "answers": [whole.text],
        "pieces": [each.text for each in chunks],
        "finish": whole.response_metadata["finish_reason"],
        "usage": [whole.usage_metadata["input_tokens"], whole.usage_metadata["output_tokens"]],
    }


def exchange(ask, messages):
    """Ask until there is an answer, running what is called; returns the calls. Adds to the messages."""
    ran = []
    while True:
        answer = ask(messages)
        messages.append(answer)
        for call in answer.tool_calls:
            ran.append(call["args"])
            messages.append(ToolMessage(forecast(**call["args"]), tool_call_id=call["id"]))
        if not answer.tool_calls:
            return ran


def streaming(here):
    """Asks for a stream, and puts its pieces together."""
    return lambda said: joined(list(here.stream(said)))


def talk(ask, text):
    """Ask this, and about tomorrow, with everything that was said before."""
    messages, answers, ran = [], [], []
    for each in (text, "And tomorrow?"):
        messages.append(HumanMessage(each))
        ran += exchange(ask, messages)
        answers.append(messages[-1].text)
    return {"answers": answers, "ran": ran}


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return forecast(city)


def tools(base_url):
    """The whole exchange is sent back, as LangChain's agents do; after it, only what is new."""
    here = model(base_url).bind_tools([get_weather])
    messages = [HumanMessage("Weather in Oslo?")]
    ran = exchange(here.invoke, messages)
    return {"answers": [messages[-1].text, here.invoke("And tomorrow?").text], "ran": ran}


def tools_streamed(base_url):
    here = model(base_url).bind_tools([get_weather])
    return talk(streaming(here), "Weather in Oslo and Rome?")


def chained(base_url):
    """Over Responses; LangChain takes the last response out of the messages that it is given."""
    here = ChatOpenAI(
        model="root",
        base_url=base_url,
        api_key="any",
        use_responses_api=True,
        use_previous_response_id=True,
    ).bind_tools([get_weather])
    return talk(streaming(here), "Weather in Oslo?")


def responses(base_url):
    """Over Responses, with everything that was said told again."""
    here = ChatOpenAI(
        model="root", base_url=base_url, api_key="any", use_responses_api=True
    ).bind_tools([get_weather])
    return talk(here.invoke, "Weather in Oslo?")


def typed(base_url):
    here = model(base_url).with_structured_output(Weather, method="json_schema")
    return {"typed": here.invoke("Weather in Oslo?").model_dump()}


def broken_stream(base_url):
    here, answers, failures = model(base_url), [], []
    for text in ("one", "two", "two"):
        said = ""
        try:
            for chunk in here.stream(text):
                said += chunk.text
        except APIError as error:
            failures.append({"code": error.code, "before": said})
        else:
            answers.append(said)
    return {"answers": answers, "failures": failures}


def keyed(base_url):
    here, key = model(base_url), {"Idempotency-Key": "order-7"}
    return {"answers": [here.invoke("one", extra_headers=key).text for _ in range(2)]}


main(globals())
