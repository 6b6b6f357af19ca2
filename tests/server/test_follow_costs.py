"""What a turn of a chat program costs the store, however long the chat is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

from holdfast.store.memory_store import MemoryStore
from holdfast.testing import ScriptedModel
from tests.server.stubs import Serving, agent, serving

CHAT = {"X-OpenWebUI-Chat-Id": "chat-1"}

BY_THE_INDEXER = re.compile(r"search_|data_version|indexed_|length\(body\)")
"""Statements that bring what was said into the search index, some time after the turn."""


class Steps:
    """The steps that SQLite's machine has made for turns."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, event: dict[str, Any]) -> None:
        if not BY_THE_INDEXER.search(event["sql"]):
            self.count += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]


@contextmanager
def counted(store: MemoryStore) -> Iterator[Steps]:
    found = Steps()
    store.db.trace_v2(apsw.SQLITE_TRACE_PROFILE, found.note)
    yield found
    store.db.trace_v2(0)


async def say(server: Serving, texts: list[str], *, ids: bool) -> str:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": each} for n, each in enumerate(texts)]
    at = len(texts)
    headers = {"X-History-Parent": f"a{at - 1}", "X-History-Answer": f"a{at + 1}"} if ids else {}
    answer = await server.chat(*messages, headers={**CHAT, **headers})
    assert answer.status == 200, answer.body
    return answer.headers["x-session-id"]


async def cost_at(length: int, *, ids: bool) -> int:
    """What the next turns of a chat with this many messages cost."""
    model, store = ScriptedModel(otherwise=lambda _: f"A{len(model.prompts)}"), MemoryStore()
    async with serving(agent(model), store=store) as server:
        texts = [f"message {n}" for n in range(length - 1)]
        line = await say(server, texts, ids=ids)
        with counted(store) as cost:
            for n in range(1, 4):
                texts += [f"A{n}", f"next {n}"]
                assert await say(server, texts, ids=ids) == line, "in place"
    return cost.count


@pytest.mark.parametrize("ids", [False, True])
async def test_a_turn_at_5000_messages_costs_the_store_what_one_at_10_does(ids: bool) -> None:
    """Found by content, or by the ids of the program."""
    few, many = await cost_at(10, ids=ids), await cost_at(5_000, ids=ids)
    assert many < 1.5 * few
