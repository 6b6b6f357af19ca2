"""Short words for the values that tests of `core/` are made of.

Everything has a default that is right for a test which does not care. Ids come from `mint`: distinct, in
order, the same in every run. Makers of items return items; makers of events are named like what happened.

    turn = after(begun(), StepStarted(), answered(fly := call("fly")), started(fly))
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.history.log import Log
from holdfast.core.items import (
    AssistantMessage,
    Completeness,
    EndedBy,
    HandOff,
    Interruption,
    Item,
    Outcome,
    Path,
    Reasoning,
    Summary,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    WaitsFor,
    plain_text,
)
from holdfast.core.turns import events as ev
from holdfast.core.turns.turn import Turn, advance, begin
from holdfast.ids import (
    CallId,
    MessageId,
    Minter,
    Name,
    NoteId,
    ReasoningId,
    ResultId,
    TurnId,
    Version,
)

NOON_MS = 1_750_000_000_000


def new_minter(*, at_ms: int = NOON_MS) -> Minter:
    """A minter whose clock stands still: ids count up from the same one in every run."""
    return Minter(now_ms=lambda: at_ms, random_bits=lambda bits: 0)


mint = new_minter()
"""For tests that do not care which ids they get, only that they differ."""

# ── items ────────────────────────────────────────────────────────────────────────────────────


def user(text: str = "Hello", *, path: Path = ()) -> UserMessage:
    return UserMessage(id=mint(MessageId), content=(Text(text=text),), path=path)


def said(
    text: str = "Hi", *, path: Path = (), state: Completeness = "complete"
) -> AssistantMessage:
    return AssistantMessage(id=mint(MessageId), content=plain_text(text), path=path, state=state)


def thought(text: str = "Hmm", *, path: Path = (), state: Completeness = "complete") -> Reasoning:
    return Reasoning(id=mint(ReasoningId), text=text, path=path, state=state)


def call(
    name: str = "look",
    arguments: str = "{}",
    *,
    waits_for: WaitsFor | None = None,
    path: Path = (),
    state: Completeness = "complete",
) -> ToolCall:
    made = mint(CallId)
    return ToolCall(
        id=made,
        call_id=f"call_{made.body}",
        name=name,
        arguments=arguments,
        waits_for=waits_for,
        path=path,
        state=state,
    )


def result(of: ToolCall, text: str = "done", *, outcome: Outcome = "ok") -> ToolResult:
    """A result for this call, in its branch."""
    return ToolResult(
        id=mint(ResultId),
        call=of.id,
        outcome=outcome,
        content=(Text(text=text),),
        call_id=of.call_id,
        from_client=of.waits_for == "client",
        path=of.path,
    )


def note(by: EndedBy = "cancelled") -> Interruption:
    return Interruption(id=mint(NoteId), ended_by=by)


def summary(text: str = "They said hello.", *, covers_to: int = 0, path: Path = ()) -> Summary:
    return Summary(id=mint(NoteId), text=text, covers_to=covers_to, path=path)


def inside(of: ToolCall) -> Path:
    """The path of the branch that works on this call."""
    return (*of.path, of.id)


# ── events ───────────────────────────────────────────────────────────────────────────────────


def asked(path: Path = ()) -> ev.StepStarted:
    return ev.StepStarted(path=path, model="demo/parrot")


def answered(
    *items: ev.Answer, path: Path | None = None, finish: ev.Finish = "stop", cost_micros: int = 0
) -> ev.Answered:
    """A model has said this. The branch is that of the first item, unless told otherwise."""
    if path is None:
        path = items[0].path if items else ()
    usage = ev.Usage(output_tokens=len(items), cost_micros=cost_micros)
    return ev.Answered(items=items, path=path, finish=finish, usage=usage)


def started(of: ToolCall, *, read_only: bool = False, idempotent: bool = False) -> ev.ToolStarted:
    return ev.ToolStarted(call=of.id, read_only=read_only, idempotent=idempotent)


def finished(
    of: ToolCall,
    text: str = "done",
    *,
    outcome: Outcome = "ok",
    changes: tuple[ev.Change, ...] = (),
) -> ev.ToolFinished:
    return ev.ToolFinished(result=result(of, text, outcome=outcome), changes=changes)


def branch_opened(of: ToolCall, *, agent: str = "helper") -> ev.BranchOpened:
    return ev.BranchOpened(call=of.id, agent=agent, task=user("Find out", path=inside(of)))


def handed_off(to: str = "specialist", *, path: Path = ()) -> ev.HandedOff:
    item = HandOff(id=mint(NoteId), from_agent="butler", to_agent=to, path=path)
    return ev.HandedOff(item=item)


def steered(*texts: str) -> ev.Steered:
    items = tuple(map(user, texts or ("And quickly, please",)))
    return ev.Steered(items=items, signals=tuple(range(len(items))))


def interrupted(by: EndedBy = "cancelled", detail: str = "") -> ev.Interrupted:
    return ev.Interrupted(by=by, detail=detail)


# ── turns ────────────────────────────────────────────────────────────────────────────────────


def request(*said_now: Item, **fields: Any) -> ev.TurnRequest:
    """What a turn begins with: these items, or a greeting if there are none."""
    return ev.TurnRequest(
        turn_id=fields.pop("turn_id", None) or mint(TurnId),
        base=Version(fields.pop("base", 0)),
        agent=fields.pop("agent", "butler"),
        input=said_now or (user(),),
        **fields,
    )


def begun(*said_now: Item, **fields: Any) -> Turn:
    return begin(ev.Began(request=request(*said_now, **fields)))


def after(turn: Turn, *happened: ev.Event) -> Turn:
    """The turn after all of these, one by one."""
    for event in happened:
        turn = advance(turn, event)
    return turn


def asking(**fields: Any) -> Turn:
    """A turn whose model is being asked."""
    return after(begun(**fields), asked())


def called(*calls: ToolCall, **fields: Any) -> Turn:
    """A turn whose model has asked for these calls."""
    return after(asking(**fields), answered(*calls, finish="tool_calls"))


def complete(text: str = "Hi", **fields: Any) -> Turn:
    """A turn in which everything is said and done, and nothing but its end is wanted."""
    return after(asking(**fields), answered(said(text)))


def kept(turn: Turn, *, by: EndedBy = "completed") -> Turn:
    return advance(turn, ev.Ended(by=by, kept=True))


# ── comparing bytes ──────────────────────────────────────────────────────────────────────────


def frozen(value: object) -> bytes:
    """Everything that a value holds, logs included, as bytes: what has to be the same later on."""
    return _freezer.encode(value)


def _plain(value: object) -> object:
    if isinstance(value, Log):
        return list(value)
    if isinstance(value, Name):
        return str(value)
    assert isinstance(value, Version), type(value)
    return int(value)


_freezer = msgspec.json.Encoder(enc_hook=_plain, order="deterministic")
