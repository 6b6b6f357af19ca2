"""Any tree of edits and regenerations that a chat program can make, with side calls anywhere, is stored as that tree."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel
from tests.server.chat_program import ChatProgram, joined
from tests.server.stubs import agent, serving
from tests.store.verification.test_verification import findings

Said = list[tuple[str, str]]

ASKED = ("say", "say", "say", "again", "edit", "side", "on", "last", "last")
CHANGED = ("delete", "change", "clone")
"""What a person does in the program alone: the next request shows it."""


@pytest.mark.parametrize("seed", range(24))
async def test_each_prompt_is_the_branch_and_each_branch_is_a_line(seed: int) -> None:
    chance, store = Random(seed), MemoryStore()
    words = ["Yes.", "No.", "<think>hm</think>Well"] if seed % 3 == 0 else []
    pictures = ["AAAA", "BBBB"] if seed % 4 == 3 else []
    """Alike but for a picture: the words tell less."""

    def reply(prompt: object) -> str:
        return (
            chance.choice(words) if words and chance.random() < 0.5 else f"A{len(model.prompts)}."
        )

    model = ScriptedModel(otherwise=reply)
    agents = [agent(model, name=each) for each in ("root", "other")]
    async with serving(*agents, store=store) as server:
        programs = [ChatProgram(server, model, ids=seed % 4 == 1)]
        branches: list[Said] = []
        for n in range(16):
            program = chance.choice(programs)
            answers = program.answers
            pick = chance.choice(answers) if answers else None
            how: dict[str, Any] = {
                "stream": chance.random() < 0.5,
                "model": "other" if chance.random() < 0.15 else "root",
                "window": 4 if seed % 5 == 2 else None,
                "passages": f"Passages of {n}.\n"
                if seed % 5 == 3 and chance.random() < 0.5
                else "",
            }
            shows = {"picture": chance.choice((None, *pictures))} if pictures else {}
            leaf = None
            match chance.choice((*ASKED, *CHANGED)):
                case "say":
                    leaf = await program.say(
                        chance.choice(("Go on", f"Q{n}")), pick, **how, **shows
                    )
                case "last" if answers:
                    leaf = await program.say(f"Q{n}", answers[-1], **how)
                case "again" if pick is not None and pick.parent is not None:
                    leaf = await program.answer(pick.parent, **how)
                case "edit" if pick is not None and pick.parent is not None:
                    text = pick.parent.text if shows else f"E{n}"
                    leaf = await program.say(text, pick.parent.parent, **how, **shows)
                case "on" if pick is not None and pick not in [
                    each.parent.parent for each in answers if each.parent
                ]:
                    await program.go_on(pick, **how)
                    leaf = pick
                case "delete" if pick is not None:
                    program.delete(pick)
                case "change" if pick is not None and pick.parent is not None:
                    if pick.parent.picture is not None:
                        pick.parent.picture = "CCCC"
                    else:
                        chance.choice((pick, pick.parent)).text = f"Changed {n}"
                case "clone" if pick is not None:
                    programs.append(program.cloned(pick, chat=f"chat-{n + 2}"))
                case _:
                    about = (pick.parent.text,) if pick is not None and pick.parent else ()
                    await program.side_call(f"### Task: {chance.choice(('title', 'tags'))}", *about)
            if leaf is not None:
                seen = leaf.branch if how["window"] is None else leaf.branch[-4:]
                branches.append(joined([(each.role, each.text) for each in seen]))
        listed = (await server.get("/api/sessions")).json["sessions"]
        chats = {key for each in listed for key in each["keys"]}
        assert len(listed) == len(chats), "one entry for each chat"
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
    for branch in branches:
        assert any(is_line(branch, line) for line in held), f"{branch} is a line"
    assert await findings(store) == []


def is_line(branch: Said, line: Said) -> bool:
    """Whether a line begins with a branch, or has it after messages that were cut off or deleted at the beginning.
    Passages may stand before its questions, and its last answer may have been continued."""
    return any(_begins(branch, line[cut:]) for cut in range(len(line)))


def _begins(branch: Said, line: Said) -> bool:
    pairs = [*zip(branch, line, strict=False)]
    (_, last), (_, held_last) = pairs[-1]
    return (
        len(branch) <= len(line)
        and held_last.startswith(last)
        and all(
            role == held_role and (held == text or (role == "user" and held.endswith(text)))
            for (role, text), (held_role, held) in pairs[:-1]
        )
    )
