"""A fake model server on loopback that answers as scripted, and misbehaves on request.

It speaks OpenAI's chat completions (`/v1/chat/completions`) and Responses (`/v1/responses`), Anthropic's Messages
(`/v1/messages`) and Google's Gemini (`/v1beta/models/X:streamGenerateContent`), with the same scripts on every
wire.

    async with FakeUpstream(says("Hello, ", "you."), refuses(429, headers={"retry-after": "2"})) as upstream:
        model = OpenAIModel("any", base_url=upstream.base_url)
        ...
    assert upstream.requests[0].json["messages"][-1]["content"] == "Hi"

It is a real server on a real socket, and its bytes are those of the real API, so any client can use
it. `python -m holdfast.testing.upstream` runs one for demos and measurements.
"""

from __future__ import annotations

from holdfast.testing.upstream.replies import Reply as Reply
from holdfast.testing.upstream.replies import UpstreamRequest as UpstreamRequest
from holdfast.testing.upstream.replies import refuses as refuses
from holdfast.testing.upstream.server import FakeUpstream as FakeUpstream
