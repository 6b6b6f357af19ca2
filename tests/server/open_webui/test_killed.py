"""The same person, on a server that is killed: in each phase of a request, at every request of a scene."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from holdfast.testing import Gate, Reply, Script
from holdfast.testing.upstream import UpstreamRequest
from tests.e2e.world import until, world
from tests.server.open_webui.record import AGENTS
from tests.server.open_webui.recording import RecordedRequest, load
from tests.server.open_webui.replay import Replay, ScriptedAnswers, body_of
from tests.server.open_webui.test_recordings import demand_tree, is_side_call


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scene", "phase"),
    [
        ("talk", "before a word"),
        ("talk_with_ids", "in the middle"),
        ("tools", "in the middle"),
        ("tools_with_ids", "after the end"),
    ],
)
async def test_a_kill_in_any_phase_costs_no_message_and_doubles_none(
    scene: str, phase: str, tmp_path: Path
) -> None:
    """The program shows an error where the server died, and the person asks for the answer again."""
    recording, answers = load(scene), ScriptedAnswers()
    gate: Gate | None = None

    def respond(request: UpstreamRequest) -> Reply | Script:
        script = answers.answer(request.json["model"], request.json["messages"])
        if gate is None:
            return script
        return script.waiting(gate, at=0 if phase == "before a word" else len(script.steps) // 2)

    async with world(tmp_path, respond=respond) as server:
        (tmp_path / "agent.yaml").write_text(AGENTS.format(url=server.upstream.base_url))
        await server.start()
        replay = Replay(recording, answers)

        async def killed(request: RecordedRequest, send: Callable[[], Awaitable[None]]) -> None:
            nonlocal gate
            if is_side_call(request.messages):
                await send()
                return
            if phase == "after the end":
                await send()
                await server.kill()
                await server.start()
                return
            gate, asked = Gate(), len(answers.prompts)
            answers.expect(request)
            dying = asyncio.create_task(_ask(server.http, server.url, request))
            await until(lambda: len(answers.prompts) > asked)
            await server.kill()
            await dying
            gate = None
            await server.start()
            await send()

        await replay.play(lambda: server, instead=killed)
        assert (answers.unexpected, answers.left) == ([], [])
        await demand_tree(server, recording, list(replay.lines), cut_off=True)
        await server.stop()
        await server.verify()


async def _ask(http: aiohttp.ClientSession, url: str, request: RecordedRequest) -> None:
    """Send a request that will not be answered whole."""
    try:
        async with http.post(
            f"{url}/v1/chat/completions", headers=request.headers, data=body_of(request)
        ) as response:
            await response.read()
    except aiohttp.ClientError:
        return
    raise AssertionError("the server was to die")
