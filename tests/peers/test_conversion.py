"""What other programs have kept arrives whole: every import verifies, and what was torn is closed and told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from holdfast.cli.session_lookup import find_session
from holdfast.core.codec import Unreadable
from holdfast.core.history.conversation import seen_by_model, seen_by_people
from holdfast.core.items import (
    AssistantMessage,
    Image,
    Interruption,
    Item,
    Reasoning,
    Summary,
    ToolCall,
    ToolResult,
    UserMessage,
    text_of,
)
from holdfast.core.turns.events import Usage
from holdfast.ids import SessionId, SessionKey, Tenant
from holdfast.peers.conversion import convert
from holdfast.peers.foreign_tables import NotTheirs
from holdfast.store.memory_store import MemoryStore
from holdfast.store.transfer.imports import take_in
from holdfast.store.verification.verification import Finding, verify
from holdfast.testing import ManualClock
from tests.peers import files, prompts

LOCAL = Tenant("local")
NAMES = {"openclaw": "sessions.json"}


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
    path = here / NAMES.get(peer, "theirs.db")
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
            return f"interruption: {item.detail[:20]}"
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
        "kept": "fresh",
        "nothing": "empty",
        "summed": "fresh",
        "team": "fresh",
        "torn": "fresh",
        "trip": "fresh",
    }
    assert found["trip"].turns == 2
    assert found["trip"].repairs == ()
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


async def test_usage_models_stars_errors_and_sub_sessions_of_docker_agent_come_along(
    store: MemoryStore, tmp_path: Path
) -> None:
    found = await moved(store, "docker-agent", files.docker_agent, tmp_path)
    assert found["team"].repairs == ("its permissions",)
    assert await lines(store, "team") == [
        "user: Any ferries?",
        "ToolCall: transfer_task",
        "user: Look for ferries",
        "ToolCall: look",
        "result ok: two",
        "AssistantMessage: There are two.",
        "result ok: There are two.",
        "AssistantMessage: Two.",
        "user: Book one",
        "interruption: the provider is over",
        "user: Book one",
        "AssistantMessage: Booked.",
    ]
    inside = (await items(store, "team"))[2:6]
    (call,) = {each.path for each in inside}
    assert call == ((await items(store, "team"))[1].id,)
    turns = await store.turns(LOCAL, SessionId(found["team"].session_id))
    assert [each.ended_by for each in turns] == ["completed", "model_error", "completed"]
    team = await store.session(LOCAL, SessionId(found["team"].session_id))
    assert team is not None and team.settings.attributes == (("starred", "true"),)
    trip = await store.turns(LOCAL, SessionId(found["trip"].session_id))
    used = sum((each.usage for each in trip), Usage())
    assert (used.input_tokens, used.cached_tokens, used.output_tokens) == (100, 90, 5)
    assert used.cost_micros == 2000
    answer = (await items(store, "trip"))[4]
    assert isinstance(answer, AssistantMessage)
    assert [each.json for each in answer.extras] == ['{"model":"openai/gpt-x"}']
    kept = await store.turns(LOCAL, SessionId(found["kept"].session_id))
    assert sum(each.usage.cost_micros for each in kept) == 500_000


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
        "interruption: as docker-agent left",
    ]


async def test_a_summary_hides_the_past_from_the_model_and_from_nobody_else(
    store: MemoryStore, tmp_path: Path
) -> None:
    await moved(store, "docker-agent", files.docker_agent, tmp_path)
    snapshot = await store.snapshot(LOCAL, await find_session(store, LOCAL, SessionKey("summed")))
    assert snapshot is not None
    seen = [_line(item) for item in seen_by_model(snapshot)]
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
        "interruption: as docker-agent left",
    ]


# ── goose ────────────────────────────────────────────────────────────────────────────────────


async def test_sessions_of_goose_arrive_turn_by_turn(store: MemoryStore, tmp_path: Path) -> None:
    found = await moved(store, "goose", files.goose, tmp_path)
    assert [each.how for each in found.values()] == ["fresh"] * 4 + ["empty"]
    assert found["20260301_5"].repairs == ("a sub-agent's own session",)
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
        "AssistantMessage: We counted to 1.",
        "user: Go on",
        "AssistantMessage: 2",
    ]
    snapshot = await store.snapshot(LOCAL, SessionId(found["20260301_4"].session_id))
    assert snapshot is not None
    people = [_line(each) for each in seen_by_people(snapshot) if not isinstance(each, Unreadable)]
    assert "user: /review" in people and "AssistantMessage: Only you see this." in people
    assert "user: Review the changes with care." not in people
    used = [each.usage for each in await store.turns(LOCAL, snapshot.session_id)]
    assert sum(each.input_tokens for each in used) == 100
    assert sum(each.output_tokens for each in used) == 20
    await assert_sound(store)


async def test_goose_files_of_lines_are_read_too(store: MemoryStore, tmp_path: Path) -> None:
    path = tmp_path / "20250101_old.jsonl"
    files.goose_lines(path)
    (made,) = convert("goose", path)
    assert (made.name, made.turns) == ("20250101_old", 1)
    assert made.repairs == ("a message that cannot be read",)
    assert b'"title":"Old talk"' in made.exported and b'"input_tokens":4' in made.exported


# ── openclaw ─────────────────────────────────────────────────────────────────────────────────


async def test_sessions_of_openclaw_arrive_turn_by_turn(store: MemoryStore, tmp_path: Path) -> None:
    found = await moved(store, "openclaw", files.openclaw, tmp_path)
    assert found["agent:main:gone"].repairs == ("its transcript s-2.jsonl is not there",)
    assert found["agent:main:main"].repairs == (
        "1 entries of other branches",
        "the state of the extension 'todo'",
    )
    assert await lines(store, "agent:main:main") == [
        "user: Old question",
        "AssistantMessage: Old answer",
        "user: List",
        "Reasoning: hm",
        "ToolCall: exec",
        "result ok: a.txt",
        "AssistantMessage: There is a.txt.",
        "user: More",
        "AssistantMessage: Ha",
        "interruption: overloaded",
        "user: It is ten.",
        "user: More?",
        "AssistantMessage: No.",
    ]
    turns = await store.turns(LOCAL, SessionId(found["agent:main:main"].session_id))
    assert sum(each.usage.cost_micros for each in turns) == 5000
    await assert_sound(store)
    (alone,) = convert("openclaw", tmp_path / "s-1.jsonl")
    assert (alone.name, alone.turns) == ("s-1", len(turns))


# ── what the model sees ──────────────────────────────────────────────────────────────────────

PROMPTS: dict[str, tuple[Callable[[Path, str], list[str]], tuple[tuple[str, str], ...]]] = {
    "docker-agent": (
        prompts.docker_agent,
        tuple((each, each) for each in ("trip", "torn", "summed", "kept", "team")),
    ),
    "goose": (
        prompts.goose,
        tuple((each, each) for each in (f"20260301_{n}" for n in (1, 2, 3, 4))),
    ),
    "openclaw": (
        prompts.openclaw,
        (("agent:main:main", "s-1"), ("agent:main:fresh", "s-3"), ("agent:main:kept", "s-4")),
    ),
}


@pytest.mark.parametrize("peer", PROMPTS)
async def test_the_model_sees_what_it_would_have_seen_there(
    store: MemoryStore, tmp_path: Path, peer: str
) -> None:
    await moved(store, peer, EVERY[peer], tmp_path)
    sent, sessions = PROMPTS[peer]
    for name, theirs in sessions:
        snapshot = await store.snapshot(LOCAL, await find_session(store, LOCAL, SessionKey(name)))
        assert snapshot is not None
        seen = list(map(_sent, seen_by_model(snapshot)))
        expected = sent(tmp_path / NAMES.get(peer, "theirs.db"), theirs)
        assert [each for each in seen if each] == expected, name


def _sent(item: Item) -> str:
    match item:
        case UserMessage():
            return f"user: {text_of(item.content)}"
        case AssistantMessage():
            return f"assistant: {text_of(item.content)}"
        case ToolCall():
            return f"call: {item.name}"
        case ToolResult():
            return "result: ?" if item.outcome == "unknown" else f"result: {text_of(item.content)}"
        case Summary():
            return f"summary: {item.text}"
        case Reasoning():
            return ""
    return type(item).__name__


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
    "openclaw": files.openclaw,
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
    path = tmp_path / NAMES.get(peer, "theirs.db")
    EVERY[peer](path)
    before = path.read_bytes()
    path.chmod(0o400)
    await moved(store, peer, EVERY[peer], tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("peer", EVERY)
async def test_a_file_of_somebody_else_is_refused(
    store: MemoryStore, tmp_path: Path, peer: str
) -> None:
    (tmp_path / NAMES.get(peer, "theirs.db")).write_bytes(
        b"not a database at all, but a text of some length " * 40
    )
    with pytest.raises(NotTheirs):
        await moved(store, peer, EVERY[peer], tmp_path)
    with pytest.raises(NotTheirs, match=r"does not exist|cannot be read"):
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
