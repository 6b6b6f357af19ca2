"""What all drivers in Python share. They run in foreign environments, so this leans on nothing."""

import json
import sys
from collections.abc import Callable, Mapping

TRIP = {"X-Conversation-Id": "trip"}
"""The conversation that every scenario is about."""

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
"""The client's own tool, as chat completions take it."""


def forecast(city: str) -> str:
    """What the client's own tool answers."""
    return f"rain in {city}"


def main(scenarios: Mapping[str, Callable[[str], dict[str, object]]]) -> None:
    """Run the scenario that the command line names, and print what the client saw as one line."""
    base_url, wanted = sys.argv[1:3]
    sys.stdout.write(json.dumps(scenarios[wanted](base_url)) + "\n")
