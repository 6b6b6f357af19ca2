"""DSPy: a program of predictions, each of which is a request of its own with all that is known so far."""

import dspy
from rounds import RETRIES, SAID, main


class Advise(dspy.Signature):
    """Say what the weather is like. Use the tools first."""

    question: str = dspy.InputField()
    notes: str = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    answer: str = dspy.OutputField()
    calls: dspy.ToolCalls = dspy.OutputField()


class Model(dspy.LM):
    """It knows from a list of models which of them call functions, and ours is in no list."""

    supports_function_calling = True


def talk(here):
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return here.weather(city)

    lm = Model(
        "openai/root",
        api_base=here.base_url,
        api_key="any",
        cache=False,
        num_retries=RETRIES,
        extra_headers=here.headers or None,
    )
    dspy.configure(lm=lm, adapter=dspy.ChatAdapter(use_native_function_calling=True))
    tools = [dspy.Tool(get_weather)]
    predict = dspy.Predict(Advise)
    if here.streamed:
        predict = dspy.streamify(predict, async_streaming=False)
    notes = ""
    for said in SAID:
        while True:
            found = predict(question=said, notes=notes, tools=tools)
            if here.streamed:
                found = [each for each in found if isinstance(each, dspy.Prediction)][-1]
            calls = found.calls.tool_calls if found.calls else []
            if not calls:
                break
            notes += "".join(f"{get_weather(**each.args)}\n" for each in calls)
        here.answers.append(found.answer)


main(talk)
