"""What all drivers in Python share. They run in foreign environments, so this leans on nothing."""

import json
import sys
from collections.abc import Callable

TRIP = {"X-Conversation-Id": "trip"}
"""The conversation that every scenario is about."""


def forecast(city: str) -> str:
    """What the client's own tool answers."""
    return f"rain in {city}"


def main(*scenarios: Callable[[str], dict[str, object]]) -> None:
    """Run the scenario that the command line names, and print what the client saw as one line."""
    base_url, wanted = sys.argv[1:3]
    (scenario,) = (each for each in scenarios if each.__name__ == wanted)
    sys.stdout.write(json.dumps(scenario(base_url)) + "\n")
