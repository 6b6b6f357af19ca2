"""What the drivers of frameworks share: a talk in which a framework runs its own tool in several rounds."""

import asyncio
import inspect
import json
import sys

from telling import TRIP, forecast

SAID = ("Weather in Oslo, Rome and Paris?", "And tomorrow?")
"""What the user says: the model answers the first with two calls at once and then a third, and the second at once."""


RETRIES = 6
"""How often a request is sent again if its connection is lost: enough for the time in which a server starts."""


class Talk:
    """How a talk is to be held, and what the framework saw of it."""

    def __init__(self, base_url, how):
        self.base_url = base_url
        api, pace, naming = how.split("-")
        self.responses = api == "responses"
        self.streamed = pace == "streamed"
        self.headers = dict(TRIP) if naming == "named" else {}
        self.ran = []
        self.answers = []

    def weather(self, city):
        """The framework's tool."""
        self.ran.append(city)
        return forecast(city)


def main(talk):
    """Hold the talk that the command line asks for, and print what the framework saw as one line."""
    here = Talk(*sys.argv[1:3])
    held = talk(here)
    if inspect.isawaitable(held):
        asyncio.run(_wait(held))
    sys.stdout.write("\n" + json.dumps({"answers": here.answers, "ran": here.ran}) + "\n")


async def _wait(held):
    await held
