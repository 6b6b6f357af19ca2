"""Sessions whose turns were really played, for tests of what lies between turns.

`with_turn(session, user("Hello"))` is the session after one more turn. `Plan` describes a random turn by a
few words, `played` plays it: through the same machine as a real one, so what comes out is possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec
from hypothesis import strategies as st

from holdfast.core.codec import Unreadable
from holdfast.core.history.checks import StoredTurn
from holdfast.core.history.conversation import Annotation, Commit, Patch, Snapshot, commit_of
from holdfast.core.history.log import Log
from holdfast.core.items import Item, StoredItem, ToolCall
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import advanced, closing
from holdfast.core.turns.turn import Turn
from holdfast.ids import ItemId, SessionId
from tests.core.builders import (
    after,
    answered,
    asked,
    begun,
    branch_opened,
    call,
    finished,
    frozen,
    handed_off,
    inside,
    interrupted,
    kept,
    mint,
    result,
    said,
    started,
    steered,
    summary,
    thought,
    user,
)

# ── one turn at a time ───────────────────────────────────────────────────────────────────────


def new_session() -> Snapshot:
    return Snapshot(session_id=mint(SessionId))


def turn_on(session: Snapshot, *said_now: Item, **fields: object) -> Turn:
    """A turn that begins on top of this session."""
    return begun(
        *said_now,
        base=session.version,
        base_length=len(session.items),
        carried=session.waiting,
        source_key="agents/butler.yaml",
        **fields,
    )


def commit_on(session: Snapshot, turn: Turn) -> Commit:
    """The commit of this turn, which is complete or interrupted."""
    if turn.interrupted is None:
        return commit_of(kept(turn), previous=session.link)
    closed = advanced(turn, closing(turn, mint))
    return commit_of(kept(closed, by=turn.interrupted.by), previous=session.link)


def ending(session: Snapshot, turn: Turn) -> Snapshot:
    return session.with_commit(commit_on(session, turn))


def with_turn(session: Snapshot, *said_now: Item, answer: str = "Hi") -> Snapshot:
    """The session after a turn with this input and one answer."""
    return ending(session, after(turn_on(session, *said_now), asked(), answered(said(answer))))


def waiting_for(session: Snapshot, *calls: ToolCall) -> Snapshot:
    """The session after a turn that ends with these calls unanswered."""
    asks = answered(said("One moment."), *calls, finish="tool_calls")
    return ending(session, after(turn_on(session), asked(), asks))


def annotation(session: Snapshot, patch: Patch, item: ItemId | None = None) -> Annotation:
    """What would be this session's next annotation."""
    return Annotation(rev=session.notes.rev + 1, patch=patch, item=item)


def noted(session: Snapshot, patch: Patch, item: ItemId | None = None) -> Snapshot:
    return session.with_annotations(annotation(session, patch, item))


def damaged(session: Snapshot, *positions: int) -> Snapshot:
    """The session as read from a disk that has lost the items at these positions."""
    items = list(session.items)
    for position in positions:
        items[position] = Unreadable(raw=b"\x00", why="damaged")
    return msgspec.structs.replace(session, items=Log(items))


def stored(commits: Iterable[Commit]) -> tuple[StoredTurn, ...]:
    """Commits, from a session's first on, as a store holds them."""
    session, turns = new_session(), []
    for commit in commits:
        session = session.with_commit(commit)
        turn = StoredTurn(mark=session.marks[-1], encoded=commit.encoded, changes=commit.changes)
        turns.append(turn)
    return tuple(turns)


def bytes_of(session: Snapshot) -> bytes:
    """Everything that a session holds, as bytes."""
    # Flags of the session (no item) and of items do not sort together by themselves.
    flags = sorted(map(repr, session.notes.flags))
    notes = msgspec.structs.replace(session.notes, flags=frozenset())
    return frozen((msgspec.structs.replace(session, notes=notes), flags))


class CountingLog(Log[StoredItem]):
    """A log that counts how many of its items were looked at. Time would tell the same, unreliably."""

    __slots__ = ("looks",)

    def __init__(self, items: Iterable[StoredItem]) -> None:
        super().__init__(items)
        self.looks = 0

    def since(self, start: int) -> tuple[StoredItem, ...]:
        found = super().since(start)
        self.looks += len(found)
        return found

    def __iter__(self) -> Iterator[StoredItem]:
        for n in range(len(self)):
            yield self[n]

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)


# ── random turns ─────────────────────────────────────────────────────────────────────────────

Step: TypeAlias = Literal[
    "talk", "think", "look", "remember", "delegate", "stumble", "hand off", "steer", "compact"
]
End: TypeAlias = Literal["answer", "wait", "ask", "wait and ask", "stop", "stop in a call"]


class Plan(NamedTuple):
    """A turn in a few words."""

    steps: tuple[Step, ...]
    end: End
    obliging: bool
    """Whether calls that wait are answered and allowed, or passed over."""


PLANS = st.builds(
    Plan,
    steps=st.lists(st.sampled_from(get_args(Step)), max_size=3).map(tuple),
    end=st.sampled_from(get_args(End)),
    obliging=st.booleans(),
)


def played(session: Snapshot, plan: Plan) -> Commit:
    """The commit of a turn that went as planned."""
    approvals = [each for each in session.waiting if each.waits_for == "approval"]
    approved = approvals if plan.obliging else []
    results = [
        result(each) if plan.obliging else result(each, outcome="not_answered")
        for each in session.waiting
        if each.waits_for == "client"
    ] + [result(each, outcome="refused") for each in approvals if each not in approved]
    turn = turn_on(session, *results, user("Go on"), approved=tuple(each.id for each in approved))
    for each in approved:
        turn = after(turn, started(each), finished(each))
    for step in plan.steps:
        turn = after(turn, *_happens(step, len(session.items)))
    return commit_on(session, after(turn, *_ends(plan.end)))


def _happens(step: Step, length: int) -> tuple[ev.Event, ...]:
    look = call()
    asks = (asked(), answered(said("Let me see."), look))
    match step:
        case "talk":
            return (asked(), answered(said("Well,")), steered())
        case "think":
            return (asked(), answered(thought(), look), started(look), finished(look))
        case "look":
            return (*asks, started(look), finished(look))
        case "remember":
            change = ev.StateSet(name="todo", value=f'["{look.id}"]')
            return (*asks, started(look), finished(look, changes=(change,)))
        case "delegate":
            path = inside(look)
            inner = call(path=path)
            return (
                *asks,
                branch_opened(look),
                asked(path),
                answered(inner),
                started(inner),
                finished(inner),
                asked(path),
                answered(said("Found it", path=path)),
                finished(look),
            )
        case "stumble":
            lost = (said("Let m", state="set_aside"), call(state="set_aside"))
            return (asked(), ev.StepBroken(items=lost))
        case "hand off":
            return (handed_off(),)
        case "steer":
            return (steered(),)
        case "compact":
            return (ev.Compacted(summary=summary(covers_to=length)),)


def _ends(end: End) -> tuple[ev.Event, ...]:
    look, tell, fly = call(), call(waits_for="client"), call(waits_for="approval")
    match end:
        case "answer":
            return (asked(), answered(thought(), said("There.")))
        case "wait":
            return (asked(), answered(tell))
        case "ask":
            return (asked(), answered(fly))
        case "wait and ask":
            return (asked(), answered(said("One moment."), tell, fly))
        case "stop":
            opened = ev.ItemOpened(item=(lost := said("")).id, kind="message")
            return (asked(), opened, ev.Grew(item=lost.id, text="The th"), interrupted())
        case "stop in a call":
            return (asked(), answered(look), started(look), interrupted("deadline"))


def histories(turns_max: int = 5) -> st.SearchStrategy[tuple[Commit, ...]]:
    """The commits of a random session, from its first turn on."""
    return st.lists(PLANS, min_size=1, max_size=turns_max).map(_commits)


def session_after(commits: Iterable[Commit]) -> Snapshot:
    session = new_session()
    for commit in commits:
        session = session.with_commit(commit)
    return session


def _commits(plans: Iterable[Plan]) -> tuple[Commit, ...]:
    session, commits = new_session(), []
    for plan in plans:
        commit = played(session, plan)
        session = session.with_commit(commit)
        commits.append(commit)
    return tuple(commits)
