"""A conversation at one version (`Snapshot`), its annotations, its commits, and what people and models see of it.

A turn begins from a `Snapshot`. Its history is a prefix of an append-only log that all versions of a session
share, so `with_commit` costs the new turn and not the history.

Nothing in a history is ever rewritten. Titles, flags, summaries and settings are `Annotation`s: appended beside
the items with their own revision, folded into `Notes`. Notes decide what people see and what the model sees;
they never change the items.

A fork shares its parent's past by reference. Its lineage is a flat list: which session holds the positions up to
where, seen at which revision. So reading a fork of a fork of a fork walks no chain.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeAlias, assert_never

import msgspec

from holdfast.core.codec import Decoder, Unreadable, Value, encode
from holdfast.core.exchanges import Followed
from holdfast.core.history import chain
from holdfast.core.history.log import Log
from holdfast.core.items import (
    AssistantMessage,
    AttributeName,
    AttributeValue,
    EndedBy,
    ForeignItem,
    Interruption,
    Item,
    Items,
    Path,
    Reasoning,
    SessionSettings,
    StoredItem,
    Summary,
    ToolCall,
    ToolResult,
    UserMessage,
    item_id,
)
from holdfast.core.turns.events import Change, MemoryAdded, MemoryDeleted, StateSet, Usage
from holdfast.core.turns.turn import Turn, committed_items
from holdfast.core.turns.unfinished_turns import broken_off, is_cut, retries_left
from holdfast.ids import ItemId, SessionId, TurnId, Version

# ── annotations ──────────────────────────────────────────────────────────────────────────────


class Visibility(Value, tag="visibility"):
    """Hide an item, or show it again. A call and its result are hidden from the model together."""

    to_people: bool | None = None
    to_model: bool | None = None


class Titled(Value, tag="titled"):
    title: str


class Flagged(Value, tag="flagged"):
    """A named flag on an item, or on the session; an empty value removes it."""

    name: str
    value: str = ""


class Summarized(Value, tag="summarized"):
    """A summary made outside a turn. Accepted only if the summary that it was made from is still the latest."""

    summary: Summary


class SettingsChanged(Value, tag="settings"):
    settings: SessionSettings


class SettingsMerged(Value, tag="settings_merged"):
    """Some settings change; the others keep the values that other requests may have set meanwhile."""

    attributes: tuple[tuple[AttributeName, AttributeValue | None], ...] = ()
    """None removes an attribute."""
    granted: tuple[str, ...] = ()
    """Old records have this field; no code acts on it."""


Patch: TypeAlias = Visibility | Titled | Flagged | Summarized | SettingsChanged | SettingsMerged


REBOUND = "agents.rebound"
"""The flag of a session that was moved to the agents of another source. A flag, since older servers read those too; no
client can set one with a dot."""


DECIDED = "approvals.decided"
"""The flag of a call about which a person has decided: the decision, the id of the key, and the time."""


def decided_flag(*, approve: bool, key: str | None, at_ms: int) -> Flagged:
    """The flag of a call that a person has approved or refused; without a key, where none is needed."""
    return Flagged(
        name=DECIDED, value=f"{'approved' if approve else 'refused'} {key or '-'} {at_ms}"
    )


_REBOUND = re.compile(r"([0-9]{1,15}) ([0-9]{1,15})", re.ASCII)


class Rebinding(Value):
    """When a session was moved to the agents of another source: at which version, and at which revision."""

    version: int
    rev: int

    def flag(self) -> Flagged:
        return Flagged(name=REBOUND, value=f"{self.version} {self.rev}")


class Annotation(Value):
    """A change to what is known about a session or one of its items, besides the history. Appended only."""

    rev: int
    """1, 2, 3 … within the session."""
    patch: Patch
    item: ItemId | None = None
    at_ms: int = 0


patch_decoder: Decoder[Patch] = Decoder(Patch)
settings_decoder: Decoder[SessionSettings] = Decoder(SessionSettings)


class Notes(Value):
    """All annotations of a session up to `rev`, folded."""

    rev: int = 0
    title: str = ""
    settings: SessionSettings = SessionSettings()
    hidden_from_people: frozenset[ItemId] = frozenset()
    hidden_from_model: frozenset[ItemId] = frozenset()
    flags: frozenset[tuple[ItemId | None, str, str]] = frozenset()
    summary: Summary | None = None
    summary_rev: int = 0
    """The revision that `summary` came with; 0 if there is none."""

    @property
    def rebound(self) -> Rebinding | None:
        """When the session was last moved to the agents of another source; None if it never was."""
        for item, name, value in self.flags:
            if item is None and name == REBOUND and (found := _REBOUND.fullmatch(value)):
                return Rebinding(version=int(found[1]), rev=int(found[2]))
        return None


def annotated(notes: Notes, annotations: Iterable[Annotation]) -> Notes:
    """Fold more annotations, in the order of their revisions, into these notes."""
    people, model = set(notes.hidden_from_people), set(notes.hidden_from_model)
    flags = {(item, name): value for item, name, value in notes.flags}
    for annotation in annotations:
        item, patch = annotation.item, annotation.patch
        notes = msgspec.structs.replace(notes, rev=annotation.rev)
        match patch:
            case Titled():
                notes = msgspec.structs.replace(notes, title=patch.title)
            case SettingsChanged():
                notes = msgspec.structs.replace(notes, settings=patch.settings)
            case SettingsMerged():
                settings = notes.settings.with_attributes(**dict(patch.attributes))
                notes = msgspec.structs.replace(notes, settings=settings.granting(*patch.granted))
            case Summarized():
                notes = msgspec.structs.replace(
                    notes, summary=patch.summary, summary_rev=annotation.rev
                )
            case Flagged():
                flags[item, patch.name] = patch.value
            case Visibility():
                assert item is not None, "visibility is an item's"
                _hide(people, item, shown=patch.to_people)
                _hide(model, item, shown=patch.to_model)
            case _:  # pragma: no cover
                assert_never(patch)
    return msgspec.structs.replace(
        notes,
        hidden_from_people=frozenset(people),
        hidden_from_model=frozenset(model),
        flags=frozenset((item, name, value) for (item, name), value in flags.items() if value),
    )


def _hide(hidden: set[ItemId], item: ItemId, *, shown: bool | None) -> None:
    if shown is not None:
        (hidden.discard if shown else hidden.add)(item)


# ── commits ──────────────────────────────────────────────────────────────────────────────────


class Commit(Value):
    """Everything that a kept turn adds to its session, with the bytes that the store writes."""

    turn_id: TurnId
    version: Version
    """The version that this commit makes."""
    ended_by: EndedBy
    source_key: str
    source_name: str
    entry_agent: str
    """The agent that the request named; the session keeps that of its first commit."""
    agent: str
    """The agent that speaks at the end of the turn, after any hand-offs."""
    items: Items
    encoded: tuple[bytes, ...]
    """The items' bytes, in order; encoded once, hashed and stored as they are."""
    changes: tuple[Change, ...]
    waiting: tuple[ToolCall, ...]
    usage: Usage
    link: bytes
    detail: str = ""
    """Why the turn ended, if it did not complete."""
    hears: bool = True
    """Whether the turn's player takes steered messages: then the store refuses a commit while some are left."""
    continues: TurnId | None = None
    """The turn before it, if this turn continues that."""
    links: int | None = None
    """Of a continuation: how many continuations in a row, up to this one, retries have begun."""
    retries_left: int | None = None
    """How many retries may continue the turn, if it is unfinished; see `unfinished_turns.retries_left`."""
    followed: Followed | None = None
    """For a client that owns its history: how the turn is found later."""

    @property
    def unfinished(self) -> Version | None:
        """The version that can be continued after this commit, if one can."""
        return None if self.ended_by == "completed" else self.version

    def keeps_journal(self, *, replayable: bool) -> bool:
        """Whether the turn's journal is needed after this commit: for a replay, or to continue the turn."""
        return replayable or self.ended_by != "completed"


def commit_of(turn: Turn, *, previous: bytes) -> Commit:
    """The commit of a kept turn on top of the link `previous`."""
    items = committed_items(turn)
    assert turn.ended is not None
    request, code = turn.request, turn.interrupted.code if turn.interrupted else ""
    header = chain.LinkHeader(
        turn_id=request.turn_id,
        version=request.base.next,
        ended_by=turn.ended.by,
        agent=turn.agent,
        continues=request.continues,
    )
    encoded = tuple(map(encode, items))
    return Commit(
        turn_id=header.turn_id,
        version=header.version,
        ended_by=header.ended_by,
        source_key=request.source_key,
        source_name=request.source_name,
        entry_agent=request.agent,
        agent=header.agent,
        items=items,
        encoded=encoded,
        changes=turn.changes,
        waiting=turn.waiting,
        usage=turn.usage,
        link=chain.link(previous, header, items=encoded, changes=map(encode, turn.changes)),
        detail=turn.interrupted.told if turn.interrupted else "",
        hears=request.hears,
        continues=request.continues,
        links=request.links if request.continues else None,
        retries_left=retries_left(turn.ended.by, code, request.policy, links=request.links),
        followed=request.followed,
    )


# ── snapshots ────────────────────────────────────────────────────────────────────────────────


class Segment(Value):
    """A part of a fork's past that another session holds: its positions below `upto_pos`."""

    session_id: SessionId
    upto_pos: int
    upto_version: Version
    upto_rev: int


Lineage: TypeAlias = tuple[Segment, ...]


class TurnMark(Value):
    """Where a committed turn lies in the history: positions `start` to before `end`."""

    turn_id: TurnId
    version: Version
    start: int
    end: int
    link: bytes
    ended_by: EndedBy = "completed"
    agent: str = ""
    continues: TurnId | None = None
    is_foreign: bool = False
    """The turn was imported from a file, not played in this store."""


class Snapshot(Value):
    """A conversation as it stood at one version. Safe to share: nothing here changes."""

    session_id: SessionId
    version: Version = Version(0)
    items: Log[StoredItem] = Log()
    marks: Log[TurnMark] = Log()
    """One per version, in order, including the versions of a fork's past."""
    state: tuple[tuple[str, str], ...] = ()
    """The values that tools have stored in this session, sorted by name."""
    waiting: tuple[ToolCall, ...] = ()
    """Calls that the next turn has to answer."""
    turn_summary: Summary | None = None
    """The furthest-reaching summary that was made inside a turn."""
    broken_off: frozenset[ItemId] = frozenset()
    """Interrupted texts, and their notes, of turns that were continued since: no model sees these items."""
    notes: Notes = Notes()
    lineage: Lineage = ()
    link: bytes = chain.GENESIS
    source_key: str = ""
    source_name: str = ""
    entry_agent: str = ""
    agent: str = ""
    family: SessionId | None = None
    """The family of lines that it belongs to; None: it is alone under its name."""
    size_bytes: int = 0
    """The size of its encoded items: for caches."""

    @property
    def asked(self) -> tuple[ToolCall, ...]:
        """The calls that a person may decide on in this session.

        An approval is valid only in the session that asked for it. A fork or a rewind shows the calls of its past as
        waiting, and its next message closes them, but they cannot be approved there. Nor can calls of an imported
        session: the store that the file came from, and any other store that imported it, may approve them too. Nor can
        calls from before the session was moved to another source: a tool of the same name may do something else there.
        """
        inherited = self.lineage[-1].upto_version if self.lineage else 0
        if self.version <= inherited or self.marks[-1].is_foreign:
            return ()
        rebound = self.notes.rebound
        if rebound is not None and self.version <= rebound.version:
            return ()
        return tuple(each for each in self.waiting if each.waits_for == "approval")

    def with_commit(self, commit: Commit) -> Snapshot:
        """The session after this commit. Costs what the commit adds, not the history."""
        assert commit.version == self.version.next, "a commit goes on top of its base"
        start = len(self.items)
        mark = TurnMark(
            turn_id=commit.turn_id,
            version=commit.version,
            start=start,
            end=start + len(commit.items),
            link=commit.link,
            ended_by=commit.ended_by,
            agent=commit.agent,
            continues=commit.continues,
        )
        return msgspec.structs.replace(
            self,
            version=commit.version,
            items=self.items.extended(commit.items),
            marks=self.marks.appended(mark),
            state=changed_state(self.state, commit.changes),
            waiting=commit.waiting,
            link=commit.link,
            turn_summary=further(self.turn_summary, *_summaries(commit.items)),
            broken_off=self.continued().broken_off if commit.continues else self.broken_off,
            source_key=self.source_key or commit.source_key,
            source_name=self.source_name if self.source_key else commit.source_name,
            entry_agent=self.entry_agent or commit.entry_agent,
            agent=commit.agent,
            size_bytes=self.size_bytes + sum(map(len, commit.encoded)),
        )

    def with_annotations(self, *annotations: Annotation) -> Snapshot:
        return msgspec.structs.replace(self, notes=annotated(self.notes, annotations))

    @property
    def is_unfinished(self) -> bool:
        """Whether its last turn broke off. The session's row tells whether that turn can be continued here."""
        last = self.marks.last
        return last is not None and last.ended_by != "completed"

    def continued(self) -> Snapshot:
        """The session as the continuation of its last turn sees it."""
        last = self.marks[-1]
        more = broken_off(self.items[last.start : last.end])
        return msgspec.structs.replace(self, broken_off=self.broken_off | more)

    def chain_before(self, mark: TurnMark) -> tuple[TurnMark, ...]:
        """The turns that this turn continues, oldest first; none if it is no continuation."""
        chain: list[TurnMark] = []
        while mark.continues is not None and mark.version > 1:
            mark = self.marks[mark.version - 2]
            chain.append(mark)
        return tuple(reversed(chain))

    def said_by(self, mark: TurnMark) -> Items:
        """The items of a chain of continued turns up to this turn, without interrupted texts, but with the notes of
        where an answer was cut. The answer to a retry that continues the chain is these items and its own."""
        first = (*self.chain_before(mark), mark)[0]
        found = self.items[first.start : mark.end]
        hidden = broken_off(found)
        return tuple(
            each
            for each in found
            if not isinstance(each, Unreadable) and (each.id not in hidden or is_cut(each))
        )

    def forked(self, session_id: SessionId) -> Snapshot:
        """A new session that begins as this one stands. Later turns of either are not seen by the other.

        If this snapshot lies in the past of a fork, the lineage ends with the session that made the next version.
        """
        before = tuple(each for each in self.lineage if each.upto_version <= self.version)
        holders = (*(each.session_id for each in self.lineage), self.session_id)
        here = Segment(
            session_id=holders[len(before)],
            upto_pos=len(self.items),
            upto_version=self.version,
            upto_rev=self.notes.rev,
        )
        return msgspec.structs.replace(self, session_id=session_id, lineage=(*before, here))


def changed_state(
    state: tuple[tuple[str, str], ...], changes: Iterable[Change]
) -> tuple[tuple[str, str], ...]:
    """Session state after some changes. An empty value removes the name."""
    sets = {each.name: each.value for each in changes if isinstance(each, StateSet)}
    if not sets:
        return state
    merged = {**dict(state), **sets}
    return tuple(sorted((name, value) for name, value in merged.items() if value))


def changed_memories(
    memories: Mapping[str, str], changes: Iterable[Change], *, agent: str
) -> dict[str, str]:
    """An agent's memories, by id, after some changes. Adding an id that is there already changes nothing."""
    changed = dict(memories)
    for each in changes:
        match each:
            case MemoryAdded(agent=whose) if whose == agent:
                changed.setdefault(each.memory_id, each.text)
            case MemoryDeleted(agent=whose) if whose == agent:
                changed.pop(each.memory_id, None)
            case _:
                pass  # session state, or another agent's memory
    return changed


# ── what people and models see ───────────────────────────────────────────────────────────────


def seen_by_people(
    snapshot: Snapshot, *, since: int = 0, upto: int | None = None
) -> Iterator[StoredItem]:
    """The history as people see it, from position `since` to before `upto`: all but hidden items, damaged items
    included."""
    hidden = snapshot.notes.hidden_from_people
    items = snapshot.items[since:upto] if since else islice(snapshot.items, upto)
    return (each for each in items if isinstance(each, Unreadable) or each.id not in hidden)


def hidden_from_model(snapshot: Snapshot) -> frozenset[ItemId]:
    """The items that no model sees: hidden by people, or interrupted in a turn that was continued."""
    hidden, broken = snapshot.notes.hidden_from_model, snapshot.broken_off
    return hidden | broken if broken else hidden


def seen_by_model(snapshot: Snapshot, *, since: int = 0) -> Iterator[Item]:
    """The history as the session's agent sees it, from position `since` on.

    A summary that is not hidden stands in place of the items that it covers. Left out are: items of sub-agents,
    steps that were set aside, unfinished reasoning, hidden items and unreadable items.
    The result is well formed: a call or result whose partner is left out is left out as well, and a call
    that the summary covers is included if its result is not covered, or still awaited.

    A view up to a position that `settled_to` gives, and a view from there on, make a whole view: no call is in
    one of them and its result in the other.
    """
    hidden = hidden_from_model(snapshot)
    summary = summary_seen(snapshot)
    start = max(since, summary.covers_to if summary else 0)
    items = snapshot.items.since(start)
    before = _calls_before(start, snapshot, items)
    shown = _for_model(items, hidden)
    earlier = _for_model(before.values(), hidden)
    alone = _alone((*earlier, *shown), snapshot.waiting)
    if since == 0 and summary is not None:
        yield summary
    covered = _for_model((each for at, each in before.items() if at >= since), hidden)
    yield from (each for each in (*covered, *shown) if each.id not in alone)


def seen_by_agent(snapshot: Snapshot, *, items_max: int | None) -> Iterator[Item]:
    """The history as an agent's model sees it, of about the last `items_max` items; None: of all items."""
    after = 0 if items_max is None else seen_after(snapshot, items_max=items_max)
    since = settled_to(snapshot, snapshot.marks[after - 1]) if after else 0
    return seen_by_model(snapshot, since=since)


def seen_after(snapshot: Snapshot, *, items_max: int) -> int:
    """The version after which a model's view begins, if it may see at most `items_max` items of the past.

    A turn is seen whole or not at all; the newest is always seen, however long it is. The boundary moves in strides
    of half of `items_max`, so that a provider's cache of the prompt stays valid for a while. 0, a view of everything,
    if a summary covers as much.
    """
    marks, stride = snapshot.marks, max(1, items_max // 2)
    surplus = len(snapshot.items) - items_max
    if surplus <= 0 or len(marks) < 2:
        return 0
    boundary = -(-surplus // stride) * stride
    after = min(bisect_left(marks, boundary, key=lambda mark: mark.end) + 1, len(marks) - 1)
    summary = summary_seen(snapshot)
    is_summed_up = summary is not None and summary.covers_to >= marks[after - 1].end
    return 0 if is_summed_up else after


def summary_seen(snapshot: Snapshot) -> Summary | None:
    """The summary that stands for the session's past, if any: the furthest-reaching one that is not hidden."""
    hidden = snapshot.notes.hidden_from_model
    made = (snapshot.turn_summary, snapshot.notes.summary)
    return further(*(each for each in made if each is not None and each.id not in hidden))


def seen_in_turn(turn: Turn, path: Path = (), *, after: Iterable[Item] = ()) -> list[Item]:
    """A turn so far as the agent of one of its branches sees it, by the rules of `seen_by_model`.

    `after` are the unsettled items before the turn, such as calls that the turn before left waiting. They
    are included with their results; a result whose call is not among them is left out.
    """
    return seen_in_branch(turn.items, path, after=after)


def seen_in_branch(
    items: Iterable[StoredItem], path: Path = (), *, after: Iterable[Item] = ()
) -> list[Item]:
    """The same, of the items that a turn had at some point."""
    both = [*after, *_for_model(items, frozenset(), path)]
    alone = _alone(both, ())
    return [each for each in both if each.id not in alone]


def settled_to(snapshot: Snapshot, turn: TurnMark) -> int:
    """The position up to which the history after this turn was settled: every call before it had its result.

    That is the turn's end, unless it left calls waiting: then it is the start of the step that made them.
    """
    items = snapshot.items[turn.start : turn.end]
    waiting = {each.id for each in waiting_calls(items)}
    at = next((n for n, each in enumerate(items) if item_id(each) in waiting), len(items))
    while 0 < at < len(items) and _is_of_step(items[at - 1]):
        at -= 1
    return turn.start + at


def _is_of_step(item: StoredItem) -> bool:
    """Whether a model may have made this item in its step. An unreadable item counts: no model sees it."""
    if isinstance(item, Unreadable):
        return True
    return isinstance(item, AssistantMessage | Reasoning | ToolCall) and not item.path


def further(*summaries: Summary | None) -> Summary | None:
    """The summary that covers most; of several that cover equally much, the last one."""
    best: Summary | None = None
    for each in summaries:
        if each is not None and (best is None or each.covers_to >= best.covers_to):
            best = each
    return best


def _summaries(items: Iterable[StoredItem]) -> Iterator[Summary]:
    return (each for each in items if type(each) is Summary and not each.path)


def _for_model(
    items: Iterable[StoredItem], hidden: frozenset[ItemId], path: Path = ()
) -> list[Item]:
    return [
        each
        for each in items
        if type(each) is not Unreadable
        and each.path == path
        and each.id not in hidden
        and _concerns_model(each)
    ]


_CUT_BY_LENGTH = ("output_tokens", "output_chars")
"""Limits that cut an answer short and leave nothing open: the client knows, and decides how to go on."""


def _concerns_model(item: Item) -> bool:
    match item:  # first what most items are
        case UserMessage():
            return not item.decisions
        case AssistantMessage() | ToolCall():
            return item.state != "set_aside"
        case Summary():
            return False
        case Interruption():
            return not (item.ended_by == "limit" and item.detail in _CUT_BY_LENGTH)
        case Reasoning():
            return item.state == "complete"
        case ForeignItem():
            return bool(item.original.text)
        case _:
            return True


def _alone(items: Iterable[Item], waiting: Iterable[ToolCall]) -> set[ItemId]:
    """The calls among these items that have no result and await none, and the results without a call."""
    calls = {each.id for each in items if type(each) is ToolCall}
    results = {each.call: each.id for each in items if type(each) is ToolResult}
    if not calls and not results:  # nearly always
        return set()
    unanswered = calls - results.keys() - {each.id for each in waiting}
    return unanswered | {result for call, result in results.items() if call not in calls}


def _calls_before(
    start: int, snapshot: Snapshot, items: Iterable[StoredItem]
) -> dict[int, ToolCall]:
    """Calls before `start`, by position, whose results are still awaited or are among `items`, the items from `start`
    on."""
    if not start:
        return {}
    wanted = {each.call for each in items if isinstance(each, ToolResult)}
    wanted.update(each.id for each in snapshot.waiting)
    wanted.difference_update(each.id for each in items if isinstance(each, ToolCall))
    found: dict[int, ToolCall] = {}
    # A turn answers the calls that the turn before it left waiting, so this does not go far back.
    for position in range(min(start, len(snapshot.items)) - 1, -1, -1):
        if len(found) == len(wanted):
            break
        item = snapshot.items[position]
        if isinstance(item, ToolCall) and item.id in wanted:
            found[position] = item
    return dict(reversed(found.items()))


def waiting_calls(last_turn: Iterable[StoredItem]) -> tuple[ToolCall, ...]:
    """The calls that the last committed turn left for the next one to answer."""
    items = tuple(last_turn)
    calls = [each for each in items if type(each) is ToolCall and each.waits_for]
    if not calls:  # nearly always
        return ()
    answered = {each.call for each in items if isinstance(each, ToolResult)}
    return tuple(each for each in calls if each.id not in answered)
