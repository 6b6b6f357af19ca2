"""The files of a new agent: an agent file, a tool in Python, and a test of the tool. Pure: texts in, texts out."""

from __future__ import annotations

import json
from collections.abc import Mapping

from holdfast.cli.setup.model_search import FoundModel

AGENT_FILE = """\
# {name}: an agent with a tool of its own.
#
#   holdfast chat {name}.yaml       talk to it
#   holdfast serve {name}.yaml      serve it over the OpenAI API
#
# All that can stand here: holdfast agents schema
agents:
  {name}:
    model: {model}
    description: Helps with questions about dates.
    instruction: |
      You are a helpful assistant.
      Use days_between for every question about how long it is from one day to another.
    toolsets:
      - type: python
        file: tools.py
"""

TOOLS = '''\
"""Tools in Python: each function with `@tool` is one. Its docstring tells the model what it is for."""

from datetime import date

from holdfast import tool


@tool(read_only=True)  # it changes nothing, so it needs no permission
def days_between(start: str, end: str) -> str:
    """Count the days from one date to another.

    Args:
        start: The first day, as YYYY-MM-DD.
        end: The last day, as YYYY-MM-DD.
    """
    days = (date.fromisoformat(end) - date.fromisoformat(start)).days
    return f"{days} days"
'''

TEST = '''\
"""Run it with pytest, or as it is: python test_tools.py"""

from tools import days_between


def test_days_between_knows_leap_years() -> None:
    assert days_between("2028-02-28", "2028-03-01") == "2 days"


if __name__ == "__main__":
    test_days_between_knows_leap_years()
    print("ok")
'''


def starter_files(name: str, model: FoundModel) -> Mapping[str, str]:
    """The texts of a new agent's files, by file name."""
    return {
        f"{name}.yaml": AGENT_FILE.format(name=name, model=_scalar(model.name)),
        "tools.py": TOOLS,
        "test_tools.py": TEST,
    }


def first_question(model: FoundModel) -> str:
    """What to say to a new agent, so that it uses its tool."""
    if model.provider == "demo":
        return 'call days_between with {"start": "2028-01-01", "end": "2028-03-01"}'
    return "How many days are there from 2028-01-01 to 2028-03-01?"


def _scalar(text: str) -> str:
    """Text as a YAML scalar: a name that a local server has chosen may hold anything."""
    plain = all(each.isalnum() or each in "/._-" for each in text) and text[:1].isalpha()
    return text if plain else json.dumps(text)
