"""An agent of another server as tools: both forms of the protocol, and servers that answer anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.execution import execute
from holdfast.tools.permissions import permission_for
from holdfast.tools.tool import ToolOutput, instruction_of
from holdfast.tools.toolsets.a2a import (
    A2aToolset,
    RemoteAgent,
    outcome_of,
    read_card,
    result_in,
    unfinished,
)
from holdfast.tools.toolsets.openapi_document import Unusable
from tests.agents.web import Web, serving
from tests.tools.tool_calls import KEY, Blobs, call_of, said

SKILLS = [{"id": "Plan-Trip", "name": "Trips", "description": "Plans trips."}]


class Agent:
    """An A2A server: it answers each method with what a test has put there."""

    def __init__(self, site: Web) -> None:
        self.site = site
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answers: dict[str, list[Any]] = {}
        site.handlers["/rpc"] = self._answer

    def card(self, *, newer: bool = False, **more: Any) -> None:
        url = self.site.url("/rpc")
        where: dict[str, Any] = (
            {"supportedInterfaces": [
                {"url": self.site.url("/grpc"), "protocolBinding": "GRPC", "protocolVersion": "1.0"},
                {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            ]}
            if newer
            else {"url": url, "protocolVersion": "0.3.0"}
        )  # fmt: skip
        card = {"name": "Guide", "description": "Knows the way.", "skills": SKILLS, **where, **more}
        self.site.files["/.well-known/agent-card.json"] = msgspec.json.encode(card)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        answer = self.answers[body["method"]].pop(0)
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], **answer})


@asynccontextmanager
async def remote() -> AsyncIterator[Agent]:
    async with serving() as site:
        yield Agent(site)


def toolset_of(agent: Agent, **more: Any) -> A2aToolset:
    async def pause(seconds: float) -> None:
        pass

    there = RemoteAgent(url=agent.site.url(""), allow_private=True, **more)
    return A2aToolset(there, pause=pause)


async def asked(toolset: A2aToolset, words: str = "Where to?") -> ToolOutput:
    (tool,) = await toolset.tools()
    return await execute(tool, call_of({"message": words}), Blobs())


def text(words: str) -> dict[str, Any]:
    return {"kind": "text", "text": words}


async def test_each_skill_is_a_tool_that_needs_a_permission() -> None:
    async with remote() as agent:
        agent.card()
        toolset = toolset_of(agent, name="guide")
        (tool,) = await toolset.tools()
        assert tool.spec.name == "guide_plan_trip", "as docker-agent names it"
        assert permission_for(tool.spec, arguments={}) == "deny"
        assert "Plans trips." in tool.spec.description
        assert "Guide is an agent on another server: Knows the way." in instruction_of(toolset)


async def test_an_agent_without_skills_is_one_tool() -> None:
    async with remote() as agent:
        agent.card(skills=[])
        (tool,) = await toolset_of(agent).tools()
        assert tool.spec.name == "guide"


async def test_a_message_answers_a_message() -> None:
    async with remote() as agent:
        agent.card()
        agent.answers["message/send"] = [{"result": {"kind": "message", "parts": [text("North.")]}}]
        output = await asked(toolset_of(agent, headers={"X-Key": "k"}))
        assert (output.outcome, said(output)) == ("ok", "North.")
        message = agent.asked[0]["params"]["message"]
        assert (message["role"], message["parts"]) == ("user", [text("Where to?")])
        assert message["messageId"] == KEY, "a repetition can be recognised by it"
        assert agent.headers[0]["X-Key"] == "k"


async def test_a_task_is_asked_about_until_it_has_ended() -> None:
    async with remote() as agent:
        agent.card()
        agent.answers["message/send"] = [{"result": {"id": "t1", "status": {"state": "submitted"}}}]
        agent.answers["tasks/get"] = [
            {"result": {"id": "t1", "status": {"state": "working"}}},
            {"result": {"id": "t1", "status": {"state": "completed"},
                        "artifacts": [{"parts": [text("North."), {"kind": "data", "data": {"km": 3}}]}]}},
        ]  # fmt: skip
        assert said(await asked(toolset_of(agent))) == 'North.\n{"km":3}'
        assert [each["method"] for each in agent.asked] == [
            "message/send",
            "tasks/get",
            "tasks/get",
        ]


async def test_the_newer_form_is_spoken_where_the_card_offers_it() -> None:
    async with remote() as agent:
        agent.card(newer=True)
        agent.answers["SendMessage"] = [
            {"result": {"task": {"id": "t1", "status": {"state": "TASK_STATE_WORKING"}}}}
        ]
        done = {"id": "t1", "status": {"state": "TASK_STATE_COMPLETED",
                                       "message": {"parts": [{"text": "North."}]}}}  # fmt: skip
        agent.answers["GetTask"] = [{"result": done}]
        assert said(await asked(toolset_of(agent))) == "North."
        assert agent.asked[0]["params"]["message"]["role"] == "ROLE_USER"
        assert agent.headers[0]["A2A-Version"] == "1.0"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": {"code": -32600, "message": "No."}}, "Guide answers: No."),
        ({"result": {"id": "t", "status": {"state": "failed"}}}, "could not do it (failed)"),
        ({"result": {"id": "t", "status": {"state": "auth-required"}}}, "to sign in"),
        ({"result": {"kind": "message", "parts": []}}, "without words"),
        ({"result": 7}, "neither a message nor a task"),
    ],
)
async def test_what_went_wrong_is_told(answer: dict[str, Any], words: str) -> None:
    async with remote() as agent:
        agent.card()
        agent.answers["message/send"] = [answer]
        output = await asked(toolset_of(agent))
        assert output.outcome == "error" and words in said(output)


async def test_a_question_of_the_agent_is_passed_on() -> None:
    async with remote() as agent:
        agent.card()
        status = {"state": "input-required", "message": {"parts": [text("When?")]}}
        agent.answers["message/send"] = [{"result": {"id": "t", "status": status}}]
        output = await asked(toolset_of(agent))
        assert (
            output.outcome == "ok"
            and "asks before it goes on" in said(output)
            and "When?" in said(output)
        )


async def test_credentials_do_not_go_where_only_the_card_leads() -> None:
    async with remote() as agent, remote() as other:
        agent.card(url=other.site.url("/rpc"))
        other.answers["message/send"] = [{"result": {"kind": "message", "parts": [text("Hi.")]}}]
        assert said(await asked(toolset_of(agent, headers={"X-Key": "k"}))) == "Hi."
        assert "X-Key" not in other.headers[0]


async def test_a_server_that_is_not_there_leaves_the_agent_without_its_tools() -> None:
    async with remote() as agent:
        toolset = toolset_of(agent)
        assert await toolset.tools() == ()
        assert "it has no agent card: it answers 404" in instruction_of(toolset)


async def test_a_private_address_is_refused() -> None:
    toolset = A2aToolset(RemoteAgent(url="http://127.0.0.1:9"))
    assert await toolset.tools() == ()
    assert "private or special" in instruction_of(toolset)


_MEMBERS = """
    result error task message parts status state id text artifacts skills url name supportedInterfaces protocolBinding
""".split()
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_MEMBERS), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(said_so=_JSON, newer=st.booleans())
def test_no_answer_breaks_more_than_its_call(said_so: Any, newer: bool) -> None:
    try:
        card = read_card(msgspec.json.encode(said_so), "https://a.example")
        assert card.skills and card.endpoint
    except Unusable:
        pass
    try:
        found = result_in(said_so if isinstance(said_so, dict) else {}, newer=newer)
    except Unusable:
        return
    assert unfinished(found) is None or isinstance(unfinished(found), str)
    assert outcome_of(found, "Guide").content
