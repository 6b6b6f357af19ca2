"""Reads a Dockerfile, as far as ours goes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import NamedTuple


class Step(NamedTuple):
    """One instruction."""

    word: str
    rest: str

    @property
    def exec_form(self) -> list[str] | None:
        """Its arguments as JSON; None if it would be a shell's line."""
        start = self.rest.find("[")
        if start < 0:
            return None
        found = json.loads(self.rest[start:])
        assert isinstance(found, list)
        return [str(each) for each in found]


class Stage(NamedTuple):
    """From one FROM to the next."""

    image: str
    name: str
    steps: tuple[Step, ...]

    def all(self, word: str) -> list[Step]:
        return [each for each in self.steps if each.word == word]

    def last(self, word: str) -> Step:
        return self.all(word)[-1]

    @property
    def environment(self) -> dict[str, str]:
        pairs = (each for step in self.all("ENV") for each in shlex.split(step.rest))
        return {name: value for name, _, value in (each.partition("=") for each in pairs)}


def read_stages(text: str) -> list[Stage]:
    """The stages of a Dockerfile. ARGs before the first one are put in."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for step in _steps(text):
        if step.word == "FROM":
            words = step.rest.split()
            for name, value in arguments.items():
                words[0] = words[0].replace(f"${{{name}}}", value)
            stages.append(Stage(words[0], words[2] if len(words) == 3 else "", ()))
        elif stages:
            stages[-1] = stages[-1]._replace(steps=(*stages[-1].steps, step))
        else:
            assert step.word == "ARG", "nothing else comes before a FROM"
            name, _, value = step.rest.partition("=")
            arguments[name] = value
    return stages


def _steps(text: str) -> Iterator[Step]:
    line = ""
    for part in text.splitlines():
        if part.lstrip().startswith("#") or (not part.strip() and not line):
            continue
        line += part.strip()
        if line.endswith("\\"):
            line = line[:-1]
            continue
        word, _, rest = line.partition(" ")
        yield Step(word, rest.strip())
        line = ""
