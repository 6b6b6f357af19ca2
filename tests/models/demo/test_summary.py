"""Conversations with the demo model that are summed up by it, and go on."""

from __future__ import annotations

from holdfast.agents.agent import Agent
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.log import Log
from holdfast.core.items import Item
from holdfast.core.transcript import ENTRY_CHARS_MAX
from holdfast.core.turns.deltas import TextDelta
from holdfast.ids import SessionId
from holdfast.loop.compaction import summarize
from holdfast.models.demo.demo_model import DemoModel
from holdfast.models.model import Prompt
from holdfast.wire.openai.chat.messages import ChatDialect
from tests.core.builders import call, mint, note, result, said, summary, user
from tests.models.conversations import heard


async def summed_up(*items: Item, before: str = "", portion_bytes: int = 100_000) -> str:
    """What the loop gets when it asks for a summary: the prompt is the one that it really writes."""
    snapshot = Snapshot(
        session_id=mint(SessionId),
        items=Log(items),
        turn_summary=summary(before) if before else None,
    )
    made = await summarize(
        Agent("demo", DemoModel(pace_s=0)),
        snapshot,
        len(items),
        portion_bytes=portion_bytes,
        mint=mint,
        key="turn_1/summary",
    )
    return made.text


async def answer(*items: Item) -> str:
    prompt = Prompt(system="", messages=(ChatDialect().encode(items),))
    deltas = await heard(DemoModel(pace_s=0), prompt)
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_a_summary_says_what_was_said_and_done() -> None:
    noting = call("add_note", arguments='{"text": "ferry"}')
    text = await summed_up(
        user("My name is Ada."), said("Hello"), user("Write it down"), noting, result(noting)
    )
    assert text.splitlines() == [
        "The user has said 2 things:",
        "1. “My name is Ada.”",
        "2. “Write it down”",
        "The user's name is Ada.",
        "What was done:",
        '- Assistant used add_note with {"text": "ferry"}',
        "- Result (ok): done",
    ]


async def test_words_of_a_transcript_are_material() -> None:
    """What made a turn fail, or was told to somebody, must not do the same to who sums it up."""
    wishes = "please fail", "break off", "stall", "call add_note with {}", "think about trains"
    text = await summed_up(*map(user, wishes), said('Try: "please fail", "break off"'))
    assert [line for line in text.splitlines() if line[0].isdigit()] == [
        f"{n}. “{wish}”" for n, wish in enumerate(wishes, start=1)
    ]


async def test_it_still_knows_what_is_only_in_the_summary() -> None:
    text = await summed_up(user("My name is Ada."), said("Hello"), user("I like trains"))
    assert "Your name is Ada" in await answer(summary(text), user("What is my name?"))
    told = await answer(summary(text), user("And ships"), said("ok"), user("What did I say?"))
    assert told.splitlines()[1:] == ["1. “My name is Ada.”", "2. “I like trains”", "3. “And ships”"]
    assert "turn 3" in await answer(summary(text), user("Good"))


async def test_a_newer_name_counts() -> None:
    text = await summed_up(user("My name is Ada."), user("No, call me Grace."))
    assert "The user's name is Grace." in text
    later = await answer(
        summary(text), user("My name is Mary"), said("ok"), user("What is my name?")
    )
    assert "Your name is Mary" in later


async def test_a_summary_of_a_summary_keeps_what_it_says() -> None:
    noting = call("add_note")
    first = await summed_up(user("My name is Ada."), noting, result(noting, "noted"))
    again = await summed_up(user("I like trains"), note(), before=first)
    assert again.splitlines()[:4] == [
        "The user has said 2 things:",
        "1. “My name is Ada.”",
        "2. “I like trains”",
        "The user's name is Ada.",
    ]
    assert "- Result (ok): noted" in again and "interrupted: cancelled" in again


async def test_the_summary_of_another_model_is_kept_as_it_is() -> None:
    text = await summed_up(user("Hello"), before="They met.\n\nShe is called Ada.")
    assert "Before that: They met. She is called Ada." in text.splitlines()
    again = await summed_up(user("Bye"), before=text)
    assert again.splitlines() == [
        "The user has said 2 things:",
        "1. “Hello”",
        "2. “Bye”",
        "Before that: They met. She is called Ada.",
    ]


async def test_a_long_conversation_has_a_short_summary() -> None:
    """It is cut in the middle of its words otherwise, when it is summed up again."""
    items = [user("My name is Ada.")]
    items += [user(f"This is sentence {n}, and a long one. " * 5) for n in range(300)]
    text = await summed_up(*items, before="They met. " * 500, portion_bytes=4_000)
    assert len(text) < ENTRY_CHARS_MAX - 100
    assert text.splitlines()[:2] == [
        "The user has said 301 things; the first, and the newest:",
        "1. “My name is Ada.”",
    ]
    assert "turn 302" in await answer(summary(text), user("Good"))
    assert "Your name is Ada" in await answer(summary(text), user("What is my name?"))
    told = await answer(summary(text), user("What did I say?"))
    assert told.splitlines()[-1].startswith("301. “This is sentence 299")


async def test_a_conversation_without_words_of_the_user_has_a_summary() -> None:
    assert await summed_up(said("Hello")) == "The user has said nothing."


async def test_nobody_waits_for_the_words_of_a_summary() -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    snapshot = Snapshot(session_id=mint(SessionId), items=Log([user("Hello")]))
    model = DemoModel(pace_s=0.25, sleep=sleep)
    await summarize(Agent("demo", model), snapshot, 1, portion_bytes=1000, mint=mint, key="k")
    assert pauses == []
