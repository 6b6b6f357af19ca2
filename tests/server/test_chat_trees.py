"""Any tree of edits and regenerations that a chat program can make, with side calls anywhere, is stored as that tree."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel
from tests.server.chat_program import ChatProgram, joined
from tests.server.stubs import agent, serving
from tests.store.verification.test_verification import findings


@pytest.mark.parametrize("seed", range(24))
async def test_each_prompt_is_the_branch_and_each_branch_is_a_line(seed: int) -> None:
    chance, store = Random(seed), MemoryStore()
    words = ["Yes.", "No.", "<think>hm</think>Well"] if seed % 3 == 0 else []

    def reply(prompt: object) -> str:
        return (
            chance.choice(words) if words and chance.random() < 0.5 else f"A{len(model.prompts)}."
        )

    model = ScriptedModel(otherwise=reply)
    agents = [agent(model, name=each) for each in ("root", "other")]
    async with serving(*agents, store=store) as server:
        program = ChatProgram(server, model, ids=seed % 4 == 1)
        for n in range(14):
            answers = program.answers
            pick = chance.choice(answers) if answers else None
            how = {
                "stream": chance.random() < 0.5,
                "model": "other" if chance.random() < 0.15 else "root",
                "window": 4 if seed % 5 == 2 else None,
                "passages": f"Passages of {n}.\n"
                if seed % 5 == 3 and chance.random() < 0.5
                else "",
            }
            match chance.choice(("say", "say", "say", "again", "edit", "side", "on", "last")):
                case "say":
                    await program.say(chance.choice(("Go on", f"Q{n}")), pick, **how)
                case "last" if answers:
                    await program.say(f"Q{n}", answers[-1], **how)
                case "again" if pick is not None and pick.parent is not None:
                    await program.answer(pick.parent, **how)
                case "edit" if pick is not None and pick.parent is not None:
                    await program.say(f"E{n}", pick.parent.parent, **how)
                case "on" if pick is not None and pick not in [
                    each.parent.parent for each in answers if each.parent
                ]:
                    await program.go_on(pick, **how)
                case _:
                    await program.side_call(f"### Task: {chance.choice(('title', 'tags'))}")
        listed = (await server.get("/api/sessions")).json["sessions"]
        assert len(listed) == 1, "one entry for the chat"
        lines = [*listed, *(await server.get("/api/sessions?anonymous=true")).json["sessions"]]
        held = []
        for line in lines:
            items = await server.items(line["id"])
            told = [
                (each["type"], "".join(part.get("text", "") for part in each["content"]))
                for each in items
                if each["type"] in ("user", "assistant")
            ]
            held.append(joined(told))
    for leaf in program.answers:
        branch = joined([(each.role, each.text) for each in leaf.branch])
        assert any(is_line(branch, line) for line in held), f"{leaf.branch} is a line"
    assert await findings(store) == []


def is_line(branch: list[tuple[str, str]], line: list[tuple[str, str]]) -> bool:
    """Whether a line begins with a branch; passages may stand before its questions."""
    return len(branch) <= len(line) and all(
        role == held_role and (held == text or (role == "user" and held.endswith(text)))
        for (role, text), (held_role, held) in zip(branch, line, strict=False)
    )
