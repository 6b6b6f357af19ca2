"""The same person, on a server that is killed: in each phase of a request, in every scene.

`make test` kills once in each scene, with ids or without, each time in another phase and at another request; the
thorough tests kill at every request of every recording.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from holdfast.testing import Gate, Reply, Script
from holdfast.testing.upstream import UpstreamRequest
from tests.e2e.world import World, until, world
from tests.server.open_webui.record import AGENTS
from tests.server.open_webui.recording import SCENES, RecordedRequest, Recording, load
from tests.server.open_webui.replay import Replay, ScriptedAnswers, body_of
from tests.server.open_webui.test_recordings import demand_tree, is_side_call

BEFORE, MIDDLE, COMMITTED, ENDED = PHASES = (
    "before a word",
    "in the middle",
    "after the commit, unread",
    "after the end",
)


def _cases() -> Iterator[object]:
    for n, scene in enumerate(SCENES):
        for phase in PHASES:
            yield pytest.param(
                scene, phase, None, marks=pytest.mark.thorough, id=f"{scene}, {phase}"
            )
        if scene.endswith("_with_ids") == bool(n // 2 % 2):
            yield pytest.param(scene, PHASES[n // 2 % len(PHASES)], n, id=f"{scene}, once")


@pytest.mark.slow
@pytest.mark.parametrize(("scene", "phase", "at"), [*_cases()])
async def test_a_kill_in_any_phase_costs_no_message_and_doubles_none(
    scene: str, phase: str, at: int | None, tmp_path: Path
) -> None:
    """The program shows an error where the server died, and the person asks for the answer again."""
    recording, answers = load(scene), ScriptedAnswers()
    killer = Killer(recording, answers, phase, at)
    async with world(tmp_path, respond=killer.respond) as server:
        (tmp_path / "agent.yaml").write_text(AGENTS.format(url=server.upstream.base_url))
        await server.start()
        replay = Replay(recording, answers)
        await replay.play(lambda: server, instead=lambda *sent: killer.send(server, *sent))
        assert (answers.unexpected, answers.left) == ([], [])
        await demand_tree(server, recording, list(replay.lines))
        await server.stop()
        await server.verify()


class Killer:
    """Kills a server in one phase: of every request of the person, or of one of them."""

    def __init__(
        self, recording: Recording, answers: ScriptedAnswers, phase: str, at: int | None
    ) -> None:
        own = [each for each in recording.requests if not is_side_call(each.messages)]
        self._dying = own if at is None else [own[at % len(own)]]
        self._answers = answers
        self._phase = phase
        self._gate: Gate | None = None

    def respond(self, request: UpstreamRequest) -> Reply | Script:
        script = self._answers.answer(request.json["model"], request.json["messages"])
        if self._gate is None:
            return script
        return script.waiting(self._gate, at=0 if self._phase == BEFORE else len(script.steps) // 2)

    async def send(
        self, server: World, request: RecordedRequest, send: Callable[[], Awaitable[None]]
    ) -> None:
        if not any(request is each for each in self._dying):
            await send()
            return
        if self._phase == ENDED:
            await send()
            await server.kill()
            await server.start()
            return
        asked = len(self._answers.prompts)
        self._gate = None if self._phase == COMMITTED else Gate()
        self._answers.expect(request)
        dying = asyncio.create_task(_ask(server.http, server.url, request))
        await until(lambda: len(self._answers.prompts) > asked)
        if self._phase == COMMITTED and not request.is_stopped:
            await _rested(server)
        await server.kill()
        dying.cancel()
        await asyncio.wait([dying])
        self._gate = None
        await server.start()
        await send()
        if self._phase == COMMITTED:
            self._answers.forget(request)  # the answer of the first turn is given again


async def _rested(server: World) -> None:
    """Wait until no turn is open: all that was said is committed."""
    while True:
        async with server.http.get(f"{server.url}/api/turns?state=open") as answer:
            if not (await answer.json())["turns"]:
                return


async def _ask(http: aiohttp.ClientSession, url: str, request: RecordedRequest) -> None:
    """Send a request, and do not read the answer."""
    try:
        async with http.post(
            f"{url}/v1/chat/completions", headers=request.headers, data=body_of(request)
        ):
            await asyncio.Event().wait()
    except aiohttp.ClientError:
        return
