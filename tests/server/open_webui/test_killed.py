"""The same person, on a server that is killed: in each phase of a request, in every scene.

`make test` kills once in each scene, with ids or without, each time in another phase and at another request; the
thorough tests kill in every phase, at every request of every recording.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import pytest

from holdfast.core.turns.deltas import TextDelta
from holdfast.testing import Gate, Reply, Script
from holdfast.testing.upstream import UpstreamRequest
from tests.e2e.world import World, until, world
from tests.server.open_webui.record import AGENTS
from tests.server.open_webui.recording import SCENES, RecordedRequest, Recording, load
from tests.server.open_webui.replay import Replay, ScriptedAnswers, body_of, until_said
from tests.server.open_webui.test_recordings import demand_tree, is_side_call

BEFORE, MIDDLE, SAID, COMMITTED, ENDED, ASIDE = PHASES = (
    "before a word",
    "in the middle",
    "after the last word",
    "after the commit, unread",
    "after the end",
    "in a side call",
)


def _cases() -> Iterator[object]:
    for scene in SCENES:
        for phase in PHASES:
            yield pytest.param(
                scene, phase, None, marks=pytest.mark.thorough, id=f"{scene}, {phase}"
            )
    for n, pair in enumerate(zip(SCENES[::2], SCENES[1::2], strict=True)):
        scene, phase = pair[n % 2], PHASES[n % len(PHASES)]
        yield pytest.param(scene, phase, n, id=f"{scene}, {phase}, once")


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
    """Kills a server in one phase: of every request of the person, or of one of them; or of side calls."""

    def __init__(
        self, recording: Recording, answers: ScriptedAnswers, phase: str, at: int | None
    ) -> None:
        dying = [
            each for each in recording.requests if is_side_call(each.messages) == (phase == ASIDE)
        ]
        self._dying = dying if at is None else [dying[at % len(dying)]]
        self._answers = answers
        self._phase = phase
        self._gate: Gate | None = None

    def respond(self, request: UpstreamRequest) -> Reply | Script:
        script = self._answers.answer(request.json["model"], request.json["messages"])
        if self._gate is None:
            return script
        return script.waiting(self._gate, at=self._place(script))

    def _place(self, script: Script) -> int:
        """The step of an answer before which the server dies."""
        if self._phase == BEFORE:
            return 0
        return len(script.steps) if self._phase == SAID else len(script.steps) // 2

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
        heard = asyncio.Event()
        dying = asyncio.create_task(_ask(server, request, self._words(request), heard))
        await until(lambda: len(self._answers.prompts) > asked)
        if not request.is_stopped:
            await (self._gate.reached.wait() if self._gate else _rested(server))
            if self._words(request):
                await heard.wait()
        await server.kill()
        dying.cancel()
        await asyncio.wait([dying])
        self._gate = None
        await server.start()
        if self._phase == ASIDE:
            return  # the program does without
        await send()
        if self._phase == COMMITTED:
            self._answers.forget(request)  # the answer of the first turn is given again

    def _words(self, request: RecordedRequest) -> str:
        """What the program shows of an answer before the server dies."""
        if self._gate is None or not request.stream:
            return ""
        steps = request.script.steps[: self._place(request.script)]
        return "".join(each.text for each in steps if isinstance(each, TextDelta))


async def _ask(server: World, request: RecordedRequest, words: str, heard: asyncio.Event) -> None:
    """Send a request, and read these words of the answer. Its id is not that of the answer which is asked for later."""
    headers = dict(request.headers)
    if "X-History-Answer" in headers:
        headers["X-History-Answer"] += "-given-up"
    try:
        async with server.http.post(
            f"{server.url}/v1/chat/completions", headers=headers, data=body_of(request)
        ) as response:
            if words:
                await until_said(response, words)
                heard.set()
            await asyncio.Event().wait()
    except aiohttp.ClientError:
        return


async def _rested(server: World) -> None:
    """Wait until no turn is open: all that was said is committed."""
    while True:
        async with server.http.get(f"{server.url}/api/turns?state=open") as answer:
            if not (await answer.json())["turns"]:
                return
