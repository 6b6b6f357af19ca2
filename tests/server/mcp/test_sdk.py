"""The official SDK's client: it negotiates, elicits and tells of progress by itself, in both revisions."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from mcp.client.client import Client
from mcp_types import ElicitRequestParams, ElicitResult

from holdfast.testing import ScriptedModel, says
from tests.server.mcp.peer import CURRENT, PREVIOUS
from tests.server.stubs import HeldTool, serving
from tests.server.test_chat_approvals import careful


@pytest.mark.parametrize(("mode", "revision"), [("auto", CURRENT), ("legacy", PREVIOUS)])
async def test_a_call_is_made_approved_and_followed(
    mode: Literal["auto", "legacy"], revision: str
) -> None:
    tool = HeldTool("pay", held=False)
    model = ScriptedModel(says("May I?", calls=[("pay", '{"kr":5}')]), says("Done."))
    questions: list[str] = []
    steps: list[str | None] = []

    async def decide(context: Any, params: ElicitRequestParams) -> ElicitResult:
        questions.append(params.message)
        return ElicitResult(action="accept", content={})

    async def follow(progress: float, total: float | None, message: str | None) -> None:
        steps.append(message)

    async with serving(careful(model, tool)) as server:
        async with Client(f"{server.url}/mcp", mode=mode, elicitation_callback=decide) as client:
            assert client.protocol_version == revision
            (only,) = (await client.list_tools()).tools
            asked = {"message": "pay", "conversation": "trip"}
            answer = await client.call_tool(only.name, asked, progress_callback=follow)
            assert answer.structured_content is not None
            assert answer.structured_content["answer"].endswith("Done.")
            assert answer.structured_content["status"] == "completed"
            (listed,) = (await client.list_resources()).resources
            assert listed.title == "pay"
    assert tool.runs == 1
    assert len(questions) == 1 and '"kr": 5' in questions[0]
    assert "running pay" in steps
