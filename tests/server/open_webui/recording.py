"""What Open WebUI sent while a person used it in a browser, and what that person saw: a file for each scene.

`record.py` makes the files, with an Open WebUI that was installed by hand. Tests play them (`replay.py`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from holdfast.core.codec import Value
from holdfast.testing import Script, says

FOLDER = Path(__file__).parent / "recordings"


class RecordedRequest(Value):
    """A request as it reached the server, and what the model answered to it."""

    model: str
    messages: list[dict[str, Any]]
    answer: str
    calls: tuple[tuple[str, str, str], ...] = ()
    """The calls in the answer: name, arguments, id."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    stream: bool = False
    tools: tuple[str, ...] = ()
    """The names of the program's own tools."""
    is_stopped: bool = False
    """The person stopped the answer: it is what had come by then."""

    @property
    def script(self) -> Script:
        """The model's answer."""
        words = [f"{each} " for each in self.answer.split(" ")] if self.answer else []
        if words:
            words[-1] = words[-1][:-1]
        return says(*words, calls=self.calls)


class RecordedMessage(Value):
    """A message of the program's own tree."""

    id: str
    parent: str | None
    role: str
    text: str


class RecordedStep(Value):
    """Something that the person did, and what it led to."""

    name: str
    requests: list[list[RecordedRequest]]
    """Requests that ran side by side are together."""
    seen: list[RecordedMessage]
    """The branch that the person saw after it."""


class Recording(Value):
    """A scene: one chat, from its beginning."""

    program: str
    scene: str
    steps: list[RecordedStep]
    tree: list[RecordedMessage]
    """All messages of the chat at the end."""

    @property
    def requests(self) -> list[RecordedRequest]:
        return [each for step in self.steps for group in step.requests for each in group]

    @property
    def branches(self) -> list[list[RecordedMessage]]:
        """The branches of the tree that end with an answer, each from its beginning."""
        by_id = {each.id: each for each in self.tree}

        def branch(last: RecordedMessage) -> list[RecordedMessage]:
            return [*(branch(by_id[last.parent]) if last.parent else ()), last]

        parents = {each.parent for each in self.tree}
        leaves = [each for each in self.tree if each.id not in parents and each.role != "user"]
        return [branch(each) for each in leaves]


def load(scene: str) -> Recording:
    return msgspec.json.decode((FOLDER / f"{scene}.json").read_bytes(), type=Recording)


def save(recording: Recording) -> None:
    """Write a recording, without the program's own instructions to models: only their places matter."""
    data = msgspec.json.decode(msgspec.json.encode(recording))
    for step in data["steps"]:
        for request in (each for group in step["requests"] for each in group):
            for message in request["messages"]:
                if isinstance(message.get("content"), str):
                    message["content"] = _without_instructions(message["content"])
    (FOLDER / f"{recording.scene}.json").write_text(f"{_written(data)}\n", encoding="utf-8")


def _written(value: Any, indent: int = 0) -> str:
    """JSON with a line for each message, and for all else that holds no objects."""
    if not _holds_objects(value):
        return msgspec.json.encode(value).decode()
    inner, outer = " " * (indent + 1), " " * indent
    if isinstance(value, list):
        lines = [inner + _written(each, indent + 1) for each in value]
        return "[\n" + ",\n".join(lines) + f"\n{outer}]"
    lines = [f'{inner}"{name}": {_written(each, indent + 1)}' for name, each in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{outer}}}"


def _holds_objects(value: Any) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(each, dict) or _holds_objects(each) for each in inside)


_INSTRUCTIONS = re.compile(r"\A### Task:.*?(?=### Chat History|<context>)", re.DOTALL)
_TASKS = ("title", "tags", "follow_ups", "queries")


def _without_instructions(text: str) -> str:
    found = _INSTRUCTIONS.match(text)
    if found is None:
        return text
    task = next((each for each in _TASKS if f'"{each}"' in found[0]), "answer")
    return f"### Task: {task}\n{text[found.end() :]}"


SCENES = tuple(sorted(each.stem for each in FOLDER.glob("*.json")))
