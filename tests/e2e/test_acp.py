"""An editor and its agents: the protocol's own client against `holdfast acp`, killed where it hurts."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from holdfast.testing import refuses, says
from tests.e2e.scripted_editor import EditorProcess, ScriptedEditor, joined, started
from tests.e2e.world import World
from tests.e2e.world import world as new_world
from tests.tools.mcp_means import DESK


def edits(path: Path, old: str, new: str) -> tuple[str, str]:
    """A call that edits a file."""
    change = {"path": str(path), "edits": [{"oldText": old, "newText": new}]}
    return "edit_file", json.dumps(change)


def reads(path: Path) -> tuple[str, str]:
    return "read_file", json.dumps({"path": str(path)})


# ── a process of its own, with a server in it ────────────────────────────────────────────────


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[World]:
    """A store and a model, and no server."""
    async with new_world(tmp_path) as found:
        yield found


async def opened(world: World, editor: ScriptedEditor) -> EditorProcess:
    return await started(editor, str(world.here / "agent.yaml"), "--store", world.store)


async def test_an_unsaved_buffer_is_edited_and_a_kill_in_the_middle_edits_nothing_twice(
    alone: World,
) -> None:
    """The editor is killed while its user is asked about the edit. The next one loads the session and sees it whole; the
    model is told that the outcome is not known, looks, and edits what is still to be edited."""
    file = alone.here / "poem.txt"
    file.write_text("saved\n")
    alone.upstream.will(
        says("I read it.", calls=[reads(file)]),
        says("I change it.", calls=[edits(file, "two", "2")]),
    )
    first = ScriptedEditor(alone.here)
    first.buffers[str(file)] = "one\ntwo\n"
    first.deciding.clear()
    process = await opened(alone, first)
    session = await first.open()
    asking = asyncio.create_task(first.say(session, "Write digits"))
    await first.until(lambda: first.questions)
    (question,) = first.questions
    assert question["content"] == [
        {"type": "diff", "path": str(file), "oldText": "one\ntwo\n", "newText": "one\n2\n"}
    ]
    assert question["locations"] == [{"path": str(file), "line": 2}]
    await process.kill()
    with pytest.raises((ConnectionError, acp.RequestError)):
        await asking
    assert (first.writes, file.read_text()) == (0, "saved\n")

    alone.upstream.will(
        says("I look again.", calls=[reads(file)]),
        says("Now I change it.", calls=[edits(file, "two", "2")]),
        "Done.",
    )
    second = ScriptedEditor(alone.here)
    second.buffers = dict(first.buffers)
    process = await opened(alone, second)
    (listed,) = (await second.agent.list_sessions(cwd=str(alone.here))).sessions
    assert (listed.session_id, listed.title) == (session, "Write digits")
    await second.agent.load_session(cwd=str(alone.here), session_id=session, mcp_servers=[])
    await second.until(lambda: "Done." in second.text())
    assert second.text("user_message_chunk") == "Write digits"
    assert second.text() == "I read it.I change it.I look again.Now I change it.Done."
    assert (second.writes, second.buffers[str(file)]) == (1, "one\n2\n")
    assert file.read_text() == "saved\n", "an unsaved buffer stays unsaved"
    results = [
        message["content"]
        for message in alone.upstream.requests[-1].json["messages"]
        if message["role"] == "tool"
    ]
    assert results[0] == "one\ntwo\n"
    assert results[1].startswith("Outcome unknown")
    assert results[3].startswith("Wrote ")
    assert await process.leave() == 0
    await alone.verify()


async def test_a_prompt_goes_on_at_the_next_start_and_load_shows_it_whole(alone: World) -> None:
    gate = alone.hold("a long story")
    first = ScriptedEditor(alone.here)
    process = await opened(alone, first)
    session = await first.open()
    asking = asyncio.create_task(first.say(session, "a long story"))
    await gate.reached.wait()
    await process.kill()
    with pytest.raises((ConnectionError, acp.RequestError)):
        await asking
    alone.gates.clear()
    second = ScriptedEditor(alone.here)
    process = await opened(alone, second)
    await second.agent.load_session(cwd=str(alone.here), session_id=session, mcp_servers=[])
    whole = "This is the whole answer to a long story "
    await second.until(lambda: second.text().endswith(whole))
    assert second.text("user_message_chunk") == "a long story"
    assert (await second.say(session, "and then?")).stop_reason == "end_turn"
    assert alone.sent[-1] == ["a long story", "and then?"]
    assert await process.leave() == 0
    await alone.verify()


async def test_leave_for_the_session_does_not_reach_the_agents_own_file_and_store(
    alone: World,
) -> None:
    """An agent that may edit its own file could allow itself everything."""
    own, other = alone.here / "agent.yaml", alone.here / "other.yaml"
    other.write_text("Be brief.")
    alone.upstream.will(
        says(calls=[edits(other, "brief", "long")]),
        says(calls=[edits(own, "Be brief.", "Be bold.")]),
        says(calls=[("read_multiple_files", '{"paths":["agent.yaml","other.yaml"]}')]),
        says(calls=[reads(alone.here / "store.db")]),
        "I see.",
    )
    editor = ScriptedEditor(alone.here)
    editor.answer = lambda question: "always" if "always" in question["options"] else "never"
    process = await opened(alone, editor)
    await editor.say(await editor.open(), "Change yourself")
    asked = [
        ("always" in each["options"], each["title"].split(":")[0]) for each in editor.questions
    ]
    assert asked == [
        (True, "edit_file"),
        (False, "edit_file"),
        (True, "read_multiple_files"),
        (False, "read_file"),
    ]
    assert set(editor.buffers) == {str(other)}
    results = [
        message["content"]
        for message in alone.upstream.requests[-1].json["messages"]
        if message["role"] == "tool"
    ]
    assert "Be brief." in results[2] and "provider: fake" not in results[2]
    assert await process.leave() == 0


async def test_a_stray_print_does_not_reach_the_editor(alone: World, tmp_path: Path) -> None:
    """The standard output belongs to the protocol, whatever an agent's file prints."""
    (tmp_path / "noisy.py").write_text(
        "import os\nfrom holdfast import Agent\nfrom holdfast.models.demo.demo_model import DemoModel\n"
        "print('loading', flush=True)\nos.write(1, b'more')\n"
        "agent = Agent(name='noisy', model=DemoModel())\n"
    )
    editor = ScriptedEditor(tmp_path)
    process = await started(editor, "noisy:agent", "--store", alone.store)
    assert (await editor.say(await editor.open(), "Hello")).stop_reason == "end_turn"
    assert await process.leave() == 0


# ── joined to a server ───────────────────────────────────────────────────────────────────────


async def test_an_approval_is_a_question_and_leave_for_the_session_is_kept_by_the_server(
    world: World,
) -> None:
    editor = ScriptedEditor(world.here)
    editor.answer = lambda question: "always"
    async with joined(editor, world.url):
        session = await editor.open("shop")
        await editor.say(session, "order it")
        assert [each["title"] for each in editor.questions] == ["order"]
        assert set(editor.questions[0]["options"].values()) == {
            "allow_once",
            "allow_always",
            "reject_once",
        }
        await editor.say(session, "order it again")
    assert len(editor.questions) == 1
    assert world.runs == 2
    again = ScriptedEditor(world.here)
    async with joined(again, world.url):
        await again.say(await again.open("shop"), "order a third")
        await again.say(await again.open("elsewhere"), "order here")
    assert len(again.questions) == 1, "for this session, and in every window of it"


async def test_a_rejected_call_does_not_run_and_the_agent_hears_of_it(world: World) -> None:
    editor = ScriptedEditor(world.here)
    editor.answer = lambda question: "never"
    async with joined(editor, world.url):
        session = await editor.open()
        await editor.say(session, "order it")
    assert world.runs == 0
    assert editor.call("order")["status"] == "failed"
    assert "Refused" in str(world.upstream.requests[-1].json["messages"][-1])


async def test_a_turn_that_waits_for_the_user_and_for_the_editor_is_answered_at_once(
    world: World,
) -> None:
    file = world.here / "a.txt"
    world.upstream.will(says(calls=[("order", "{}"), reads(file)]), "Both done.")
    editor = ScriptedEditor(world.here)
    editor.buffers[str(file)] = "unsaved"
    async with joined(editor, world.url):
        await editor.say(await editor.open(), "do both")
    tools = [m for m in world.upstream.requests[-1].json["messages"] if m["role"] == "tool"]
    assert sorted(str(each["content"]).strip() for each in tools) == ["ordered", "unsaved"]
    offered = [each["function"]["name"] for each in world.upstream.requests[-1].json["tools"]]
    assert {"edit_file", "shell", "order"} <= set(offered), "the turn after it has all tools, too"


async def test_a_command_runs_in_the_editors_terminal_after_a_question(world: World) -> None:
    world.upstream.will(says(calls=[("shell", '{"cmd":"make test"}')]), "All green.")
    editor = ScriptedEditor(world.here)
    async with joined(editor, world.url):
        await editor.say(await editor.open(), "Run the tests")
    assert editor.commands == [["/bin/sh", "-c", "make test"], ["release", "term_1"]]
    assert [each["title"] for each in editor.questions] == ["shell: make test"]
    shown = editor.call("shell")
    assert (shown["status"], shown["kind"]) == ("completed", "execute")
    assert shown["content"] == [{"type": "terminal", "terminalId": "term_1"}]
    assert world.upstream.requests[-1].json["messages"][-1]["content"] == "done\n"


async def test_what_the_user_was_not_shown_is_not_written(world: World) -> None:
    """The buffer changes while the user reads the question."""
    file = world.here / "a.txt"
    world.upstream.will(says(calls=[edits(file, "a", "b")]), "Never mind.")
    editor = ScriptedEditor(world.here)
    editor.buffers[str(file)] = "a"

    def meanwhile(question: dict[str, Any]) -> str:
        editor.buffers[str(file)] = "a and more"
        return "once"

    editor.answer = meanwhile
    async with joined(editor, world.url):
        await editor.say(await editor.open(), "Edit it")
    assert (editor.writes, editor.buffers[str(file)]) == (0, "a and more")
    assert editor.call("edit_file")["status"] == "failed"


async def test_files_outside_of_the_directory_are_asked_about_every_time(world: World) -> None:
    outside = world.here.parent / "secret.txt"
    link = world.here / "link.txt"
    outside.write_text("secret")
    link.symlink_to(outside)
    world.upstream.will(says(calls=[reads(outside)]), says(calls=[reads(link)]), "I have seen it.")
    editor = ScriptedEditor(world.here)
    async with joined(editor, world.url):
        await editor.say(await editor.open(), "Look")
    assert [set(each["options"].values()) for each in editor.questions] == [
        {"allow_once", "reject_once"}
    ] * 2


async def test_the_directory_is_looked_into_after_one_question(world: World) -> None:
    (world.here / "found.md").write_text("a needle here")
    look = ("list_directory", '{"path":"."}')
    search = ("search_files_content", '{"path":".","query":"needle"}')
    world.upstream.will(says(calls=[look]), says(calls=[search]), "Found.")
    editor = ScriptedEditor(world.here)
    editor.answer = lambda question: "always"
    async with joined(editor, world.url):
        await editor.say(await editor.open(), "Find it")
    assert len(editor.questions) == 1
    assert "found.md" in str(world.upstream.requests[-1].json["messages"][-1]["content"])


async def test_a_prompt_is_cancelled_while_its_user_is_asked(world: World) -> None:
    """The calls go on waiting, nothing runs, and the next message goes on without them."""
    file = world.here / "a.txt"
    world.upstream.will(says(calls=[edits(file, "a", "b")]))
    editor = ScriptedEditor(world.here)
    editor.buffers[str(file)] = "a"
    editor.deciding.clear()
    editor.answer = lambda question: None
    async with joined(editor, world.url):
        session = await editor.open()
        asking = asyncio.create_task(editor.say(session, "Edit it"))
        await editor.until(lambda: editor.questions)
        await editor.agent.cancel(session_id=session)
        assert (await asking).stop_reason == "cancelled"
        editor.deciding.set()
        assert (await editor.say(session, "Something else")).stop_reason == "end_turn"
    assert editor.writes == 0
    assert "Not answered" in str(world.upstream.requests[-1].json["messages"])


async def test_another_window_watches_and_does_not_answer(world: World) -> None:
    """Two windows with one conversation: the calls are for the window whose user has prompted."""
    file = world.here / "a.txt"
    world.upstream.will(says("Hm.", calls=[edits(file, "a", "b")]), "Edited.")
    first, second = ScriptedEditor(world.here), ScriptedEditor(world.here)
    first.buffers[str(file)] = second.buffers[str(file)] = "a"
    first.deciding.clear()
    async with joined(first, world.url), joined(second, world.url):
        session = await first.open("shared")
        asking = asyncio.create_task(first.say(session, "Edit it"))
        await first.until(lambda: first.questions)
        await second.agent.load_session(cwd=str(world.here), session_id=session, mcp_servers=[])
        await second.until(lambda: second.told("available_commands_update"))
        first.deciding.set()
        assert (await asking).stop_reason == "end_turn"
    assert (first.writes, second.writes, second.questions) == (1, 0, [])


async def test_a_session_that_is_opened_again_can_still_be_cancelled(world: World) -> None:
    gate = world.hold("long")
    editor = ScriptedEditor(world.here)
    async with joined(editor, world.url):
        session = await editor.open("again")
        asking = asyncio.create_task(editor.say(session, "long"))
        await gate.reached.wait()
        await editor.agent.resume_session(cwd=str(world.here), session_id=session, mcp_servers=[])
        await editor.agent.cancel(session_id=session)
        assert (await asking).stop_reason == "cancelled"


async def test_a_turn_of_another_client_is_watched_and_its_calls_are_left_alone(
    world: World,
) -> None:
    """Another client's `read_file` is not ours, whatever its name."""
    world.upstream.will(says("One moment.", calls=[("read_file", '{"path":"a.txt"}')]))
    tool = {"type": "function", "function": {"name": "read_file", "parameters": {}}}
    asked = await world.chat("Read yours", to="theirs", tools=[tool])
    assert asked.json["choices"][0]["finish_reason"] == "tool_calls"
    gate = world.hold("more")
    editor, there = ScriptedEditor(world.here), {"cwd": str(world.here), "mcp_servers": []}
    async with joined(editor, world.url):
        await editor.agent.load_session(session_id="theirs", **there)
        asking = asyncio.create_task(world.chat("more", to="theirs"))
        await gate.reached.wait()
        await editor.agent.load_session(session_id="theirs", **there)
        await editor.until(lambda: editor.text().endswith("whole "))
        gate.release()
        assert (await asking).status == 200
        await editor.until(lambda: editor.text().endswith("answer to more "))
    assert editor.reads == 0


async def test_a_mode_narrows_to_reading(world: World) -> None:
    """Here and on the server: a tool that the operator allows by name is not run either."""
    file = world.here / "a.txt"
    world.let_tools_go()
    world.upstream.will(
        says(calls=[reads(file)]), says(calls=[("act", "{}"), ("order", "{}")]), "I only look."
    )
    editor = ScriptedEditor(world.here)
    editor.buffers[str(file)] = "a"
    async with joined(editor, world.url):
        session = await editor.open()
        await editor.agent.set_session_mode(session_id=session, mode_id="read-only")
        await editor.say(session, "Look")
        with pytest.raises(acp.RequestError, match="no mode"):
            await editor.agent.set_session_mode(session_id=session, mode_id="boss")
    (shown,) = editor.told("current_mode_update")
    assert shown["currentModeId"] == "read-only"
    offered = {each["function"]["name"] for each in world.upstream.requests[-1].json["tools"]}
    assert {"read_file", "look"} <= offered
    assert not offered & {"edit_file", "write_file", "shell", "act", "order"}
    assert (world.runs, editor.questions) == (0, [])


async def test_sessions_are_listed_forked_resumed_closed_and_deleted(world: World) -> None:
    editor, here = ScriptedEditor(world.here), str(world.here)
    async with joined(editor, world.url):
        agent, session = editor.agent, await editor.open()
        await editor.say(session, "first")
        fork = await agent.fork_session(session_id=session, cwd=here, mcp_servers=[])
        await editor.say(fork.session_id, "in the fork")
        assert world.sent[-1] == ["first", "in the fork"]
        page = await agent.list_sessions(cwd=here)
        more = await agent.list_sessions(cwd=here, cursor=page.next_cursor)
        assert [each.session_id for each in page.sessions] == [session]
        assert [each.session_id for each in more.sessions] == [fork.session_id]
        assert {each.cwd for each in (*page.sessions, *more.sessions)} == {here}
        elsewhere = await agent.list_sessions(cwd="/")
        assert elsewhere.sessions == []
        assert len((await agent.list_sessions()).sessions) == 2
        await agent.close_session(session_id=session)
        with pytest.raises(acp.RequestError, match="load it"):
            await editor.say(session, "closed")
        await agent.resume_session(session_id=session, cwd=here, mcp_servers=[])
        shown = len(editor.told("user_message_chunk"))
        await editor.say(session, "second")
        assert len(editor.told("user_message_chunk")) == shown == 0, "resuming shows nothing again"
        assert world.sent[-1] == ["first", "second"]
        await agent._conn.send_request("session/delete", {"sessionId": fork.session_id})
        with pytest.raises(acp.RequestError) as missing:
            await agent.load_session(cwd=here, session_id=fork.session_id, mcp_servers=[])
        assert missing.value.code == -32002


async def test_what_does_not_fit_is_refused_and_the_connection_goes_on(world: World) -> None:
    editor = ScriptedEditor(world.here)
    async with joined(editor, world.url):
        send = editor.agent._conn.send_request
        for method, params, code in (
            ("session/teleport", {}, -32601),
            ("session/prompt", {"sessionId": 5}, -32602),
            ("session/new", {"cwd": "not/absolute", "mcpServers": []}, -32602),
            ("session/load", {"cwd": "/", "sessionId": "nowhere", "mcpServers": []}, -32002),
        ):
            with pytest.raises(acp.RequestError) as refused:
                await send(method, params)
            assert refused.value.code == code, method
        assert (await editor.say(await editor.open(), "still there")).stop_reason == "end_turn"


async def test_a_to_do_list_is_a_plan_and_commands_of_the_agent_are_offered(alone: World) -> None:
    file = alone.here / "agent.yaml"
    more = "    toolsets:\n      - type: todo\n"
    commands = "    commands:\n      review: {description: Looks at a change., instruction: Review this change.}\n"
    file.write_text(file.read_text().replace("    toolsets:\n", commands + more))
    await alone.start()
    create = ("create_todos", '{"descriptions":["read","write"]}')
    update = ("update_todos", '{"updates":[{"id":"1","status":"completed"}]}')
    alone.upstream.will(says(calls=[create]), says(calls=[update]), "I have a plan.")
    editor = ScriptedEditor(alone.here)
    async with joined(editor, alone.url):
        session = await editor.open()
        await editor.until(lambda: editor.told("available_commands_update"))
        (offered,) = editor.told("available_commands_update")
        names = [each["name"] for each in offered["availableCommands"]]
        assert names == ["review", "retry", "compact"]
        await editor.say(session, "/review of today")
        assert alone.sent[-1] == ["Review this change.\n\nof today"]
        plans = [
            [(each["content"], each["status"]) for each in told["entries"]]
            for told in editor.told("plan")
        ]
        assert plans == [
            [("read", "pending"), ("write", "pending")],
            [("read", "completed"), ("write", "pending")],
        ]
        again = ScriptedEditor(alone.here)
        async with joined(again, alone.url):
            await again.agent.load_session(cwd=str(alone.here), session_id=session, mcp_servers=[])
            assert again.told("plan") == editor.told("plan"), "a load shows the plan as well"


async def test_a_turn_that_broke_off_is_continued_by_a_command(world: World) -> None:
    world.let_tools_go()
    world.upstream.will(says("Let me.", calls=[("act", "{}")]), refuses(500))
    editor = ScriptedEditor(world.here)
    async with joined(editor, world.url):
        session = await editor.open()
        with pytest.raises(acp.RequestError, match="/retry goes on"):
            await editor.say(session, "act now")
        world.upstream.will("Done.")
        assert (await editor.say(session, "/retry")).stop_reason == "end_turn"
        assert editor.text().endswith("Done.")
        await editor.say(session, "/retry")
    assert "nothing to go on with" in editor.text()
    assert (world.runs, len(world.sent)) == (1, 3)


async def test_an_mcp_server_of_the_editor_is_started_after_a_question_and_its_tools_run_here(
    world: World,
) -> None:
    given = schema.McpServerStdio(name="desk", command=sys.executable, args=[str(DESK)], env=[])
    greet = ("desk_greet", '{"name":"Ada"}')
    world.upstream.will(says(calls=[greet]), "She was greeted.")
    editor = ScriptedEditor(world.here)
    async with joined(editor, world.url):
        session = await editor.open(mcp_servers=[given])
        assert editor.questions == [], "nothing is started before it is needed"
        await editor.say(session, "Greet Ada")
    first, second = editor.questions
    assert str(DESK) in first["content"][0]["content"]["text"]
    assert second["title"] == "desk_greet"
    assert world.upstream.requests[-1].json["messages"][-1]["content"] == "Hello, Ada."

    refused = ScriptedEditor(world.here)
    refused.answer = lambda question: "never"
    async with joined(refused, world.url):
        await refused.say(await refused.open(mcp_servers=[given]), "Hello")
    offered = {each["function"]["name"] for each in world.upstream.requests[-1].json["tools"]}
    assert not any(name.startswith("desk") for name in offered)
