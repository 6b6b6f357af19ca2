"""The tour's client: plain HTTP from the standard library, so that every user can check the claims in the same way."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from urllib.parse import quote, urlsplit

import msgspec

from holdfast.core.codec import Value
from holdfast.wire.headers import CONVERSATION_ID, IDEMPOTENCY_KEY, SESSION_ID, TURN_ID

PATIENCE_S = 60.0


class HttpReply(Value):
    """An answer to a request, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The agent's answer, or the message of an error."""
        if self.status != 200:
            return msgspec.json.decode(self.body, type=_Refusal).error.message
        return msgspec.json.decode(self.body, type=_Completion).choices[0].message.content

    @property
    def session(self) -> str:
        return self.headers[SESSION_ID.name]

    @property
    def turn(self) -> str:
        return self.headers[TURN_ID.name]


class TurnReport(Value):
    """A turn, as `/api` returns it."""

    id: str
    state: str
    ended_by: str | None = None
    detail: str = ""
    version: int | None = None


class HistoryLine(Value):
    """One item of a history, as a line of text."""

    id: str
    type: str
    text: str
    call: str = ""
    outcome: str = ""

    def __str__(self) -> str:
        who = f"result ({self.outcome})" if self.outcome else self.type
        return f"{who}: {self.text}"


class HttpClient:
    """Sends requests to a server, each on its own connection."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc

    def say(self, name: str, text: str, *, key: str | None = None) -> HttpReply:
        """Send a message to the conversation with this key, and wait for the answer."""
        return self._ask("POST", "/v1/chat/completions", _chat(text), _named(name, key))

    @contextmanager
    def listening(self, name: str, text: str, *, key: str | None = None) -> Iterator[HttpStream]:
        """Send a message, and read the answer as a stream. Leaving the context early closes the connection."""
        connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_S)
        try:
            body = _chat(text, stream=True)
            connection.request("POST", "/v1/chat/completions", body, _named(name, key))
            yield HttpStream(connection.getresponse())
        finally:
            connection.close()

    def cancel(self, turn: str) -> HttpReply:
        return self._ask("POST", f"/api/turns/{turn}/cancel", b"{}", {})

    def history(self, name: str) -> tuple[HistoryLine, ...]:
        """The items of a conversation; empty if it does not exist."""
        reply = self._ask("GET", f"/api/sessions/{quote(name, safe='')}/items", None, {})
        if reply.status == 404:
            return ()
        return tuple(map(_line, msgspec.json.decode(reply.body, type=_Items).items))

    def turns(self, name: str) -> tuple[TurnReport, ...]:
        """The turns of a conversation, discarded ones too, in the order in which they began."""
        reply = self._ask("GET", f"/api/sessions/{quote(name, safe='')}/turns", None, {})
        return msgspec.json.decode(reply.body, type=_Turns).turns[::-1]

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HttpReply:
        connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_S)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return HttpReply(status=answer.status, headers=found, body=answer.read())
        finally:
            connection.close()


class HttpStream:
    """An answer that is still being given."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self.turn = answer.headers.get(TURN_ID.name, "")

    def pieces(self) -> Iterator[str]:
        """The pieces of the answer; ends with the stream, also if that breaks off."""
        for line in self._answer:
            if line.startswith(b"data: {"):
                said = msgspec.json.decode(line[6:], type=_Completion)
                for choice in said.choices:
                    if choice.delta.content:
                        yield choice.delta.content

    def hear(self, count: int) -> str:
        """The text of the first `count` pieces, or of fewer if the stream ends."""
        return "".join(islice(self.pieces(), count))


def _chat(text: str, **more: object) -> bytes:
    message = {"role": "user", "content": text}
    return json.dumps({"model": "guide", "messages": [message], **more}).encode()


def _named(name: str, key: str | None) -> dict[str, str]:
    headers = {CONVERSATION_ID.title: name, "Content-Type": "application/json"}
    return headers | ({IDEMPOTENCY_KEY.title: key} if key else {})


# ── the fields that are read from answers ────────────────────────────────────────────────────


class _Message(msgspec.Struct):
    content: str = ""


class _Choice(msgspec.Struct):
    message: _Message = msgspec.field(default_factory=_Message)
    delta: _Message = msgspec.field(default_factory=_Message)


class _Completion(msgspec.Struct):
    """A whole answer or a piece of it; the last piece of a failed answer has an error in place of choices."""

    choices: list[_Choice] = []


class _Problem(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Problem


class _Part(msgspec.Struct):
    text: str = ""


class _Item(msgspec.Struct):
    id: str
    type: str
    content: list[_Part] = []
    name: str = ""
    arguments: str = ""
    call: str = ""
    outcome: str = ""
    ended_by: str = ""


class _Items(msgspec.Struct):
    items: list[_Item]


class _Turns(msgspec.Struct):
    turns: tuple[TurnReport, ...]


def _line(item: _Item) -> HistoryLine:
    said = "".join(part.text for part in item.content).strip() or item.ended_by
    text = f"{item.name} {item.arguments}" if item.type == "call" else said
    return HistoryLine(id=item.id, type=item.type, text=text, call=item.call, outcome=item.outcome)
