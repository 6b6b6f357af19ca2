"""The behaviours, one function each: something goes wrong, as it does every day, and the conversation is looked at.

A behaviour returns what is wrong, sentence by sentence; nothing is the best that it can say. It looks at what the
model was sent by the turn *after* the accident, since that is what the agent then believes, and at what the system
shows of the conversation, since that is what people then see.

Whether a turn that was broken off is kept, finished or dropped is a matter of taste, and every system may have its
own. What is judged is that it is one of these: there as a whole, absent as a whole, or marked as broken off; that
what the tool has done is not forgotten and not done twice; and that the conversation can go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from systems.base import ANSWER_S, Answer, NotOffered, Said

from holdfast.testing import Gate
from scenarios import judging
from scenarios.stage import FAILS, Stage, breaks, stops_at

HELLO, WELL, NEXT = "Ada is my name", "tell me about rain", "and what is next"
CHARGE = "please charge me"
CONCURRENT = 6
MOMENT_S = 1.0
"""How long a turn goes on before it is killed. Some systems write behind what they do: without a moment for that, a
verdict would be a race between the kill and a disk."""


NOTICED_S = 0.5
"""How long a client has been gone before the model goes on: its leaving is noticed by then, and not raced with."""

COME_BACK_S = 3.0
COME_BACK_MAX = 3
"""How long a client waits before it asks again, and how often it does."""


class Behaviour(msgspec.Struct, frozen=True):
    """A row of the table."""

    name: str
    title: str
    promise: str
    """What ought to be true, in a sentence."""
    play: Callable[[Stage], Awaitable[list[str]]]


BEHAVIOURS: list[Behaviour] = []


def behaviour(
    title: str, promise: str
) -> Callable[[Callable[[Stage], Awaitable[list[str]]]], Callable[[Stage], Awaitable[list[str]]]]:
    def keep(
        play: Callable[[Stage], Awaitable[list[str]]],
    ) -> Callable[[Stage], Awaitable[list[str]]]:
        BEHAVIOURS.append(Behaviour(play.__name__, title, promise, play))
        return play

    return keep


# ── failures ─────────────────────────────────────────────────────────────────────────────────


@behaviour("The model fails; the client retries", "The retry sees its message once.")
async def fail_and_retry(stage: Stage) -> list[str]:
    await begun(stage)
    stage.failing.add(WELL)
    failed = await stage.ask(WELL)
    stage.failing.clear()
    return told_so(failed) + await retried(stage)


@behaviour(
    "A stream breaks off; the client retries",
    "The retry sees its message once, and no half answer.",
)
async def break_and_retry(stage: Stage) -> list[str]:
    await begun(stage)
    stage.plan(WELL, *(breaks(WELL) for _ in range(20)))
    failed = await stage.ask(WELL, stream=True)
    stage.plans.clear()
    return told_so(failed) + await retried(stage, stream=True)


@behaviour(
    "The model fails after a tool has acted; the client asks again",
    "The tool runs once, the message is there once, and the retry is answered.",
)
async def fail_after_tool(stage: Stage) -> list[str]:
    return await failed_after_tool(stage)


@behaviour(
    "The model fails after a tool has acted; the client retries with a key",
    "The tool runs once, the message is there once, and the retry is answered.",
)
async def fail_after_tool_keyed(stage: Stage) -> list[str]:
    if not stage.system.knows_keys:
        raise NotOffered("idempotency key")
    return await failed_after_tool(stage, key="order-1")


@behaviour("The client leaves in the middle of an answer", "The turn is whole, absent, or marked.")
async def disconnect(stage: Stage) -> list[str]:
    await begun(stage)
    task, gate = await answering(stage)
    await stage.hang_up(task)
    await asyncio.sleep(NOTICED_S)
    gate.release()
    await stage.settled()
    return await gone_on(stage, [HELLO, WELL])


@behaviour(
    "A deadline passes while a tool runs", "What the tool did is neither forgotten nor torn."
)
async def deadline_in_tool(stage: Stage) -> list[str]:
    if not stage.system.knows_deadline:
        raise NotOffered("deadline for a turn")
    await begun(stage, deadline_s=3.0)
    gate = stage.effects.gate = Gate()
    task = stage.asking(CHARGE)
    await stage.soon(gate.reached, "the tool ran")
    await asyncio.wait({task}, timeout=4.0)
    await stage.hang_up(task)
    gate.release()
    stage.effects.gate = None
    await stage.settled()
    return await gone_on(stage, [HELLO, CHARGE], acted=True)


@behaviour("The user presses stop while text comes", "The turn is whole, absent, or marked.")
async def cancel_in_text(stage: Stage) -> list[str]:
    await begun(stage)
    task, gate = await answering(stage)
    await stopped(stage, task, gate)
    await stage.settled()
    return await gone_on(stage, [HELLO, WELL])


@behaviour(
    "The user presses stop while a tool runs", "What the tool did is neither forgotten nor torn."
)
async def cancel_in_tool(stage: Stage) -> list[str]:
    await begun(stage)
    gate = stage.effects.gate = Gate()
    task = stage.asking(CHARGE, stream=True)
    await stage.soon(gate.reached, "the tool ran")
    await stopped(stage, task, gate)
    stage.effects.gate = None
    await stage.settled()
    return await gone_on(stage, [HELLO, CHARGE], acted=True)


# ── crashes ──────────────────────────────────────────────────────────────────────────────────


@behaviour(
    "kill -9 while the model answers", "The turn is whole, absent, or marked; the session goes on."
)
async def kill_in_text(stage: Stage) -> list[str]:
    await begun(stage)
    gate = Gate()
    stage.plan(WELL, stops_at(gate, WELL))
    task = stage.asking(WELL, stream=True)
    await stage.soon(gate.reached, "the model began to answer")
    await crashed(stage, task, gate)
    return await gone_on(stage, [HELLO, WELL])


@behaviour(
    "kill -9 while a tool runs",
    "What the tool did is not forgotten, and not done again.",
)
async def kill_in_tool(stage: Stage) -> list[str]:
    await begun(stage)
    gate = stage.effects.gate = Gate()
    task = stage.asking(CHARGE)
    await stage.soon(gate.reached, "the tool ran")
    stage.effects.gate = None
    await crashed(stage, task, gate)
    return await gone_on(stage, [HELLO, CHARGE], acted=True)


@behaviour(
    "kill -9 between a tool and the answer",
    "What the tool did is not forgotten, and not done again.",
)
async def kill_after_tool(stage: Stage) -> list[str]:
    await begun(stage)
    gate = Gate()
    stage.plan(CHARGE, stage.calls(), stops_at(gate, CHARGE))
    task = stage.asking(CHARGE)
    await stage.soon(gate.reached, "the model was told the result")
    await crashed(stage, task, gate)
    return await gone_on(stage, [HELLO, CHARGE], acted=True)


@behaviour("kill -9 right after the answer", "What was answered is there.")
async def kill_after_answer(stage: Stage) -> list[str]:
    await begun(stage)
    answered = await stage.ask(WELL)
    await stage.kill()
    await stage.start()
    return not_answered(answered) + await gone_on(stage, [HELLO, WELL], answered=[HELLO, WELL])


@behaviour("A restart", "The conversation goes on where it was.")
async def restart(stage: Stage) -> list[str]:
    await begun(stage)
    await stage.stop()
    await stage.start()
    return await gone_on(stage, [HELLO], answered=[HELLO])


@behaviour("The agent's next version has another address", "Its conversations go on.")
async def moved(stage: Stage) -> list[str]:
    if not stage.system.knows_agents:
        raise NotOffered("address of an agent: who it is stands in every request")
    await begun(stage)
    await stage.stop()
    await stage.start(moved=True)
    return await gone_on(stage, [HELLO], answered=[HELLO])


# ── several at once ──────────────────────────────────────────────────────────────────────────


@behaviour("Several first requests at once", "One conversation, with every answered turn in it.")
async def first_requests(stage: Stage) -> list[str]:
    await stage.start()
    return await several(stage, [f"first {n}" for n in range(CONCURRENT)], [])


@behaviour(
    "Several turns at once",
    "One after the other, none inside another; what their tools did is not forgotten.",
)
async def concurrent_turns(stage: Stage) -> list[str]:
    await begun(stage)
    texts = [f"charge number {n}" for n in range(CONCURRENT)]
    found = await several(stage, texts, [HELLO])
    found += judging.side_by_side([each.said for each in stage.prompts], texts)
    found += judging.forgotten(stage.prompts[-1].said, stage.effects.happened)
    return found


@behaviour(
    "A message before the answer, by a client that resends everything",
    "Each message is there once, and each is answered.",
)
async def message_before_answer(stage: Stage) -> list[str]:
    if not stage.system.knows_resends:
        raise NotOffered(
            "way to send again what was said: a client says what is new, and nothing else"
        )
    await stage.start()
    gate = Gate()
    stage.plan(HELLO, stops_at(gate, HELLO))
    first = stage.asking(HELLO)
    await stage.soon(gate.reached, "the model began to answer")
    second = stage.asking(WELL, before=(HELLO,))
    await asyncio.sleep(NOTICED_S)
    gate.release()
    answers = [await first, await second]
    await stage.settled()
    texts = [HELLO, WELL]
    found = [each for answer in answers for each in not_answered(answer)]
    return found + await gone_on(stage, texts, answered=texts)


# ── lost answers ─────────────────────────────────────────────────────────────────────────────


@behaviour(
    "The client gives up waiting; its SDK retries",
    "The tool runs once; the turn is there once; the retry is answered, or told what became of it.",
)
async def impatient_retry(stage: Stage) -> list[str]:
    await begun(stage)
    gate = Gate()
    stage.plan(CHARGE, stage.calls(), stops_at(gate, CHARGE, after=4))
    task = stage.asking(CHARGE)
    await stage.soon(gate.reached, "the model was about to end its answer")
    await stage.hang_up(task)
    await asyncio.sleep(NOTICED_S)
    gate.release()
    again = await stage.ask(CHARGE, attempt=1)
    await stage.settled()
    found = [] if was_refused(again) else not_answered(again)
    return found + await gone_on(stage, [HELLO, CHARGE], acted=True)


@behaviour(
    "The answer is lost on its way; the client retries with a key",
    "The tool runs once, the turn is there once, and the retry gets its answer.",
)
async def lost_answer(stage: Stage) -> list[str]:
    if not stage.system.knows_keys:
        raise NotOffered("idempotency key")
    await begun(stage)
    async with stage.losing_answers():
        await stage.ask(CHARGE, key="order-1")
    again = await stage.ask(CHARGE, attempt=1, key="order-1")
    await stage.settled()
    texts = [HELLO, CHARGE]
    return not_answered(again) + await gone_on(stage, texts, answered=texts, acted=True)


# ── parts of them ────────────────────────────────────────────────────────────────────────────


async def begun(stage: Stage, **changes: float) -> None:
    """A conversation with one turn."""
    await stage.start(**changes)
    answer = await stage.ask(HELLO)
    if not answer.ok:
        raise RuntimeError(f"the first turn already fails: {answer}")


async def failed_after_tool(stage: Stage, *, key: str | None = None) -> list[str]:
    await begun(stage)
    stage.plan(CHARGE, stage.calls(), *(FAILS for _ in range(20)))
    failed = await stage.ask(CHARGE, key=key)
    stage.plans.clear()
    again = await stage.ask(CHARGE, key=key)
    texts = [HELLO, CHARGE]
    found = told_so(failed) + not_answered(again)
    return found + await gone_on(stage, texts, answered=texts, acted=True)


async def retried(stage: Stage, *, stream: bool = False) -> list[str]:
    seen = len(stage.prompts)
    answer = await stage.ask(WELL, stream=stream)
    found = not_answered(answer)
    for prompt in stage.prompts[seen:][:1]:
        found += [f"the model was told: {each}" for each in flaws(prompt.said, [HELLO], [HELLO])]
        found += [f"the model was told: {each}" for each in judging.repeated(prompt.said, [WELL])]
    return found + await gone_on(stage, [HELLO, WELL], answered=[HELLO, WELL])


async def stopped(stage: Stage, task: asyncio.Task[Answer], gate: Gate) -> None:
    """Press stop, and look on until it has. Some stop where they are, and some after the step that goes on."""
    await stage.cancel()
    await asyncio.wait({task}, timeout=5.0)
    gate.release()
    await asyncio.wait({task}, timeout=5.0)
    await stage.hang_up(task)


async def crashed(stage: Stage, task: asyncio.Task[Answer], gate: Gate) -> None:
    await asyncio.sleep(MOMENT_S)
    await stage.kill()
    await asyncio.wait({task}, timeout=5.0)
    await stage.hang_up(task)
    gate.release()
    await stage.start()


async def gone_on(
    stage: Stage, texts: Sequence[str], *, answered: Sequence[str] = (), acted: bool = False
) -> list[str]:
    """The next turn, and all that is wrong then: with what the model is told, and with what is stored."""
    answered = [text for text in texts if text == HELLO or text in answered]  # `begun` saw to that
    before, seen = stage.effects.happened, len(stage.prompts)
    answer = await patiently(stage)
    found = not_answered(answer)
    told = next((each.said for each in stage.prompts[seen:] if NEXT in each.last_user), None)
    if told is None:
        return [*found, "the model was never asked again"]
    held = judging.standing(judging.folded(await shown(stage), [*texts, NEXT]), texts)
    found += [f"the model was told: {each}" for each in flaws(told, texts, answered)]
    found += [f"the store holds: {each}" for each in flaws(held, [*texts, NEXT], [*answered, NEXT])]
    if acted:
        if stage.effects.happened > before or stage.effects.happened > 1:
            found.append(f"the tool ran {stage.effects.happened} times")
        if not judging.shows_call(told):
            found.append("the agent was not told of what its tool has done")
    stage.note(f"the tool has run {stage.effects.happened} times in all")
    return list(dict.fromkeys(found))


async def patiently(stage: Stage) -> Answer:
    """Ask what is next. A client that is not answered, however it is told so, comes back a few times; only after
    it was kept waiting for as long as it waits at all it does not. A conversation that never answers again is what
    is looked for."""
    until = time.monotonic() + ANSWER_S / 2
    answer = await stage.ask(NEXT)
    for _ in range(COME_BACK_MAX):
        if answer.ok or time.monotonic() > until:
            break
        await asyncio.sleep(COME_BACK_S)
        answer = await stage.ask(NEXT)
    return answer


async def shown(stage: Stage) -> Sequence[Said]:
    """What is stored. Who answers a moment before it is stored is given that moment; that it is then lost in a
    crash is looked for elsewhere."""
    held = await stage.history()
    if judging.presence(held, NEXT) == "whole":
        return held
    await asyncio.sleep(1.0)
    return await stage.history()


def flaws(said: Sequence[Said], texts: Sequence[str], answered: Sequence[str]) -> list[str]:
    said = judging.folded(said, [*texts, NEXT])
    torn = [
        f"{text!r} is there in part"
        for text in texts
        if text not in answered
        and not excused(said, text)
        and judging.presence(said, text) == "torn"
    ]
    return [*judging.every_flaw(said, texts), *judging.misplaced(said, answered), *torn]


def excused(said: Sequence[Said], text: str) -> bool:
    """A turn without its answer is no torn one if it shows how far it came: by calls that all have results."""
    at = [n for n, each in enumerate(said) if each.role == "user" and text in each.text]
    if len(at) != 1:
        return False
    turn = judging.turn_at(said, at[0])
    return any(each.role == "tool" for each in turn) and not list(judging.torn_calls(turn))


async def several(stage: Stage, texts: Sequence[str], before: Sequence[str]) -> list[str]:
    answers = await asyncio.gather(*(stage.ask(text) for text in texts))
    await stage.settled()
    answered = [text for text, answer in zip(texts, answers, strict=True) if answer.ok]
    refused = [text for text in texts if text not in answered]
    found = [] if answered else ["nobody was answered"]
    found += await gone_on(stage, [*before, *texts], answered=[*before, *answered])
    found += [
        f"{text!r} was refused, and is there"
        for text in refused
        if judging.presence(stage.prompts[-1].said, text) == "whole"
    ]
    return found


async def answering(stage: Stage) -> tuple[asyncio.Task[Answer], Gate]:
    """A streamed answer that has begun, and stands at a gate."""
    gate, heard = Gate(), asyncio.Event()
    stage.plan(WELL, stops_at(gate, WELL))
    task = stage.asking(WELL, stream=True, told=lambda piece: heard.set())
    await stage.soon(gate.reached, "the model began to answer")
    await reaches_client(heard)
    return task, gate


async def reaches_client(heard: asyncio.Event) -> None:
    """Give the pieces that the model has said a moment to get through; some systems keep them back."""
    try:
        async with asyncio.timeout(2.0):
            await heard.wait()
    except TimeoutError:
        pass


def was_refused(answer: Answer) -> bool:
    """Whether a client was told that it will not be answered, by a status that says that this was on purpose."""
    return 400 <= answer.status < 500


def told_so(failed: Answer) -> list[str]:
    return ["the failure was answered as a success"] if failed.ok else []


def not_answered(answer: Answer) -> list[str]:
    return [] if answer.ok else [f"the conversation does not go on: {answer}"]
