"""The loop on real sessions: what only both together can show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import pytest

from holdfast.agents.agent import Team
from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import Image, Inline, Permissions, Text, plain_text
from holdfast.ids import IdempotencyKey, SessionKey, Tenant
from holdfast.loop.player import Player
from holdfast.sessions.session_requests import Ask, Ending
from holdfast.sessions.sessions import Sessions
from holdfast.store.memory_store import MemoryStore
from holdfast.store.outcomes import Attempt
from holdfast.testing import fails, says
from holdfast.tools.tool import ToolOutput, ToolRun
from tests.loop.stage import Deed, agent, scripted, words

ACME = Tenant("acme")
PNG = b"\x89PNG" + bytes(100_000)


async def photograph(run: ToolRun) -> ToolOutput:
    picture = Image(source=Inline(media_type="image/png", data=PNG))
    return ToolOutput(content=(Text(text="Here."), picture))


CAMERA = Deed("shoot", do=photograph)
FLY = Deed("fly")
LOOK = Deed("look", read_only=True)
SHOOT = says(calls=[("shoot", "{}")])
BUTLER = agent(
    "butler", tools=[CAMERA, FLY, LOOK], permissions=Permissions(allow=("shoot",), ask=("fly",))
)
TEAM = Team({"butler": BUTLER}, entry="butler", digest="d1")


@pytest.fixture
async def sessions() -> AsyncIterator[Sessions]:
    async with Sessions(MemoryStore(), Player(lambda _: nullcontext(TEAM))) as opened:
        yield opened


def asking(text: str, **fields: Any) -> Ask:
    messages = (Incoming(role="user", content=plain_text(text)),) if text else ()
    return Ask(tenant=ACME, name=SessionKey("trip"), agent="butler", messages=messages, **fields)


async def ask(sessions: Sessions, text: str, **fields: Any) -> Ending:
    watch = await sessions.submit(asking(text, **fields))
    async with watch:
        return await watch.ended()


async def test_a_picture_that_a_tool_took_is_seen_in_this_turn_and_the_next(
    sessions: Sessions,
) -> None:
    scripted(BUTLER).will(SHOOT, "I see.", "It is still there.")
    assert (await ask(sessions, "Look")).ok
    assert (await ask(sessions, "And now?")).ok
    for prompt in scripted(BUTLER).prompts[-2:]:
        assert b"data:image/png;base64," in b"".join(prompt.messages)
    assert CAMERA.runs[-1].tenant == "acme"


async def test_a_request_that_stores_nothing_sees_its_pictures_too(sessions: Sessions) -> None:
    scripted(BUTLER).will(SHOOT, "I see.")
    watch = sessions.submit_stateless(asking("Look"))
    async with watch:
        assert (await watch.ended()).ok
    assert b"data:image/png;base64," in b"".join(scripted(BUTLER).prompts[-1].messages)


async def test_an_approval_that_comes_with_the_next_request_runs_that_call(
    sessions: Sessions,
) -> None:
    scripted(BUTLER).will(says("May I?", calls=[("fly", "{}")]), "Off we go.")
    ending = await ask(sessions, "To Oslo")
    snapshot = await sessions.snapshot(ACME, ending.session_id)
    assert snapshot is not None
    (fly,) = snapshot.waiting
    assert (await ask(sessions, "", approvals=((fly.id, True),))).ok
    assert FLY.keys == [str(fly.id)]
    assert words(scripted(BUTLER).messages()[-1]) == "fly done"


async def test_a_keyed_retry_asks_the_model_only_for_what_it_has_not_said(
    sessions: Sessions,
) -> None:
    attempt = Attempt(request_hash=b"the same", key=IdempotencyKey("k1"))
    model = scripted(BUTLER)
    model.will(says("Let me see.", calls=[("look", "{}")]), fails("overloaded"))
    failed = await ask(sessions, "How is the weather?", attempt=attempt)
    assert (failed.kept, failed.by) == (False, "model_error")
    asked = len(model.prompts)

    model.will("Cold.")
    assert (await ask(sessions, "How is the weather?", attempt=attempt)).ok

    assert len(LOOK.runs) == 1
    assert [each.messages for each in model.prompts[asked:]] == [model.prompts[asked - 1].messages]
