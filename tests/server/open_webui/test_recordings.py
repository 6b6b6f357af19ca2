"""A person in Open WebUI: the model is shown what that person sees, and the program's own tree is stored.

The recordings are of a real browser (`record.py`); here they are played on a server in this process, and on one that is
killed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from holdfast.models.model import Prompt
from holdfast.store.memory_store import MemoryStore
from holdfast.store.store import Store
from holdfast.testing import Script, ScriptedModel
from tests.server.open_webui.recording import SCENES, Recording, load
from tests.server.open_webui.replay import (
    Replay,
    Said,
    ScriptedAnswers,
    Server,
    branch_said,
    lines_of,
    told,
)
from tests.server.stubs import Serving, agent, serving
from tests.store.verification.test_verification import findings


@asynccontextmanager
async def answered_by(answers: ScriptedAnswers, store: Store) -> AsyncIterator[Serving]:
    """A server with the two agents of the recordings."""

    def model(name: str) -> ScriptedModel:
        def otherwise(prompt: Prompt) -> Script:
            data = b"[" + b",".join(prompt.messages) + b"]"
            return answers.answer(name, msgspec.json.decode(data))

        return ScriptedModel(otherwise=otherwise)

    agents = [agent(model(each), name=each) for each in ("root", "other")]
    async with serving(*agents, store=store) as server:
        yield server


def is_in(branch: Said, line: Said) -> bool:
    """Whether a line begins with a branch. Of a question the person may see only the end."""
    pairs = zip(branch, line, strict=False)
    return len(branch) <= len(line) and all(
        ours == theirs or (ours[0] == theirs[0] == "user" and theirs[1].endswith(ours[1]))
        for ours, theirs in pairs
    )


def is_side_call(request: Sequence[dict[str, Any]]) -> bool:
    text = str(request[0]["content"])
    return text.startswith("### Task") and "<context>" not in text


async def demand_tree(server: Server, recording: Recording, lines: Sequence[str]) -> None:
    """Each branch of the program's tree is a line, and each line is what the person saw at some time, or a side call."""
    held = await lines_of(server, lines)
    branches = [branch_said(each) for each in recording.branches]
    for branch in branches:
        assert any(is_in(branch, line) for line in held), f"{branch} is a line"
    known = [*branches, *(branch_said(each.seen) for each in recording.steps)]
    sides = [told(each.messages) for each in recording.requests if is_side_call(each.messages)]
    for line in held:
        is_side = line[:1] in sides and len(line) == 2
        ends = [each for each in known if len(each) == len(line) and is_in(each, line)]
        assert is_side or ends, f"{line} was seen"


@pytest.mark.parametrize("scene", SCENES)
async def test_the_model_is_shown_what_the_person_sees(scene: str) -> None:
    recording, answers, store = load(scene), ScriptedAnswers(), MemoryStore()
    async with answered_by(answers, store) as server:
        replay = Replay(recording, answers)
        await replay.play(lambda: server)
        assert (answers.unexpected, answers.left) == ([], [])
        await demand_tree(server, recording, list(replay.lines))
        listed = (await server.get("/api/sessions")).json["sessions"]
        chats = {each.headers.get("X-OpenWebUI-Chat-Id") for each in recording.requests}
        kept = {each for each in chats if each and not each.startswith("temporary:")}
        assert len(listed) == len(kept), "one entry for each chat"
    assert await findings(store) == []
