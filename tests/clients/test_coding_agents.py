"""Programs that write code: two commands at once, then another one, then the answer.

A program is judged by the files that its commands made, by what it printed, by the number of requests that reached the
model, and by what the store holds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing import Gate, Reply, Script, says
from holdfast.testing.upstream import UpstreamRequest
from tests.clients.coding_agents import AIDER, CODING_AGENTS, CodingAgent
from tests.clients.judges import has_streamed
from tests.clients.programs import installed, killed, run
from tests.e2e.world import World
from tests.e2e.world import world as new_world

pytestmark = [pytest.mark.slow, pytest.mark.clients]

TASK = "Make a file both.txt that says oslo and rome."
PARALLEL = ("echo oslo > oslo.txt", "echo rome > rome.txt")
THEN = "cat oslo.txt rome.txt > both.txt"
DONE = "All done."


class Model:
    """Answers a program: two calls side by side, a third, then words. Everything else that it asks is a side call."""

    def __init__(self, agent: CodingAgent, gate: Gate | None = None) -> None:
        self.agent = agent
        self.gate = gate
        self.steps: list[int] = []
        """How many results each request of the task brought along."""

    def __call__(self, request: UpstreamRequest) -> Reply | Script | str:
        body = request.json
        offered = [each["function"]["name"] for each in body.get("tools") or ()]
        if self.agent.tool not in offered:
            return "A title"
        results = sum(each["role"] == "tool" for each in body["messages"])
        self.steps.append(results)
        if results == 0:
            calls = [self.agent.call(each, f"call_{n}") for n, each in enumerate(PARALLEL)]
            return says("Let me see.", calls=calls)
        if results == len(PARALLEL):
            return says(calls=[self.agent.call(THEN, "call_then")])
        gate, self.gate = self.gate, None
        answer = says("All ", "done.")
        return answer.waiting(gate, at=1) if gate is not None else answer


async def told(agent: CodingAgent, how: str, world: World, task: str) -> str:
    """Run a program on a task, and return what it prints."""
    home, work = world.here / "home", world.here / "work"
    home.mkdir()
    work.mkdir()
    base_url = f"{world.url}/c/task/v1" if how.endswith("-named") else f"{world.url}/v1"
    more = agent.settings(home, base_url, how.startswith("streamed"))
    command = await installed(lambda: agent.command(task))
    return await run(command, home=work, may_end_with=(0,), **{**more, "HOME": str(home)})


CASES = [
    pytest.param(each, how, id=f"{each.name}-{how}") for each in CODING_AGENTS for how in each.ways
]


@pytest.mark.parametrize(("agent", "how"), CASES)
async def test_a_program_does_its_task_in_rounds(
    tmp_path: Path, agent: CodingAgent, how: str
) -> None:
    model = Model(agent)
    async with new_world(tmp_path, respond=model) as world:
        await world.start()
        said = await told(agent, how, world, TASK)
        assert (tmp_path / "work" / "both.txt").read_text() == "oslo\nrome\n"
        assert DONE in said
        assert model.steps == [0, 2, 3], "each round asks once"
        assert await has_streamed(world) == how.startswith("streamed")
        await _judge_store(world, agent, how)


@pytest.mark.parametrize("agent", [each for each in CODING_AGENTS if each.retries], ids=str)
async def test_a_program_does_not_notice_that_the_server_was_killed(
    tmp_path: Path, agent: CodingAgent
) -> None:
    """In the middle of the answer to its last result: it asks again, and no command is run twice."""
    gate = Gate()
    model = Model(agent, gate)
    async with new_world(tmp_path, respond=model) as world:
        await world.start()
        said = await killed(world, gate, told(agent, "streamed-named", world, TASK))
        assert (tmp_path / "work" / "both.txt").read_text() == "oslo\nrome\n"
        assert DONE in said
        assert model.steps == [0, 2, 3, 3]
        await _judge_store(world, agent, "streamed-named")


FILE = "both.txt\n```\noslo\nrome\n```\n"


@pytest.mark.parametrize("how", AIDER.ways)
@pytest.mark.parametrize("strikes", [0, 1], ids=["alive", "killed"])
async def test_aider_writes_the_file_that_the_model_answers_with(
    tmp_path: Path, how: str, strikes: int
) -> None:
    gate = Gate()
    answers = iter([says(FILE[:10], FILE[10:]).waiting(gate, at=1)] if strikes else [])
    async with new_world(tmp_path, respond=lambda _: next(answers, says(FILE))) as world:
        await world.start()
        if strikes:
            await killed(world, gate, told(AIDER, how, world, TASK))
        else:
            await told(AIDER, how, world, TASK)
        assert (tmp_path / "work" / "both.txt").read_text() == "oslo\nrome\n"
        assert len(world.upstream.requests) == 1 + strikes
        assert await has_streamed(world) == how.startswith("streamed")
        await _judge_store(world, AIDER, how)


async def _judge_store(world: World, agent: CodingAgent, how: str) -> None:
    listed = (await world.request("GET", "/api/sessions")).json["sessions"]
    named = agent.names_itself or how.endswith("-named")
    assert len(listed) == named, "one conversation, if it has a name"
    await world.verify()
