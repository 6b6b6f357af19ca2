"""Somebody's own agent code as a turn: committed when the block ends, as if it had not been when it raises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.core.history.conversation import Snapshot, Summarized
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import Interruption, Summary, ToolResult, plain_text, text_of
from holdfast.core.ports import OpenTurn, Play
from holdfast.errors import IllegalEvent, TurnFailed
from holdfast.ids import NoteId, SessionKey, Tenant, mint
from holdfast.sessions.manual_turns import ManualTurn, nobody_plays, played
from holdfast.sessions.session_requests import Ask
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.turns.watch import Watch
from holdfast.store.memory_store import MemoryStore
from holdfast.store.verification.verification import Finding, verify
from tests.simulation.stage import words

LOCAL = Tenant("local")


@pytest.fixture
async def sessions() -> AsyncIterator[Sessions]:
    async with Sessions(MemoryStore(), nobody_plays) as opened:
        yield opened


async def ask(sessions: Sessions, prompt: str, answer: str, *, key: str = "trip") -> None:
    async with played(sessions, key, prompt) as turn:
        await turn.say(answer)


async def snapshot(sessions: Sessions, key: str = "trip") -> Snapshot:
    row = await sessions.store.resolve(LOCAL, SessionKey(key))
    assert row is not None
    found = await sessions.snapshot(LOCAL, row.session_id)
    assert found is not None
    return found


async def test_a_block_sees_what_was_said_before_and_adds_its_answer(sessions: Sessions) -> None:
    await ask(sessions, "Hello", "Hi")
    async with played(sessions, "trip", "Oslo?") as turn:
        assert turn.messages == [("user", "Hello"), ("assistant", "Hi"), ("user", "Oslo?")]
        await turn.say("Cold.")
    assert (await snapshot(sessions)).version == 2


async def test_a_block_that_raises_leaves_no_trace(sessions: Sessions) -> None:
    await ask(sessions, "Hello", "Hi")
    before = await snapshot(sessions)
    with pytest.raises(ZeroDivisionError):
        async with played(sessions, "trip", "Oslo?"):
            raise ZeroDivisionError
    assert await snapshot(sessions) == before


async def test_a_block_that_says_nothing_has_not_completed(sessions: Sessions) -> None:
    with pytest.raises(TurnFailed, match="stopped in the middle"):
        async with played(sessions, "trip", "Oslo?"):
            pass


async def test_a_block_that_has_acted_is_kept_and_says_where_it_broke_off(
    sessions: Sessions,
) -> None:
    """The agent must not deny what it did."""

    async def send() -> str:
        return "sent"

    async def act_and_fail() -> None:
        async with played(sessions, "trip", "Write to Ada") as turn:
            assert await turn.use_tool("send_mail", '{"to": "Ada"}', send) == "sent"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await act_and_fail()
    kept = await snapshot(sessions)
    results = [each for each in kept.items if isinstance(each, ToolResult)]
    assert [text_of(each.content) for each in results] == ["sent"]
    assert any(isinstance(each, Interruption) for each in kept.items)


async def test_a_block_sees_what_was_done_before_also_in_a_turn_that_broke_off(
    sessions: Sessions,
) -> None:
    """Whoever does not see that it was booked books again."""
    async with played(sessions, "trip", "Look it up") as turn:
        await turn.use_tool("look", '{"at": "Oslo"}', cold, read_only=True)
        assert turn.messages[-1] == ("system", '[look {"at": "Oslo"}: cold]')
        await turn.say("Cold.")

    async def book_and_fail() -> None:
        async with played(sessions, "trip", "Book it") as turn:
            await turn.use_tool("book", "{}", cold)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await book_and_fail()
    async with played(sessions, "trip", "Well?") as turn:
        roles, texts = zip(*turn.messages, strict=True)
        await turn.say("It is booked.")
    assert roles == ("user", "system", "assistant", "user", "system", "system", "user")
    assert texts[1] == '[look {"at": "Oslo"}: cold]' and texts[4] == "[book {}: cold]"
    assert "interrupted" in texts[5]


async def cold() -> str:
    return "cold"


@pytest.mark.parametrize("answer", [None, 5, {"to": "Oslo"}, b"Cold."])
async def test_what_is_no_text_is_refused_before_it_can_be_stored(
    sessions: Sessions, answer: Any
) -> None:
    async def number() -> Any:
        return answer

    with pytest.raises(TypeError, match="an answer is text"):
        await ask(sessions, "Oslo?", answer)
    with pytest.raises(TypeError, match="what count returns is text"):
        async with played(sessions, "trip", "How many?") as turn:
            await turn.use_tool("count", "{}", number)
    findings = [each async for each in verify(sessions.store) if isinstance(each, Finding)]
    assert findings == []
    assert [each.outcome for each in await results(sessions)] == ["unknown"]


async def results(sessions: Sessions) -> list[ToolResult]:
    return [each for each in (await snapshot(sessions)).items if isinstance(each, ToolResult)]


@pytest.mark.parametrize("arguments", ["not json at all", "", "{"])
async def test_arguments_that_are_no_json_are_refused_before_anything_runs(
    sessions: Sessions, arguments: str
) -> None:
    async with played(sessions, "trip", "Look it up") as turn:
        with pytest.raises(ValueError, match="the arguments of look are JSON"):
            await turn.use_tool("look", arguments, cold)
        await turn.say("I cannot.")
    assert await results(sessions) == []


async def test_a_second_answer_is_refused_in_plain_words(sessions: Sessions) -> None:
    async with played(sessions, "trip", "Oslo?") as turn:
        await turn.say("Cold.")
        with pytest.raises(IllegalEvent, match="say everything in one"):
            await turn.say("And dark.")
        with pytest.raises(IllegalEvent, match="the turn has its answer"):
            await turn.use_tool("look", "{}", cold)
    assert (await snapshot(sessions)).version == 1


async def test_a_fork_is_played_by_its_id(sessions: Sessions) -> None:
    await ask(sessions, "Hello", "Hi")
    fork = await sessions.operations.fork(LOCAL, (await snapshot(sessions)).session_id)
    async with played(sessions, fork.id, "Oslo?") as turn:
        assert turn.messages == [("user", "Hello"), ("assistant", "Hi"), ("user", "Oslo?")]
        await turn.say("Cold.")
    assert (await snapshot(sessions)).version == 1


async def test_cancelling_a_turn_from_elsewhere_stops_its_block(sessions: Sessions) -> None:
    begun = asyncio.Event()

    async def hang() -> None:
        async with played(sessions, "trip", "Oslo?"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await begun.wait()
    row = await sessions.store.resolve(LOCAL, SessionKey("trip"))
    assert row is not None
    session = await sessions.store.session(LOCAL, row.session_id)
    assert session is not None and session.open_turn is not None
    await sessions.operations.cancel(LOCAL, session.open_turn)
    with pytest.raises(TurnFailed, match="stopped"):
        await task
    assert not task.cancelled()


async def test_cancelling_the_caller_ends_the_turn_and_is_a_cancellation(
    sessions: Sessions,
) -> None:
    begun = asyncio.Event()

    async def hang() -> None:
        async with played(sessions, "trip", "Oslo?"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ask(sessions, "Still there?", "Yes.")
    assert (await snapshot(sessions)).version == 1


async def test_a_turn_that_ends_before_it_is_played_does_not_leave_its_caller_waiting() -> None:
    opened = Sessions(MemoryStore(), nobody_plays)
    await opened.__aenter__()
    submit = asyncio.create_task(ask(opened, "Hello", "Hi"))
    await asyncio.sleep(0)
    (begun,) = opened._owner.live.values()
    begun.interrupt("shutdown")
    await opened.close(grace_s=0)
    with pytest.raises(TurnFailed):
        async with asyncio.timeout(5):
            await submit


async def test_a_summary_stands_in_place_of_what_it_covers(sessions: Sessions) -> None:
    await ask(sessions, "Hello", "Hi")
    before = await snapshot(sessions)
    summary = Summary(
        id=mint(NoteId, at_ms=1, entropy=1), text="They said hello.", covers_to=len(before.items)
    )
    await sessions.operations.annotate(
        LOCAL, before.session_id, [(None, Summarized(summary=summary))]
    )
    seen: list[tuple[str, str]] = []

    async def look(turn: ManualTurn) -> None:
        seen.extend(turn.messages)
        await turn.say("Cold.")

    async with played(sessions, "trip", "Oslo?") as turn:
        await look(turn)
    assert seen == [("system", "They said hello."), ("user", "Oslo?")]


# ── words that come in the middle ────────────────────────────────────────────────────────────


async def steer(sessions: Sessions, text: str, play: Play) -> Watch:
    asked = Ask(
        tenant=LOCAL,
        name=SessionKey("trip"),
        messages=(Incoming(role="user", content=plain_text(text)),),
        on_busy="steer",
    )
    return await sessions.submit(asked, play=play)


async def answer_aye(turn: OpenTurn) -> None:
    await ManualTurn(turn).say("Aye.")


async def test_words_that_are_steered_into_a_block_begin_the_next_turn(sessions: Sessions) -> None:
    """A block has no step at which it would hear them, and must not fall over them."""
    async with played(sessions, "trip", "Oslo?") as turn:
        steering = asyncio.create_task(steer(sessions, "And Bergen?", answer_aye))
        while not await sessions.store.signals(sessions.lease.node):  # noqa: ASYNC110 — on its way
            await asyncio.sleep(0)
        await turn.say("Cold.")
    async with await steering as watch:
        assert (await watch.ended()).ok
    assert watch.admission.how == "began"
    assert words((await snapshot(sessions)).items) == ["Oslo?", "Cold.", "And Bergen?", "Aye."]
