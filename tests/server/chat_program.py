"""A chat program that owns its history, as a scripted client: a tree of messages, of which a person looks at a branch.

It sends what Open WebUI sends: the whole branch with every message, the same name for every request of a chat, and side
calls under that name that have a prompt of their own.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.testing import ScriptedModel
from tests.server.stubs import Answer, Serving, chat_body

PICTURE = "data:image/png;base64,"


class Node:
    """A message in the tree."""

    def __init__(
        self, role: str, text: str, parent: Node | None, *, picture: str | None = None
    ) -> None:
        self.role = role
        self.text = text
        self.parent = parent
        self.picture = picture
        """Four letters, which stand for it."""
        self.id = f"m{id(self):x}"

    def sent(self) -> dict[str, Any]:
        """The message as it is sent, with its picture as data."""
        if self.picture is None:
            return {"role": self.role, "content": self.text}
        picture = {"type": "image_url", "image_url": {"url": PICTURE + self.picture}}
        return {"role": self.role, "content": [{"type": "text", "text": self.text}, picture]}

    @property
    def branch(self) -> list[Node]:
        """The messages up to this one."""
        return [*(self.parent.branch if self.parent else ()), self]

    def __repr__(self) -> str:
        return f"<{self.role} {self.text!r}>"


class ChatProgram:
    """One chat, on one server."""

    def __init__(
        self, server: Serving, model: ScriptedModel, *, chat: str = "chat-1", ids: bool = False
    ) -> None:
        self.server = server
        self.model = model
        self.chat = chat
        self.ids = ids
        """Send the ids of messages, as connection headers can."""
        self.answers: list[Node] = []
        self.last: Answer | None = None

    async def say(
        self, text: str, after: Node | None = None, *, picture: str | None = None, **how: Any
    ) -> Node:
        """Send a message after an answer, and return the answer to it."""
        return await self.answer(Node("user", text, after, picture=picture), **how)

    async def answer(self, asked: Node, **how: Any) -> Node:
        """Ask for an answer to a message: for the first one, or for another one."""
        found = Node("assistant", "", asked)
        found.text = await self._ask(asked.branch, answer=found, **how)
        self.answers.append(found)
        return found

    async def go_on(self, answer: Node, **how: Any) -> None:
        """Continue an answer: the program shows both parts as one."""
        answer.text += await self._ask(answer.branch, answer=answer, **how)

    def delete(self, answer: Node) -> None:
        """Take out an answer with its question; what came after hangs on what was before."""
        assert answer.parent is not None
        for each in self.answers:
            if each.parent is not None and each.parent.parent is answer:
                each.parent.parent = answer.parent.parent
        self.answers.remove(answer)

    def cloned(self, answer: Node, *, chat: str) -> ChatProgram:
        """Another chat, with a copy of the branch up to an answer."""
        twin = type(self)(self.server, self.model, chat=chat, ids=self.ids)
        copy: Node | None = None
        for each in answer.branch:
            copy = Node(each.role, each.text, copy, picture=each.picture)
        assert copy is not None
        twin.answers.append(copy)
        return twin

    async def side_call(self, prompt: str, *about: str) -> None:
        """A call of the program's own that quotes messages of the chat, as for a title."""
        quoted = (f"USER: {each}" for each in about)
        text = (
            "\n".join((prompt, "<chat_history>", *quoted, "</chat_history>")) if about else prompt
        )
        await self._ask([Node("user", text, None)], stream=False)

    async def _ask(
        self,
        branch: list[Node],
        *,
        answer: Node | None = None,
        model: str = "root",
        stream: bool = False,
        window: int | None = None,
        passages: str = "",
        headers: dict[str, str] | None = None,
    ) -> str:
        sent = branch if window is None else branch[-window:]
        messages = [each.sent() for each in sent]
        if passages and messages[-1]["role"] == "user" and sent[-1].picture is None:
            messages[-1]["content"] = f"{passages}\n{messages[-1]['content']}"
        named = {"X-OpenWebUI-Chat-Id": self.chat, **(headers or {})}
        asked = branch[-1] if branch[-1].role == "user" else branch[-2]
        if self.ids:
            named["X-History-Parent"] = asked.parent.id if asked.parent else ""
            named["X-History-Answer"] = answer.id if answer else ""
        said = len(self.model.prompts)
        data = chat_body(*messages, model=model, stream=stream)
        got = self.last = await self.server.request(
            "POST", "/v1/chat/completions", headers=named, data=data
        )
        assert got.status == 200, got.body
        assert len(self.model.prompts) == said + 1, "it was asked once"
        assert joined(self.shown()) == joined([_told(each) for each in messages])
        return got.streamed if stream else got.text

    def shown(self) -> list[tuple[str, str]]:
        """What the model was shown last."""
        pieces = b"[" + b",".join(self.model.prompts[-1].messages) + b"]"
        return [_told(each) for each in msgspec.json.decode(pieces) if each["role"] != "system"]

    @property
    def line(self) -> str:
        """The line that answered last."""
        assert self.last is not None
        return self.last.headers["x-session-id"]


def _told(message: dict[str, Any]) -> tuple[str, str]:
    """A message's role, and its words with its pictures."""
    content = message["content"]
    if isinstance(content, list):
        content = "".join(
            each["text"] if each["type"] == "text" else each["image_url"]["url"] for each in content
        )
    return message["role"], str(content)


def joined(messages: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Messages with neighbouring answers as one, without white space: programs join parts of an answer as they like."""
    found: list[tuple[str, str]] = []
    for role, text in messages:
        words = "".join(text.split())
        if found and role == "assistant" == found[-1][0]:
            found[-1] = (role, found[-1][1] + words)
        else:
            found.append((role, words))
    return found
