"""The `plan` toolset: named plans that agents share across conversations.

Plans outlive their conversation, and later ones go by them, so writing and deleting need a permission; reading does not.
"""

from __future__ import annotations

import msgspec

from holdfast.tools.built_in_tools import BuiltInToolset, parameters, text_in, text_output
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

OWNER = "plans/shared"
PLANS_MAX = 200

INSTRUCTION = """\
Plans have names, are shared by all agents that have these tools, and outlive conversations. Writing one replaces the
whole of it: read it first, and keep what should stay."""


class PlanRecord(SharedRecord):
    """A plan; its id is its name."""

    content: str
    title: str = ""
    status: str = ""
    revision: int = 1


class PlanToolset(BuiltInToolset):
    """`write_plan`, `read_plan`, `list_plans`, `delete_plan`."""

    def __init__(self) -> None:
        name: Json = {"type": "string", "pattern": "^[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}$"}
        text: Json = {"type": "string", "maxLength": 200}
        content: Json = {"type": "string", "minLength": 1, "description": "All of it, in Markdown."}
        written = parameters(
            ["name", "content"], name=name, content=content, title=text, status=text
        )
        named = parameters(["name"], name=name)
        super().__init__(
            record_tool("write_plan", "Write a plan, in place of the one of that name.", written,
                        _write, owner=OWNER, read_only=False),
            record_tool("read_plan", "Read a plan.", named, _read, owner=OWNER, read_only=True),
            record_tool("list_plans", "All plans, without their text.", parameters(), _list,
                        owner=OWNER, read_only=True),
            record_tool("delete_plan", "Delete a plan.", named, _delete, owner=OWNER, read_only=False),
            instruction=INSTRUCTION,
        )  # fmt: skip


async def _write(run: ToolRun) -> ToolOutput:
    plans = Records(PlanRecord, run)
    name = text_in(run.arguments, "name")
    old = plans.every.get(name)
    if old is None and len(plans.every) >= PLANS_MAX:
        return failure(f"There are {PLANS_MAX} plans already; delete some first.")
    before = old or PlanRecord(id=name, content="", revision=0)
    plan = msgspec.structs.replace(
        before,
        content=text_in(run.arguments, "content"),
        title=text_in(run.arguments, "title", before.title),
        status=text_in(run.arguments, "status", before.status),
        revision=before.revision + 1,
    )
    try:
        plans.put(plan)
    except RecordTooLong as error:
        return failure(str(error))
    return text_output(f"{name} is written, revision {plan.revision}.", *plans.changes)


async def _read(run: ToolRun) -> ToolOutput:
    plan = (plans := Records(PlanRecord, run)).every.get(text_in(run.arguments, "name"))
    if plan is None:
        return _unknown(run, plans)
    return text_output(as_json({"name": plan.id, **_facts(plan), "content": plan.content}))


async def _list(run: ToolRun) -> ToolOutput:
    plans = sorted(Records(PlanRecord, run).every.values(), key=lambda each: each.id)
    return text_output(as_json([{"name": each.id, **_facts(each)} for each in plans]))


async def _delete(run: ToolRun) -> ToolOutput:
    plans, name = Records(PlanRecord, run), text_in(run.arguments, "name")
    if name not in plans.every:
        return _unknown(run, plans)
    plans.remove(name)
    return text_output(f"{name} is deleted.", *plans.changes)


def _facts(plan: PlanRecord) -> dict[str, object]:
    return {"title": plan.title, "status": plan.status, "revision": plan.revision}


def _unknown(run: ToolRun, plans: Records[PlanRecord]) -> ToolOutput:
    name = text_in(run.arguments, "name")
    return failure(f"There is no plan {name!r}; {suggest(name, list(plans.every)[:50])}.")
