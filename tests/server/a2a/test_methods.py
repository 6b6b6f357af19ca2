"""Every method of the protocol by its SDK's own client, over both bindings and in both versions."""

from __future__ import annotations

import asyncio
from base64 import b64encode

import msgspec
import pytest
from a2a.utils.errors import (
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from holdfast.ids import TurnId
from holdfast.models.model import ModelFailed
from holdfast.testing import Gate, ScriptedModel, says
from tests.server.a2a.sdk_peer import (
    EVERY_WAY,
    WAYS,
    Binding,
    Version,
    last_state,
    peer,
    text_of,
    told,
)
from tests.server.api.test_approvals import careful
from tests.server.stubs import HeldTool, Serving, agent, serving, until

Way = tuple[Binding, Version]


@EVERY_WAY
async def test_a_message_gets_the_task_with_its_answer(way: Way) -> None:
    async with (
        serving(agent(ScriptedModel("First.", "Second.")), published=("*",)) as server,
        peer(server.url, way=way) as other,
    ):
        first = await other.send("hello", messageId="1", contextId="trip")
        assert (first["contextId"], text_of(first)) == ("trip", "First.")
        assert first["status"]["state"] == "TASK_STATE_COMPLETED"
        (said,) = first["history"]
        assert (said["messageId"], said["parts"]) == ("1", [{"text": "hello"}])
        assert (said["taskId"], said["contextId"]) == (first["id"], "trip")
        second = await other.send("again", messageId="2", contextId="trip")
        assert text_of(second) == "Second." and second["id"] != first["id"]
        assert [each["id"] for each in await server.turns("trip")] == [second["id"], first["id"]]
        assert await other.get(first["id"]) == first
        assert "history" not in await other.get(first["id"], historyLength=0) or way[1] == "0.3"


@EVERY_WAY
async def test_a_stream_tells_the_answer_piece_by_piece_and_ends_with_the_status(way: Way) -> None:
    model = ScriptedModel(says("Oslo ", "is ", "there."))
    async with (
        serving(agent(model), published=("*",)) as server,
        peer(server.url, way=way) as other,
    ):
        events = await other.streamed("where?", messageId="1", contextId="trip")
        assert events[0]["task"]["status"]["state"] == "TASK_STATE_WORKING"
        assert told(events) == "Oslo is there."
        assert last_state(events) == "TASK_STATE_COMPLETED"
        assert sum("artifactUpdate" in each for each in events) > 2
        again = await other.streamed("where?", messageId="1", contextId="trip")
        assert again[0]["task"]["id"] == events[0]["task"]["id"]
        assert (told(again), last_state(again)) == ("Oslo is there.", "TASK_STATE_COMPLETED")
        assert len(model.prompts) == 1


@EVERY_WAY
async def test_a_context_that_no_client_named_goes_on_under_its_id(way: Way) -> None:
    model = ScriptedModel("First.", "Second.")
    async with (
        serving(agent(model), published=("*",)) as server,
        peer(server.url, way=way) as other,
    ):
        first = await other.send("hello", messageId="1")
        assert first["contextId"].startswith("conv_")
        second = await other.send("more", messageId="2", contextId=first["contextId"])
        assert second["contextId"] == first["contextId"]
        assert [each["type"] for each in await server.items(first["contextId"])].count("user") == 2


@EVERY_WAY
async def test_a_task_that_fails_says_why(way: Way) -> None:
    model = ScriptedModel(says("Half").failing(ModelFailed("out of order"), at=1), "Whole.")
    async with (
        serving(agent(model), published=("*",)) as server,
        peer(server.url, way=way) as other,
    ):
        failed = await other.send("hello", messageId="1", contextId="trip")
        assert failed["status"]["state"] == "TASK_STATE_FAILED"
        assert "out of order" in failed["status"]["message"]["parts"][0]["text"]
        assert failed["metadata"]["holdfast"]["code"] == "upstream_error"
        assert not text_of(failed)
        got = await other.get(failed["id"])
        assert got["status"]["state"] == "TASK_STATE_FAILED"
        again = await other.send("hello", messageId="1", contextId="trip")
        assert text_of(again) == "Whole."


@EVERY_WAY
async def test_a_message_that_is_not_waited_for_is_answered_at_once(way: Way) -> None:
    gate = Gate()
    model = ScriptedModel(says("Done.").waiting(gate, at=0))
    async with (
        serving(agent(model), published=("*",)) as server,
        peer(server.url, way=way) as other,
    ):
        options = {"returnImmediately": True}
        task = await other.send("go", messageId="1", contextId="trip", configuration=options)
        assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
        await gate.reached.wait()
        running = await other.get(task["id"])
        assert running["status"]["state"] == "TASK_STATE_WORKING"
        assert running["history"][0]["messageId"] == "1"
        watching = asyncio.create_task(other.subscribed(task["id"]))
        await until(lambda: server.sessions.load().watchers == 1)
        gate.release()
        events = await watching
        assert events[0]["task"]["id"] == task["id"]
        assert (told(events), last_state(events)) == ("Done.", "TASK_STATE_COMPLETED")
        with pytest.raises(UnsupportedOperationError, match="has ended"):
            await other.subscribed(task["id"])


@EVERY_WAY
async def test_a_task_is_stopped_once(way: Way) -> None:
    gate = Gate()
    model = ScriptedModel(says("Long ", "story.").waiting(gate, at=1))
    async with (
        serving(agent(model), published=("*",)) as server,
        peer(server.url, way=way) as other,
    ):
        options = {"returnImmediately": True}
        task = await other.send("go", messageId="1", contextId="trip", configuration=options)
        await gate.reached.wait()
        stopped = await other.cancel(task["id"])
        assert stopped["status"]["state"] == "TASK_STATE_CANCELED"
        with pytest.raises(TaskNotCancelableError):
            await other.cancel(task["id"])
        with pytest.raises(TaskNotFoundError):
            await other.cancel(server.sessions.mint(TurnId))


@EVERY_WAY
async def test_an_approval_is_input_that_another_agent_cannot_give(way: Way) -> None:
    tool = HeldTool("pay", held=False)
    model = ScriptedModel(says("May I?", calls=[("pay", "{}")]), otherwise=lambda _: "Paid.")
    async with (
        serving(careful(model, tool), published=("*",)) as server,
        peer(server.url, way=way) as other,
    ):
        asked = await other.send("pay", messageId="1", contextId="trip")
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert "pay" in asked["status"]["message"]["parts"][0]["text"]
        with pytest.raises(UnsupportedOperationError, match="another agent cannot decide"):
            await other.send("yes", messageId="2", taskId=asked["id"])
        assert tool.runs == 0
        with pytest.raises(TaskNotCancelableError, match="waits for a person"):
            await other.cancel(asked["id"])
        (only,) = await other.subscribed(asked["id"])
        assert only["task"]["id"] == asked["id"]
        await decide(server, asked["id"], approve=True)
        paid = await other.get(asked["id"])
        assert (paid["status"]["state"], tool.runs) == ("TASK_STATE_COMPLETED", 1)
        assert text_of(paid) == "May I?Paid."


async def decide(server: Serving, turn_id: str, *, approve: bool) -> None:
    """A person decides, and the turn that carries it out comes to its end."""
    waiting = (await server.get(f"/api/turns/{turn_id}/approvals")).json["approvals"]
    body = {"decisions": {each["id"]: {"approve": approve} for each in waiting}}
    answer = await server.request(
        "POST", f"/api/turns/{turn_id}/approvals", data=msgspec.json.encode(body)
    )
    assert answer.status == 202, answer.body
    await server.ended_turn(answer.json["id"])


async def test_a_message_in_place_of_a_decision_refuses_the_calls() -> None:
    tool = HeldTool("pay", held=False)
    model = ScriptedModel(says("May I?", calls=[("pay", "{}")]), otherwise=lambda _: "Well.")
    async with (
        serving(careful(model, tool), published=("*",)) as server,
        peer(server.url) as other,
    ):
        asked = await other.send("pay", messageId="1", contextId="trip")
        await other.send("never mind", messageId="2", contextId="trip")
        left = await other.get(asked["id"])
        assert (left["status"]["state"], tool.runs) == ("TASK_STATE_CANCELED", 0)


async def test_a_message_for_a_running_task_reaches_it() -> None:
    tool = HeldTool("look", read_only=True)
    model = ScriptedModel(says("", calls=[("look", "{}")]), otherwise=lambda _: "Both.")
    async with (
        serving(agent(model, tool), published=("*",)) as server,
        peer(server.url) as other,
    ):
        first = asyncio.create_task(other.send("one", messageId="1", contextId="trip"))
        await tool.begun.wait()
        (running,) = await server.turns("trip")
        second = asyncio.create_task(other.send("two", messageId="2", taskId=running["id"]))
        await until(lambda: bool(server.sessions._owner.playing[0]._steers))
        tool.let_go.set()
        assert (await second)["id"] == (await first)["id"] == running["id"]
        ended = await other.get(running["id"])
        assert [each["parts"][0]["text"] for each in ended["history"]] == ["one", "two"]
        again = await other.send("two", messageId="2", taskId=running["id"])
        assert again["id"] == running["id"]
        with pytest.raises(UnsupportedOperationError, match="has ended"):
            await other.send("three", messageId="3", taskId=running["id"])


@EVERY_WAY
async def test_what_is_wrong_is_told_in_the_protocols_own_errors(way: Way) -> None:
    async with (
        serving(agent(ScriptedModel("Yes.")), published=("*",)) as server,
        peer(server.url, way=way) as other,
    ):
        with pytest.raises(TaskNotFoundError):
            await other.get("turn_nothing")
        with pytest.raises(TaskNotFoundError):
            await other.send("hi", messageId="1", taskId="turn_nothing")
        with pytest.raises(InvalidParamsError, match="contextId"):
            await other.send("hi", messageId="1", contextId="two words")
        with pytest.raises(InvalidParamsError, match="conv_"):
            await other.send("hi", messageId="1", contextId="conv_01jd0000000000000000000000")
        with pytest.raises(InvalidParamsError):
            await other.send("  ", messageId="1", contextId="trip")
        await other.send("hi", messageId="1", contextId="trip")
        with pytest.raises(InvalidParamsError, match="different message"):
            await other.send("something else", messageId="1", contextId="trip")
        with pytest.raises(PushNotificationNotSupportedError):
            await other.ask_for_push("any")
        push = {"taskPushNotificationConfig": {"url": "http://127.0.0.1:9/"}}
        with pytest.raises(PushNotificationNotSupportedError):
            await other.send("hi", messageId="2", configuration=push)


@EVERY_WAY
async def test_files_and_data_reach_the_agent_and_come_back_as_they_were_sent(way: Way) -> None:
    model = ScriptedModel("Seen.")
    picture = b64encode(b"\x89PNG" + bytes(40_000)).decode()
    parts: list[dict[str, object]] = [
        {"text": "look"},
        {"raw": picture, "mediaType": "image/png"},
        {"raw": b64encode(b"%PDF-1").decode(), "mediaType": "application/pdf", "filename": "a.pdf"},
        {"url": "https://example.com/a.png", "mediaType": "image/png"},
        {"data": {"n": 1.0}},
    ]
    async with (
        serving(agent(model), published=("*",)) as server,
        peer(server.url, way=way) as other,
    ):
        task = await other.send("", messageId="1", contextId="trip", parts=parts)
        items = await server.items("trip")
        kinds = [part["type"] for part in items[0]["content"]]
        assert kinds == ["text", "image", "file", "image", "text"]
        (said,) = (await other.get(task["id"]))["history"]
        got = [{n: each for n, each in part.items() if n != "mediaType"} for part in said["parts"]]
        sent = [{n: each for n, each in part.items() if n != "mediaType"} for part in parts]
        assert got == sent


async def test_tasks_are_listed_newest_first_and_page_by_page() -> None:
    model = ScriptedModel(otherwise=lambda _: "Yes.")
    ways = [way for way in WAYS if way[1] == "1.0"]
    async with serving(agent(model), published=("*",)) as server:
        for way in ways:
            async with peer(server.url, way=way) as other:
                name = f"trip-{way[0]}"
                sent = [
                    (await other.send(f"n{n}", messageId=f"{n}", contextId=name))["id"]
                    for n in range(5)
                ]
                await server.chat("not a task", to=name)
                first = await other.list(contextId=name, pageSize=2)
                second = await other.list(
                    contextId=name, pageSize=2, pageToken=first["nextPageToken"]
                )
                third = await other.list(
                    contextId=name, pageSize=2, pageToken=second["nextPageToken"]
                )
                pages = [[each["id"] for each in page["tasks"]] for page in (first, second, third)]
                assert pages == [sent[:2:-1], sent[2:0:-1], sent[:1]]
                assert "nextPageToken" not in third or not third["nextPageToken"]
                assert "artifacts" not in first["tasks"][0]
                whole = await other.list(contextId=name, includeArtifacts=True)
                assert {text_of(each) for each in whole["tasks"]} == {"Yes."}
                assert whole["totalSize"] == 5
                assert not (await other.list(contextId=name, status="TASK_STATE_FAILED")).get(
                    "tasks"
                )
                assert not (await other.list(contextId="nothing")).get("tasks")
                after = whole["tasks"][1]["status"]["timestamp"]
                later = await other.list(contextId=name, statusTimestampAfter=after)
                assert [each["id"] for each in later["tasks"]] == [sent[-1]]
                everywhere = await other.list()
                assert [each["id"] for each in everywhere["tasks"]][:5] == sent[::-1]
                with pytest.raises(InvalidParamsError):
                    await other.list(pageSize=101)
                with pytest.raises(InvalidParamsError):
                    await other.list(pageToken="made up")
