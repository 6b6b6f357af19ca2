"""The `tasks` toolset: tasks with priorities and dependencies, which outlive conversations.

Agents with the same path have the same tasks; they are kept in the server's store, not in that file. A task waits
while one of its dependencies is not done. Changing tasks needs a permission, as changing memories does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import msgspec

from holdfast.tools.built_in_tools import (
    BuiltInToolset,
    Do,
    parameters,
    text_in,
    text_output,
    texts_in,
)
from holdfast.tools.execution import failure
from holdfast.tools.notes.shared_records import (
    Records,
    RecordTooLong,
    SharedRecord,
    as_json,
    record_tool,
)
from holdfast.tools.schema import suggest
from holdfast.tools.tool import Json, ToolOutput, ToolRun

TASKS_MAX = 500
TASKS_LISTED_MAX = 200

INSTRUCTION = """\
Tasks outlive conversations. A task has a priority (critical, high, medium, low) and a status (pending, in_progress,
done, blocked), and may depend on others: until those are done it is blocked. next_task is the one to work on."""

TaskPriority: TypeAlias = Literal["critical", "high", "medium", "low"]
TaskStatus: TypeAlias = Literal["pending", "in_progress", "done", "blocked"]
_PRIORITIES: list[Json] = ["critical", "high", "medium", "low"]
_STATUSES: list[Json] = ["pending", "in_progress", "done", "blocked"]


class TaskRecord(SharedRecord):
    title: str
    description: str = ""
    priority: TaskPriority = "medium"
    status: TaskStatus = "pending"
    dependencies: tuple[str, ...] = ()
    number: int = 0
    """Counts up: of two tasks, the older has the lower number."""


Tasks: TypeAlias = Mapping[str, TaskRecord]


class UnfitTask(Exception):
    """The tasks cannot be changed like this; the message is for the model."""


def status_of(task: TaskRecord, tasks: Tasks) -> TaskStatus:
    """A task's status: blocked while one of its dependencies is not done."""
    waits = any(each in tasks and tasks[each].status != "done" for each in task.dependencies)
    return "blocked" if waits and task.status != "done" else task.status


def in_order(tasks: Tasks) -> list[TaskRecord]:
    """Those that are not blocked first, then by priority, then by age."""
    return sorted(
        tasks.values(),
        key=lambda each: (
            status_of(each, tasks) == "blocked",
            _PRIORITIES.index(each.priority),
            each.number,
        ),
    )


def checked_dependencies(task: str, wanted: tuple[str, ...], tasks: Tasks) -> tuple[str, ...]:
    """The dependencies of a task. Raises UnfitTask if one is not there, or depends on the task itself."""
    for each in wanted:
        if each not in tasks:
            raise UnfitTask(f"There is no task {each!r}; {suggest(each, list(tasks)[:50])}.")
    seen, ahead = set[str](), list(wanted)
    while ahead:
        name = ahead.pop()
        if name == task:
            raise UnfitTask("A task cannot wait for itself, also not through others.")
        if name not in seen and name in tasks:
            seen.add(name)
            ahead += tasks[name].dependencies
    return tuple(dict.fromkeys(wanted))


class TasksToolset(BuiltInToolset):
    """`create_task`, `get_task`, `update_task`, `delete_task`, `list_tasks`, `next_task`, `add_dependency`,
    `remove_dependency`."""

    def __init__(self, path: str = "") -> None:
        owner = f"tasks/{path or 'tasks.json'}"
        text: Json = {"type": "string", "minLength": 1}
        title: Json = {"type": "string", "minLength": 1, "maxLength": 500}
        fields: dict[str, Json] = {
            "title": title,
            "description": {"type": "string"},
            "priority": {"type": "string", "enum": _PRIORITIES},
            "dependencies": {"type": "array", "items": text, "maxItems": 50},
        }
        status: Json = {"type": "string", "enum": _STATUSES}
        two = parameters(["taskId", "dependsOnId"], taskId=text, dependsOnId=text)
        one = parameters(["id"], id=text)
        tools: list[tuple[str, str, str, Do]] = [
            ("create_task", "Add a task.", parameters(["title"], **fields), _changing(_create)),
            ("get_task", "One task.", one, _get),
            ("update_task", "Change what is given of a task.",
             parameters(["id"], id=text, status=status, **fields), _changing(_update)),
            ("delete_task", "Delete a task.", one, _changing(_delete)),
            ("list_tasks", "Tasks, those to work on first; of one status or priority, if said.",
             parameters(status=status, priority=fields["priority"]), _list),
            ("next_task", "The task to work on next.", parameters(), _next),
            ("add_dependency", "Let a task wait for another.", two, _changing(_add_dependency)),
            ("remove_dependency", "Let a task wait for another no more.", two, _changing(_remove_dependency)),
        ]  # fmt: skip
        super().__init__(
            *(
                record_tool(name, words, schema, do, owner=owner, read_only=do in _READERS)
                for name, words, schema, do in tools
            ),
            instruction=INSTRUCTION,
        )


def _changing(change: Callable[[ToolRun, Records[TaskRecord]], str]) -> Do:
    async def do(run: ToolRun) -> ToolOutput:
        tasks = Records(TaskRecord, run)
        try:
            told = change(run, tasks)
        except (UnfitTask, RecordTooLong) as error:
            return failure(str(error))
        return text_output(told, *tasks.changes)

    return do


def _create(run: ToolRun, tasks: Records[TaskRecord]) -> str:
    if len(tasks.every) >= TASKS_MAX:
        raise UnfitTask(f"There are {TASKS_MAX} tasks already; delete some first.")
    number = 1 + max((each.number for each in tasks.every.values()), default=0)
    return _kept(TaskRecord(id=f"task_{run.call_key}", title="", number=number), run, tasks)


def _update(run: ToolRun, tasks: Records[TaskRecord]) -> str:
    return _kept(_found(run, tasks, "id"), run, tasks)


def _kept(task: TaskRecord, run: ToolRun, tasks: Records[TaskRecord]) -> str:
    """Keep a task with the fields that the call gives. Raises UnfitTask."""
    given = {name: value for name, value in run.arguments.items() if name != "id"}
    if "dependencies" in given:
        wanted = texts_in(run.arguments, "dependencies")
        given["dependencies"] = list(checked_dependencies(task.id, wanted, tasks.every))
    changed = msgspec.convert({**msgspec.to_builtins(task), **given}, TaskRecord)
    if not changed.title.strip():
        raise UnfitTask("Say what the task is.")
    tasks.put(changed)
    return as_json(_facts(changed, tasks.every))


def _delete(run: ToolRun, tasks: Records[TaskRecord]) -> str:
    name = _found(run, tasks, "id").id
    for other in [each for each in tasks.every.values() if name in each.dependencies]:
        rest = tuple(each for each in other.dependencies if each != name)
        tasks.put(msgspec.structs.replace(other, dependencies=rest))
    tasks.remove(name)
    return f"{name} is deleted."


def _add_dependency(run: ToolRun, tasks: Records[TaskRecord]) -> str:
    task, other = _found(run, tasks, "taskId"), _found(run, tasks, "dependsOnId")
    wanted = checked_dependencies(task.id, (*task.dependencies, other.id), tasks.every)
    tasks.put(changed := msgspec.structs.replace(task, dependencies=wanted))
    return as_json(_facts(changed, tasks.every))


def _remove_dependency(run: ToolRun, tasks: Records[TaskRecord]) -> str:
    task, other = _found(run, tasks, "taskId"), text_in(run.arguments, "dependsOnId")
    if other not in task.dependencies:
        raise UnfitTask(f"{task.id} does not wait for {other!r}.")
    rest = tuple(each for each in task.dependencies if each != other)
    tasks.put(changed := msgspec.structs.replace(task, dependencies=rest))
    return as_json(_facts(changed, tasks.every))


async def _get(run: ToolRun) -> ToolOutput:
    tasks = Records(TaskRecord, run)
    try:
        return text_output(as_json(_facts(_found(run, tasks, "id"), tasks.every)))
    except UnfitTask as error:
        return failure(str(error))


async def _list(run: ToolRun) -> ToolOutput:
    tasks = Records(TaskRecord, run).every
    status, priority = text_in(run.arguments, "status"), text_in(run.arguments, "priority")
    found = [
        _facts(each, tasks)
        for each in in_order(tasks)
        if status in ("", status_of(each, tasks)) and priority in ("", each.priority)
    ]
    more = len(found) - TASKS_LISTED_MAX
    rest = f"\n[{more} more; ask for one status or priority]" if more > 0 else ""
    return text_output(as_json(found[:TASKS_LISTED_MAX]) + rest)


async def _next(run: ToolRun) -> ToolOutput:
    tasks = Records(TaskRecord, run).every
    for each in in_order(tasks):
        if status_of(each, tasks) not in ("blocked", "done"):
            return text_output(as_json(_facts(each, tasks)))
    return text_output("[Nothing to do: every task is done or blocked.]")


_READERS = (_get, _list, _next)


def _found(run: ToolRun, tasks: Records[TaskRecord], argument: str) -> TaskRecord:
    name = text_in(run.arguments, argument)
    if name not in tasks.every:
        raise UnfitTask(f"There is no task {name!r}; {suggest(name, list(tasks.every)[:50])}.")
    return tasks.every[name]


def _facts(task: TaskRecord, tasks: Tasks) -> dict[str, object]:
    return {
        "id": task.id,
        "title": task.title,
        "description": task.description,
        "priority": task.priority,
        "status": task.status,
        "effectiveStatus": status_of(task, tasks),
        "dependencies": task.dependencies,
    }
