"""From an upstream's socket to a client's: every token arrives as a frame of its own, whole and in order,
however the bytes were cut or came together on the way, and whether or not the turn is replayable."""

from __future__ import annotations

import pytest

from holdfast.models.providers.openai_chat import OpenAIModel
from holdfast.testing import FakeUpstream, Reply, says
from holdfast.testing.upstream.replies import UpstreamRequest, streamed
from tests.server.stubs import agent, serving

WORDS = [f"wörd{n}\u2028 " for n in range(300)]


def body() -> bytes:
    request = UpstreamRequest("POST", "/v1/chat/completions", {}, b'{"model":"m","stream":true}')
    frames = streamed(Reply(script=says(*WORDS)), request, number=1)
    return b"".join(each for each in frames if isinstance(each, bytes))


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "once"}], ids=["plain", "replayable"])
@pytest.mark.parametrize("write_bytes", [None, 17, 1000, 4096])
async def test_every_token_is_one_frame(write_bytes: int | None, headers: dict[str, str]) -> None:
    async with FakeUpstream(Reply(body=body(), write_bytes=write_bytes)) as upstream:
        model = OpenAIModel("m", base_url=upstream.base_url, proxy="")
        async with serving(agent(model)) as server:
            answer = await server.chat("Go on", to="trip", headers=headers, stream=True)
            items = await server.items("trip")
        await model.close()
    chunks = [each["choices"][0]["delta"].get("content") for each in answer.events[:-1]]
    assert [each for each in chunks if each] == WORDS
    assert answer.events[-1] == "[DONE]"
    assert items[-1]["content"][0]["text"] == "".join(WORDS)
