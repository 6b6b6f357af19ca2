"""What other programs have kept arrives whole: every import verifies, and what was torn is closed and told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from holdfast.cli.session_lookup import find_session
from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import seen_by_model
from holdfast.core.items import Image, Interruption, Item, ToolResult, UserMessage, text_of
from holdfast.ids import SessionKey, Tenant
from holdfast.peers.conversion import convert
from holdfast.peers.foreign_tables import NotTheirs
from holdfast.store.memory_store import MemoryStore
from holdfast.store.transfer.imports import take_in
from holdfast.store.verification.verification import Finding, verify
from holdfast.testing import ManualClock
from tests.peers import files

LOCAL = Tenant("local")


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    opened = MemoryStore(now_ms=ManualClock().now_ms)
    yield opened
    await opened.close()


class Moved(NamedTuple):
    """A conversation, and what became of it."""

    how: str
    turns: int
    repairs: tuple[str, ...]
    session_id: str


async def moved(
    store: MemoryStore, peer: str, write: Callable[[Path], None], here: Path
) -> dict[str, Moved]:
    path = here / "theirs.db"
    if not path.exists():
        write(path)
    found: dict[str, Moved] = {}
    for each in convert(peer, path):
        how, session_id = "empty", ""
        if each.exported:
            file = each.exported.splitlines(keepends=True)
            (taken,) = [one async for one in take_in(store, LOCAL, file)]
            how, session_id = taken.how, taken.session_id
        found[each.name] = Moved(how, each.turns, each.repairs, session_id)
    return found


async def lines(store: MemoryStore, name: str) -> list[str]:
    """The history of a session, a line for each item."""
    return [_line(item) for item in await items(store, name)]


async def items(store: MemoryStore, name: str) -> list[Item]:
    snapshot = await store.snapshot(LOCAL, await find_session(store, LOCAL, SessionKey(name)))
    assert snapshot is not None
    assert not any(isinstance(item, Unreadable) for item in snapshot.items)
    return [item for item in snapshot.items if not isinstance(item, Unreadable)]


def _line(item: Item) -> str:
    match item:
        case ToolResult():
            return f"result {item.outcome}: {text_of(item.content)[:20]}"
        case Interruption():
            return f"interruption: {item.detail}"
        case UserMessage():
            return f"user: {text_of(item.content)}"
    words = getattr(item, "text", "") or text_of(getattr(item, "content", ()))
    return f"{type(item).__name__}: {words or getattr(item, 'name', '')}"


async def assert_sound(store: MemoryStore) -> None:
    assert [each async for each in verify(store) if isinstance(each, Finding)] == []


# ── docker-agent ─────────────────────────────────────────────────────────────────────────────


async def test_sessions_of_docker_agent_arrive_turn_by_turn(
    store: MemoryStore, tmp_path: Path
) -> None:
    found = await moved(store, "docker-agent", files.docker_agent, tmp_path)
    assert {name: each.how for name, each in found.items()} == {
        "trip": "fresh",
        "torn": "fresh",
        "summed": "fresh",
        "nothing": "empty",
    }
    assert found["trip"].turns == 2
    assert found["trip"].repairs == ("a sub-agent's own conversation",)
    assert await lines(store, "trip") == [
        "user: To Oslo",
        "Reasoning: By sea.",
        "ToolCall: ferries",
        "result ok: at eight",
        "AssistantMessage: The ferry leaves at eight.",
        "user: Where is this?",
        "AssistantMessage: In Oslo.",
    ]
    pictured = (await items(store, "trip"))[5]
    assert isinstance(pictured, UserMessage)
    assert any(isinstance(part, Image) for part in pictured.content)
    titles = {each.session.title for each in (await store.sessions(LOCAL, limit=10)).sessions}
    assert titles == {"A trip to Oslo", "Long", ""}
    await assert_sound(store)


async def test_a_call_without_a_result_has_an_unknown_outcome(
    store: MemoryStore, tmp_path: Path
) -> None:
    """Their process may have died before, while or after the tool ran. Nobody knows, and the history says so."""
    found = await moved(store, "docker-agent", files.docker_agent, tmp_path)
    assert found["torn"].repairs == ("turn 1: 1 call had no result",)
    assert await lines(store, "torn") == [
        "user: Book it",
        "AssistantMessage: At once.",
        "ToolCall: ferries",
        "result unknown: Outcome unknown: thi",
        "interruption: as docker-agent left it",
    ]


async def test_a_summary_hides_the_past_from_the_model_and_from_nobody_else(
    store: MemoryStore, tmp_path: Path
) -> None:
    await moved(store, "docker-agent", files.docker_agent, tmp_path)
    snapshot = await store.snapshot(LOCAL, await find_session(store, LOCAL, SessionKey("summed")))
    assert snapshot is not None
    seen = [_line(item) for item in seen_by_model(snapshot) if not isinstance(item, Unreadable)]
    assert "user: Count" not in seen
    assert "Summary: We counted." in seen
    assert "user: Count" in await lines(store, "summed")


async def test_older_files_of_docker_agent_are_read_too(store: MemoryStore, tmp_path: Path) -> None:
    found = await moved(store, "docker-agent", files.old_docker_agent, tmp_path)
    assert found["old"].repairs == ("turn 2: a message had no answer",)
    assert await lines(store, "old") == [
        "user: Hello",
        "AssistantMessage: Hi",
        "user: Still there?",
        "interruption: as docker-agent left it",
    ]


# ── goose ────────────────────────────────────────────────────────────────────────────────────


async def test_sessions_of_goose_arrive_turn_by_turn(store: MemoryStore, tmp_path: Path) -> None:
    found = await moved(store, "goose", files.goose, tmp_path)
    assert [each.how for each in found.values()] == ["fresh"] * 3
    assert await lines(store, "20260301_1") == [
        "user: List the files",
        "Reasoning: ls",
        "ToolCall: shell",
        "result ok: a.txt",
        "ToolCall: shell",
        "result error: not allowed",
        "AssistantMessage: There is a.txt.",
    ]
    assert found["20260301_2"].repairs == ("turn 1: a message had no answer",)
    assert await lines(store, "20260301_3") == [
        "user: Count",
        "AssistantMessage: 1",
        "user: Go on",
        "Summary: We counted to 1.",
        "AssistantMessage: 2",
    ]
    await assert_sound(store)


# ── the Agents SDK ───────────────────────────────────────────────────────────────────────────


async def test_sessions_of_the_agents_sdk_arrive_turn_by_turn(
    store: MemoryStore, tmp_path: Path
) -> None:
    found = await moved(store, "openai-agents", files.openai_agents, tmp_path)
    assert await lines(store, "weather") == [
        "user: What is the weather?",
        "Reasoning: Ask.",
        "ToolCall: weather",
        "result ok: sunny",
        "AssistantMessage: Sunny.",
    ]
    assert found["failed twice"].turns == 2
    assert found["failed twice"].repairs == ("turn 1: a message had no answer",)
    assert set(found["odd"].repairs) == {
        "an item of type 'computer_call'",
        "an item that cannot be read",
        "a result for 'nobody' has no call, and was left out",
    }
    await assert_sound(store)


# ── all of them ──────────────────────────────────────────────────────────────────────────────

EVERY = {
    "docker-agent": files.docker_agent,
    "goose": files.goose,
    "openai-agents": files.openai_agents,
}


@pytest.mark.parametrize("peer", EVERY)
async def test_importing_again_changes_nothing(
    store: MemoryStore, tmp_path: Path, peer: str
) -> None:
    first = await moved(store, peer, EVERY[peer], tmp_path)
    again = await moved(store, peer, EVERY[peer], tmp_path)
    assert {each.session_id for each in again.values()} == {
        each.session_id for each in first.values()
    }
    assert {each.how for each in again.values()} <= {"same", "empty"}


@pytest.mark.parametrize("peer", EVERY)
async def test_their_file_is_only_read(store: MemoryStore, tmp_path: Path, peer: str) -> None:
    path = tmp_path / "theirs.db"
    EVERY[peer](path)
    before = path.read_bytes()
    path.chmod(0o400)
    await moved(store, peer, EVERY[peer], tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("peer", EVERY)
async def test_a_file_of_somebody_else_is_refused(
    store: MemoryStore, tmp_path: Path, peer: str
) -> None:
    (tmp_path / "theirs.db").write_bytes(b"not a database at all, but a text of some length " * 40)
    with pytest.raises(NotTheirs):
        await moved(store, peer, EVERY[peer], tmp_path)
    with pytest.raises(NotTheirs, match="does not exist"):
        list(convert(peer, tmp_path / "absent.db"))


async def test_letters_that_are_none_spoil_themselves_and_nothing_else(
    store: MemoryStore, tmp_path: Path
) -> None:
    path = tmp_path / "theirs.db"
    files.goose(path)
    with apsw.Connection(str(path)) as db:
        db.execute(
            "update messages set content_json = cast(replace(cast(content_json as blob),"
            " cast('There' as blob), x'FF') as text) where content_json like '%There is%'"
        )
        db.execute("update sessions set name = cast(x'FF41' as text) where id = '20260301_1'")
    found = await moved(store, "goose", files.goose, tmp_path)
    assert found["20260301_1"].how == "fresh"
    assert (await lines(store, "20260301_1"))[-1] == "AssistantMessage: � is a.txt."
