"""Plans and tasks: what a turn changes is staged, and conversations that change things at once do not break them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.core.history.conversation import changed_memories
from holdfast.core.turns.events import Change, StateSet
from holdfast.tools.built_in_tools import BuiltInToolset
from holdfast.tools.execution import execute
from holdfast.tools.notes.plans import PLANS_MAX, PlanToolset
from holdfast.tools.notes.session_plan import SessionPlanToolset
from holdfast.tools.notes.tasks import (
    TaskRecord,
    TasksToolset,
    UnfitTask,
    checked_dependencies,
    in_order,
    status_of,
)
from holdfast.tools.permissions import permission_for
from holdfast.tools.tool import Json, ToolOutput
from tests.tools.tool_calls import KEY, Blobs, call_of, said


class Book:
    """A toolset, and the memories that its commits have left."""

    def __init__(self, toolset: BuiltInToolset) -> None:
        self._tools = {each.spec.name: each for each in toolset.listed}
        self.memories: Mapping[str, str] = {}
        self.state: dict[str, str] = {}
        self._n = 0

    async def staged(self, name: str, /, **arguments: Json) -> ToolOutput:
        self._n += 1
        tool = self._tools[name]
        run = call_of(
            arguments,
            key=f"{KEY}_{self._n}",
            agent=tool.spec.memories_of or "root",
            memories=self.memories,
            state=self.state,
        )
        return await execute(tool, run, Blobs())

    def commit(self, *changes: Change) -> None:
        for owner in {each.spec.memories_of for each in self._tools.values()}:
            self.memories = changed_memories(self.memories, changes, agent=owner)
        self.state |= {each.name: each.value for each in changes if isinstance(each, StateSet)}

    async def ask(self, name: str, /, **arguments: Json) -> str:
        output = await self.staged(name, **arguments)
        assert output.outcome == "ok", said(output)
        self.commit(*output.changes)
        return said(output)

    async def told(self, name: str, /, **arguments: Json) -> str:
        """Why a call fails; nothing is staged then."""
        output = await self.staged(name, **arguments)
        assert (output.outcome, output.changes) == ("error", ())
        return said(output)


# ── plans ──


async def test_a_plan_is_written_read_listed_and_deleted() -> None:
    book = Book(PlanToolset())
    assert "revision 1" in await book.ask("write_plan", name="bridge", content="Build.", title="B")
    assert "revision 2" in await book.ask(
        "write_plan", name="bridge", content="Paint.", status="open"
    )
    plan = msgspec.json.decode(await book.ask("read_plan", name="bridge"))
    assert plan == {
        "name": "bridge",
        "title": "B",
        "status": "open",
        "revision": 2,
        "content": "Paint.",
    }
    assert len(book.memories) == 1, "the old one is gone"
    assert [each["name"] for each in msgspec.json.decode(await book.ask("list_plans"))] == [
        "bridge"
    ]
    await book.ask("delete_plan", name="bridge")
    assert book.memories == {}
    assert "There is no plan 'bridge'" in await book.told("read_plan", name="bridge")
    assert "There is no plan" in await book.told("delete_plan", name="bridge")


async def test_of_two_conversations_that_write_at_once_the_later_counts() -> None:
    book = Book(PlanToolset())
    await book.ask("write_plan", name="a", content="old")
    one = await book.staged("write_plan", name="a", content="one")
    two = await book.staged("write_plan", name="a", content="two")
    book.commit(*one.changes)
    book.commit(*two.changes)
    assert '"two"' in await book.ask("read_plan", name="a")
    await book.ask("write_plan", name="a", content="three")
    assert len(book.memories) == 1, "and the next change clears up"


async def test_bounds_of_plans() -> None:
    book = Book(PlanToolset())
    long = "x" * limits.memory_text_bytes_max
    assert "too long" in await book.told("write_plan", name="a", content=long)
    for n in range(PLANS_MAX):
        await book.ask("write_plan", name=f"p{n}", content="x")
    assert "delete some first" in await book.told("write_plan", name="more", content="x")
    await book.ask("write_plan", name="p0", content="y")


@pytest.mark.parametrize("toolset", [PlanToolset(), TasksToolset()])
def test_what_outlives_a_conversation_needs_a_permission(toolset: BuiltInToolset) -> None:
    for tool in toolset.listed:
        reads = tool.spec.name.partition("_")[0] in ("read", "list", "get", "next")
        assert (permission_for(tool.spec, arguments={}) == "allow") == reads


async def test_a_memory_that_is_no_plan_is_not_one() -> None:
    book = Book(PlanToolset())
    book.memories = {"m": "just words"}
    assert await book.ask("list_plans") == "[]"


# ── the plan of a conversation ──


async def test_a_conversation_has_one_plan() -> None:
    book = Book(SessionPlanToolset())
    assert "no plan yet" in await book.told("read_session_plan")
    assert "no plan yet" in await book.told("exit_plan_mode")
    assert "Say what" in await book.told("write_session_plan", content=" ")
    await book.ask("write_session_plan", content="First this.")
    await book.ask("write_session_plan", content="First that.")
    assert await book.ask("read_session_plan") == "First that."
    assert "ready" in await book.ask("exit_plan_mode")


# ── tasks ──


async def test_a_task_waits_for_what_it_depends_on() -> None:
    book = Book(TasksToolset("./a.json"))
    build = msgspec.json.decode(await book.ask("create_task", title="Build", priority="low"))["id"]
    paint = msgspec.json.decode(
        await book.ask("create_task", title="Paint", priority="critical", dependencies=[build])
    )["id"]
    assert msgspec.json.decode(await book.ask("next_task"))["id"] == build
    assert msgspec.json.decode(await book.ask("get_task", id=paint))["effectiveStatus"] == "blocked"
    await book.ask("update_task", id=build, status="done")
    assert msgspec.json.decode(await book.ask("next_task"))["id"] == paint
    listed = msgspec.json.decode(await book.ask("list_tasks", status="done"))
    assert [each["id"] for each in listed] == [build]
    assert msgspec.json.decode(await book.ask("list_tasks", priority="high")) == []


async def test_dependencies_are_added_and_removed() -> None:
    book = Book(TasksToolset())
    one, two = [
        msgspec.json.decode(await book.ask("create_task", title=name))["id"] for name in "ab"
    ]
    await book.ask("add_dependency", taskId=one, dependsOnId=two)
    assert "cannot wait for itself" in await book.told(
        "add_dependency", taskId=two, dependsOnId=one
    )
    assert "cannot wait for itself" in await book.told("update_task", id=two, dependencies=[one])
    assert "There is no task" in await book.told("update_task", id=two, dependencies=["none"])
    await book.ask("remove_dependency", taskId=one, dependsOnId=two)
    assert "does not wait" in await book.told("remove_dependency", taskId=one, dependsOnId=two)
    await book.ask("add_dependency", taskId=one, dependsOnId=two)
    await book.ask("delete_task", id=two)
    assert msgspec.json.decode(await book.ask("get_task", id=one))["dependencies"] == []
    assert "There is no task" in await book.told("get_task", id=two)


async def test_nothing_to_do() -> None:
    book = Book(TasksToolset())
    assert "Nothing to do" in await book.ask("next_task")
    assert "Say what the task is" in await book.told("create_task", title=" ")


_TASKS = st.dictionaries(
    st.sampled_from("abcde"),
    st.tuples(
        st.sampled_from(["critical", "high", "medium", "low"]),
        st.sampled_from(["pending", "in_progress", "done", "blocked"]),
        st.lists(st.sampled_from("abcde"), max_size=3, unique=True),
    ),
    min_size=1,
)


@given(
    said_so=_TASKS,
    name=st.sampled_from("abcde"),
    wanted=st.lists(st.sampled_from("abcde"), max_size=3),
)
def test_no_task_can_come_to_wait_for_itself(
    said_so: dict[str, tuple[str, str, list[str]]], name: str, wanted: list[str]
) -> None:
    tasks: dict[str, TaskRecord] = {}
    for n, (each, (priority, status, others)) in enumerate(said_so.items()):
        task = TaskRecord(id=each, title=each, priority=priority, status=status, number=n)  # type: ignore[arg-type]
        tasks[each] = task
        try:
            found = checked_dependencies(each, tuple(others), tasks)
            tasks[each] = msgspec.structs.replace(task, dependencies=found)
        except UnfitTask:
            pass
    if name in tasks:
        try:
            found = checked_dependencies(name, tuple(wanted), tasks)
            tasks[name] = msgspec.structs.replace(tasks[name], dependencies=found)
        except UnfitTask:
            pass
    for each, held in tasks.items():
        ahead, seen = list(held.dependencies), set[str]()
        while ahead:
            other = ahead.pop()
            assert other != each
            if other not in seen:
                seen.add(other)
                ahead += tasks[other].dependencies
    order = [status_of(each, tasks) == "blocked" for each in in_order(tasks)]
    assert order == sorted(order), "what is blocked comes last"
