"""Agno: agents that keep their history in a database of their own, and send all of it again."""

from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai import OpenAIResponses
from agno.models.openai.like import OpenAILike
from rounds import RETRIES, SAID, main


def talk(here):
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return here.weather(city)

    kind = OpenAIResponses if here.responses else OpenAILike
    model = kind(
        id="root",
        base_url=here.base_url,
        api_key="any",
        default_headers=here.headers or None,
        max_retries=RETRIES,
    )
    agent = Agent(
        model=model,
        tools=[get_weather],
        db=InMemoryDb(),
        session_id="talk",
        add_history_to_context=True,
        telemetry=False,
    )
    for said in SAID:
        if here.streamed:
            pieces = [
                each.content
                for each in agent.run(said, stream=True, stream_events=True)
                if each.event == "RunContent" and each.content
            ]
            here.answers.append("".join(pieces).removeprefix("Let me look."))
        else:
            content = agent.run(said).content
            here.answers.append(content.removeprefix("Let me look.").strip())


main(talk)
