"""smolagents: an agent that tells its calls and their results in words of its own, and answers by a call."""

from rounds import RETRIES, SAID, main
from smolagents import OpenAIModel, ToolCallingAgent, tool


def talk(here):
    @tool
    def get_weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: The name of the city.
        """
        return here.weather(city)

    model = OpenAIModel(
        model_id="root",
        api_base=here.base_url,
        api_key="any",
        client_kwargs={"default_headers": here.headers or None, "max_retries": RETRIES},
    )
    agent = ToolCallingAgent(
        tools=[get_weather], model=model, stream_outputs=here.streamed, verbosity_level=0
    )
    for n, said in enumerate(SAID):
        here.answers.append(agent.run(said, reset=n == 0))


main(talk)
