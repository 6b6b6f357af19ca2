"""Both clients, against a real server: the same questions, the same answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import pytest

from holdfast.client.aio import AsyncClient
from holdfast.client.events import (
    AnswerBegan,
    AnswerEvent,
    AnswerFinished,
    AnswerText,
    ToolUseFinished,
    ToolUseStarted,
)
from holdfast.client.sync import Client
from holdfast.core.items import AssistantMessage, UserMessage, text_of
from holdfast.core.turns.events import Ended
from holdfast.errors import ServerRefused, ServerUnreachable
from holdfast.models.model import ModelFailed
from holdfast.testing import Gate, ScriptedModel, says
from holdfast.wire.api import objects as api
from tests.server.api.test_approvals import careful
from tests.server.stubs import HeldTool, agent, serving, until


class Speaks(Protocol):
    """What a test does with a client, whichever it is."""

    async def call(self, method: str, *args: Any, **options: Any) -> Any: ...

    async def read(self, method: str, *args: Any, **options: Any) -> list[Any]: ...


class Blocking:
    """The client that waits, in threads of its own."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.client = Client(url, key=key)

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        return await asyncio.to_thread(getattr(self.client, method), *args, **options)

    async def read(self, method: str, *args: Any, **options: Any) -> list[Any]:
        def read() -> list[Any]:
            found = getattr(self.client, method)(*args, **options)
            if method != "ask":
                return list(found)
            with found as answer:
                return list(answer)

        return await asyncio.to_thread(read)


class Awaited:
    """The client for asyncio."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        return await getattr(self.client, method)(*args, **options)

    async def read(self, method: str, *args: Any, **options: Any) -> list[Any]:
        return [each async for each in getattr(self.client, method)(*args, **options)]


@asynccontextmanager
async def _blocking(url: str) -> AsyncIterator[Speaks]:
    yield Blocking(url)


@asynccontextmanager
async def _awaited(url: str) -> AsyncIterator[Speaks]:
    async with AsyncClient(url) as client:
        yield Awaited(client)


@pytest.fixture(params=[_blocking, _awaited], ids=["sync", "aio"])
def speaking(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    found: Callable[[str], Any] = request.param
    return found


def answers() -> ScriptedModel:
    return ScriptedModel(otherwise=lambda prompt: says("Yes, ", "indeed."))


async def test_a_turn_is_asked_for_and_seen_to_its_end(speaking: Callable[[str], Any]) -> None:
    async with serving(agent(answers())) as server, speaking(server.url) as client:
        began, *said, finished = await client.read("ask", "root", "Hello", session="a")
        session = await client.call("session", "a")
    assert isinstance(began, AnswerBegan) and began.created and began.base == 0
    assert said == [AnswerText(text="Yes, "), AnswerText(text="indeed.")]
    assert isinstance(finished, AnswerFinished)
    assert (finished.reason, finished.version) == ("stop", 1)
    assert finished.turn_id == began.turn_id
    assert (session.id, session.version) == (began.session_id, 1)


async def test_sessions_are_listed_searched_shown_and_changed(
    speaking: Callable[[str], Any],
) -> None:
    async with serving(agent(answers())) as server, speaking(server.url) as client:
        for name in ("a", "b/c"):
            await server.chat(f"about {name}", to=name)
        page = await client.call("sessions", limit=1)
        rest = await client.call("sessions", limit=1, cursor=page.cursor)
        found = await client.call("sessions", q="about", agent="root")
        items = await client.call("items", "b/c")
        turns = await client.call("turns", "b/c")
        changed = await client.call("change", "b/c", title="Oslo", attributes={"for": "me"})
        agents = await client.call("agents")
        models = await client.call("models")
    assert [each.keys for each in (*page.sessions, *rest.sessions)] == [("b/c",), ("a",)]
    assert all(each.match for each in found.sessions)
    asked, said = items.items
    assert isinstance(asked, UserMessage) and text_of(asked.content) == "about b/c"
    assert isinstance(said, AssistantMessage)
    (turn,) = turns.turns
    assert turn.state == "committed" and turn.usage == turns.usage
    assert (changed.title, changed.attributes) == ("Oslo", {"for": "me"})
    assert [each.id for each in agents.agents] == ["root"]
    assert [each.id for each in models.data] == ["root"]


async def test_sessions_are_forked_rewound_reset_moved_and_deleted(
    speaking: Callable[[str], Any],
) -> None:
    async with serving(agent(answers())) as server, speaking(server.url) as client:
        for said in ("one", "two"):
            await server.chat(said, to="a")
        before = await client.call("session", "a")
        fork = await client.call("fork", "a", version=1)
        rewound = await client.call("rewind", "a", version=1)
        fresh = await client.call("reset", "a")
        exported = b"".join(await client.read("export", before.id))
        again = await client.call("take_in", exported)
        deleted = await client.call("delete", before.id)
    assert (before.version, fork.version, rewound.version, fresh.version) == (2, 1, 1, 0)
    assert len({before.id, fork.id, rewound.id, fresh.id}) == 4
    assert again.there_already == (before.id,)
    assert deleted.id == before.id


async def test_a_turn_is_watched_and_stopped(speaking: Callable[[str], Any]) -> None:
    gate = Gate()
    model = ScriptedModel(says("Half ", "an answer.").waiting(gate, at=1))
    async with serving(agent(model)) as server, speaking(server.url) as client:
        asking = asyncio.create_task(client.read("ask", "root", "Hello", session="a"))
        await gate.reached.wait()
        open_turn = (await client.call("session", "a")).open_turn
        watching = asyncio.create_task(client.read("events", open_turn))
        await until(lambda: server.sessions.load().watchers > 1)
        stopped = await client.call("cancel", open_turn)
        watched = await watching
        with pytest.raises(ServerRefused) as refused:
            await asking
    assert (stopped.state, stopped.ended_by) == ("committed", "cancelled")
    assert watched == [AnswerText(text="Half ")]
    assert (refused.value.reason, refused.value.turn_id) == ("turn_cancelled", open_turn)


async def test_calls_that_wait_are_decided_on_and_the_next_turn_is_watched(
    speaking: Callable[[str], Any],
) -> None:
    model = ScriptedModel(
        says("May I?", calls=[("pay", '{"kr":5}')]), otherwise=lambda _: says("Paid.")
    )
    tool = HeldTool("pay", held=False)
    async with serving(careful(model, tool)) as server, speaking(server.url) as client:
        *_, finished = await client.read("ask", "root", "Pay", session="a")
        (call,) = finished.approvals
        (waiting,) = (await client.call("approvals", finished.turn_id)).approvals
        begun = await client.call(
            "decide", finished.turn_id, {call.id: api.Decision(approve=True)}, idempotency_key="k"
        )
        seen = await client.read("events", begun.id)
        records = await client.read("records", begun.id)
        with pytest.raises(ServerRefused, match="approv"):
            await client.call("decide_one", finished.turn_id, call.id, api.Decision(approve=False))
    assert (call.name, waiting.id, call.arguments) == ("pay", call.id, '{"kr":5}')
    assert [type(each) for each in seen] == [ToolUseStarted, ToolUseFinished, AnswerText]
    assert tool.runs == 1
    assert [each.n for each in records] == list(range(len(records)))
    assert isinstance(records[-1].event, Ended)


@pytest.mark.parametrize(
    ("failing", "status"),
    [
        (ModelFailed("out of order", reason="overloaded", transient=True), 502),
        (ModelFailed("too long", reason="context_length_exceeded"), 400),
    ],
)
async def test_a_turn_that_fails_is_an_error_with_its_code_and_turn(
    failing: ModelFailed, status: int, speaking: Callable[[str], Any]
) -> None:
    model = ScriptedModel(says("x").failing(failing, at=0))
    async with serving(agent(model)) as server, speaking(server.url) as client:
        with pytest.raises(ServerRefused) as refused:
            await client.read("ask", "root", "Hello", session="a")
    assert refused.value.status == status
    assert refused.value.turn_id is not None
    assert refused.value.reason


@pytest.mark.parametrize(
    ("method", "arguments", "status", "code"),
    [
        ("session", ("nobody",), 404, "conversation_not_found"),
        ("turn", ("turn_x",), 404, "turn_not_found"),
        ("rewind", ("conv_x",), 400, "invalid_conversation_key"),
    ],
)
async def test_a_refusal_has_the_servers_code_status_and_words(
    method: str,
    arguments: tuple[str, ...],
    status: int,
    code: str,
    speaking: Callable[[str], Any],
) -> None:
    options = {"version": 1} if method == "rewind" else {}
    async with serving(agent(answers())) as server, speaking(server.url) as client:
        with pytest.raises(ServerRefused) as refused:
            await client.call(method, *arguments, **options)
    assert (refused.value.status, refused.value.reason) == (status, code)
    assert str(refused.value)


async def test_a_request_that_never_became_a_turn_has_none(speaking: Callable[[str], Any]) -> None:
    async with serving(agent(answers())) as server, speaking(server.url) as client:
        with pytest.raises(ServerRefused, match="nobody") as refused:
            await client.read("ask", "nobody", "Hello", session="a")
    assert (refused.value.reason, refused.value.turn_id) == ("model_not_found", None)


async def test_a_server_that_is_not_there_is_one_error_with_the_way_out(
    speaking: Callable[[str], Any],
) -> None:
    async with serving(agent(answers())) as server:
        url = server.url
    async with speaking(url) as client:
        with pytest.raises(ServerUnreachable, match="check that it runs there"):
            await client.call("agents")
        with pytest.raises(ServerUnreachable):
            await client.read("ask", "root", "Hello")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 500 Oh\r\ncontent-length: 4\r\n\r\noops",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{",
    ],
)
async def test_a_server_that_is_none_of_ours_is_the_same_error(
    answer: bytes, speaking: Callable[[str], Any]
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, speaking(f"http://{host}:{port}") as client:
        with pytest.raises(ServerUnreachable, match=f"{port}"):
            await client.call("agents")


async def test_an_answer_that_breaks_off_is_no_success(speaking: Callable[[str], Any]) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-turn-id: turn_1\r\n"
    words = b'data: {"choices":[{"delta":{"content":"Half "}}]}\n\n'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        # To its end: what is left unread when a connection is closed resets it, words and all.
        length = re.search(rb"content-length: (\d+)", asked, re.IGNORECASE)
        await reader.readexactly(int(length[1]) if length else 0)
        writer.write(head + b"connection: close\r\n\r\n" + words)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server, speaking(f"http://{host}:{port}") as client:
        with pytest.raises(ServerUnreachable, match="broke off"):
            await client.read("ask", "root", "Hello")


async def test_hanging_up_ends_whoever_listens() -> None:
    """What Ctrl-C does to an answer that has not begun."""
    gate = Gate()
    model = ScriptedModel(says("Half ", "an answer.").waiting(gate, at=0))
    async with serving(agent(model)) as server:
        answer = Client(server.url).ask("root", "Hello", session="a")

        def listen() -> list[AnswerEvent]:
            with answer:
                return list(answer)

        listening = asyncio.create_task(asyncio.to_thread(listen))
        await gate.reached.wait()
        answer.hang_up()
        with pytest.raises(ServerUnreachable):
            await listening
        answer.hang_up()  # and again does no harm
        assert answer.turn_id is None
