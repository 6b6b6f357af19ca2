"""Whatever a program makes of a chat, its model is shown what it sends: short equal answers, windows, deletes, messages
put between others, answers without their thoughts, joined or cut, instructions at the end, several models."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

import msgspec
import pytest

from holdfast.core.history.branches import answer_words
from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel
from tests.server.stubs import agent, serving
from tests.server.test_follow import CHAT
from tests.store.verification.test_verification import findings

Told: TypeAlias = list[dict[str, str]]

ANSWERS = ("ok", "yes", "ok\n", "1 2", "**ok**", "<think>a</think>ok", "e\u0301")
QUESTIONS = ("yes", "no", "ok?")


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def _exchange(chance: Random, told: Told) -> int:
    """Where an exchange begins."""
    return chance.randrange(0, len(told) // 2) * 2


def _edited(chance: Random, told: Told) -> Told:
    return told[: _exchange(chance, told)]


def _without_one(chance: Random, told: Told) -> Told:
    at = _exchange(chance, told)
    return told[:at] + told[at + 2 :]


def _without_thoughts(chance: Random, told: Told) -> Told:
    return [
        {**each, "content": each["content"].replace("<think>a</think>", "").strip()}
        for each in told
    ]


CHANGES: dict[str, Callable[[Random, Told], Told]] = {
    "nothing": lambda _, told: told,
    "edited": _edited,
    "a window": lambda _, told: told[-4:],
    "one deleted": _without_one,
    "no thoughts": _without_thoughts,
    "one added to": lambda _, told: [*told[:-1], answer(told[-1]["content"] + "\n\nmore")],
    "one between": lambda _, told: [*told[:2], user("so"), answer("ok"), *told[2:]],
    "a side call": lambda _, told: [],
}
ENDS: tuple[Callable[[Random], Told], ...] = (
    lambda chance: [user(chance.choice(QUESTIONS))],
    lambda chance: [user(chance.choice(QUESTIONS))],
    lambda chance: [user("yes"), user("no")],
    lambda chance: [{"role": "system", "content": "Go on."}],
)


def spoken(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """What is said in messages, neighbouring answers as one."""
    found: list[tuple[str, str]] = []
    for each in messages:
        role, text = each["role"], each["content"] or ""
        words = answer_words(text) if role == "assistant" else "".join(text.split())
        if role == "assistant" and found and found[-1][0] == role:
            words = found.pop()[1] + words
        if role != "system" and words:
            found.append((role, words))
    return found


@pytest.mark.parametrize("seed", range(12))
async def test_the_model_is_shown_what_any_program_sends(seed: int) -> None:
    chance, store = Random(seed), MemoryStore()

    def reply(_: object) -> str:
        return chance.choice(ANSWERS) if chance.random() < 0.8 else f"A{len(model.prompts)}"

    model = ScriptedModel(otherwise=reply)
    agents = [agent(model, name=each) for each in ("root", "other")]
    async with serving(*agents, store=store) as server:
        branches: list[Told] = [[]]
        for _ in range(18):
            told = chance.choice(branches[-6:])
            if told:
                told = CHANGES[chance.choice([*CHANGES])](chance, told)
            end = chance.choice(ENDS)(chance) if told else [user(chance.choice(QUESTIONS))]
            asked = [*told, *end]
            which = chance.choice(("root", "root", "root", "other"))
            got = await server.chat(*asked, headers=CHAT, model=which)
            assert got.status == 200, (asked, got.body)
            shown = msgspec.json.decode(b"[" + b",".join(model.prompts[-1].messages) + b"]")
            assert spoken(shown) == spoken(asked)
            if end[-1]["role"] == "user":
                branches.append([*asked, answer(got.text)])
            else:
                branches.append([*told[:-1], answer(told[-1]["content"] + got.text)])
    assert await findings(store) == []
