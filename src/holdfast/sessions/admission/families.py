"""Finds the line of a family in which a request goes on, for clients that own their history.

The comparison is `core/history/branches.py`; here are its reads. Nothing is final: T1 checks that the line is free and
has not moved, and a request that meets a busy or moved line goes on in a fork of it. So such a request never waits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from holdfast import limits
from holdfast.core.codec import Unreadable, Value
from holdfast.core.exchanges import WHOLE
from holdfast.core.history.branches import (
    Boundary,
    ClientBranch,
    ComparisonBudget,
    HeldLine,
    LineMatch,
    begun_after,
    branch_of,
    call_digest,
    followed_by,
    held_line,
    held_versions,
    id_digest,
    matched,
    matched_anywhere,
    matched_unfinished,
)
from holdfast.core.history.conversation import Snapshot
from holdfast.core.history.reconciliation import question_of, question_shown
from holdfast.errors import SessionConflict, SessionGone, SessionMissing
from holdfast.ids import SessionId, SessionKey, Tenant, Version
from holdfast.sessions.admission.session_lookup import SessionLookup
from holdfast.sessions.ambient import Ambient
from holdfast.sessions.session_requests import AgentChoice, Ask, Choose, Line
from holdfast.store.outcomes import ById, ByKey, FamilyTurn, Known, NewLine, Target
from holdfast.store.rows import SessionRow
from holdfast.store.store import Store


class _Base(Value):
    """A version that a request may go on from."""

    session_id: SessionId
    match: LineMatch
    head: Version
    is_same_agent: bool


class _LineReader:
    """Reads lines at versions for one request, each version once."""

    def __init__(self, store: Store, lookup: SessionLookup, ask: Ask) -> None:
        self._store = store
        self._lookup = lookup
        self._tenant = ask.tenant
        self.question = question_shown(ask.messages)
        """The question about waiting calls that the request shows last, if it does."""
        self._read: dict[tuple[SessionId, Version], Snapshot] = {}
        self._held: dict[tuple[SessionId, Version], HeldLine] = {}
        self.budget = ComparisonBudget()
        self.is_unclear = False
        """Versions that differ agreed with the request: none of them is chosen."""

    async def at(self, session_id: SessionId, version: Version) -> Snapshot:
        """A line at a version."""
        key = session_id, version
        if key not in self._read:
            found: Snapshot | None = await self._lookup.snapshot(
                self._tenant, session_id, verify=True
            )
            if found is None or found.version != version:
                found = await self._store.snapshot(self._tenant, session_id, version=version)
            if found is None:
                raise SessionGone(session_id, why="deleted")
            self._read[key] = found
        return self._read[key]

    async def held_at(self, session_id: SessionId, version: Version) -> HeldLine | None:
        """The same, as its clients have seen it; None if the budget is spent."""
        key = session_id, version
        if key not in self._held and not self.budget.is_spent:
            head = await self._lookup.snapshot(self._tenant, session_id, verify=True)
            if head.broken_off or head.notes.hidden_from_people:  # a version may have seen more
                snapshot = await self.at(session_id, version)
                self.budget.spend(len(snapshot.items))
                self._held[key] = held_line(snapshot)
            else:
                versions = held_versions(head, self.budget)
                self._held.update({(session_id, each.version): each for each in versions})
        return self._held.get(key)


class Families:
    """Finds lines by the content of requests."""

    def __init__(
        self, store: Store, lookup: SessionLookup, ambient: Ambient, choose: Choose
    ) -> None:
        self._store = store
        self._lookup = lookup
        self._ambient = ambient
        self._choose = choose

    async def find(
        self, ask: Ask, *, is_held: Callable[[SessionId], bool], looks: bool, may_stay: bool
    ) -> Line | Known:
        """The line in which a request goes on; or, with `looks`, the turn that it has begun before.

        `is_held` tells whether a turn of this node holds a session; with `may_stay` false the request gets a line of its
        own in any case. Raises SessionMissing, SessionGone, and SessionConflict if `if_match` names another version.
        """
        assert isinstance(ask.name, SessionKey) and ask.history is not None
        branch = branch_of(ask.messages)
        if looks and ask.attempt.key is not None:
            claimed = await self._store.find_attempt(ask.tenant, ask.attempt)
            if claimed is not None:
                return claimed
        current = await self._current(ask, ask.name)
        if current is None:
            return self._first(ask, ask.name, branch)
        family = current.family_id
        found = await self._turns(ask, family, branch)
        begun = await self._begun(ask, found) if looks else None
        if begun is not None:
            return begun
        choice = self._choose(ask, Snapshot(session_id=current.id))
        reader = _LineReader(self._store, self._lookup, ask)
        base = await self._base(ask, branch, found, current, choice, reader)
        if base is None or await self._waits_for_more(branch, base, reader):
            fresh = self._ambient.mint(SessionId)
            target = NewLine(key=ask.name, family=family, fresh=fresh)
            _demand_version(ask, Version(0), fresh)
            return self._line(ask, branch, target, None, Snapshot(session_id=fresh), None)
        _demand_version(ask, base.match.version, base.session_id)
        snapshot = await reader.at(base.session_id, base.match.version)
        is_head = base.head == base.match.version
        if may_stay and is_head and base.is_same_agent and not is_held(base.session_id):
            own = ById(session_id=base.session_id)
            return self._line(ask, branch, own, base.session_id, snapshot, base.match)
        fresh = self._ambient.mint(SessionId)
        fork = snapshot.forked(fresh)
        if not base.is_same_agent:
            fork = msgspec.structs.replace(
                fork, source_key="", source_name="", entry_agent="", agent=""
            )
        new = NewLine(
            key=ask.name,
            family=family,
            fresh=fresh,
            parent=base.session_id,
            is_other_agent=not base.is_same_agent,
        )
        line = self._line(ask, branch, new, None, fork, base.match)
        return msgspec.structs.replace(line, diverged=await self._is_passed(ask.tenant, base))

    async def _current(self, ask: Ask, key: SessionKey) -> SessionRow | None:
        """The line that the name means; None if it is new."""
        row = await self._store.resolve(ask.tenant, key)
        current = await self._store.session(ask.tenant, row.session_id) if row else None
        if current is None or current.state == "deleted":
            if not ask.create:
                raise SessionMissing("session key", key)
            return None
        idle_ms = self._ambient.now_ms() - current.active_ms
        if ask.expire_after_s is not None and idle_ms > ask.expire_after_s * 1000:
            raise SessionGone(current.id, why="expired")
        return current

    def _first(self, ask: Ask, key: SessionKey, branch: ClientBranch) -> Line:
        fresh = self._ambient.mint(SessionId)
        _demand_version(ask, Version(0), fresh)
        target = ByKey(key=key, fresh=fresh)
        return self._line(ask, branch, target, None, Snapshot(session_id=fresh), None)

    def _line(
        self,
        ask: Ask,
        branch: ClientBranch,
        target: Target,
        expected: SessionId | None,
        snapshot: Snapshot,
        match: LineMatch | None,
    ) -> Line:
        assert ask.history is not None
        return Line(
            target=target,
            expected=expected,
            snapshot=snapshot,
            known=match.known if match else 0,
            followed=followed_by(
                branch,
                name=str(ask.name),
                answer_id=ask.history.answer_id,
                streamed=ask.history.streamed,
                shown=match.shown if match else WHOLE,
            ),
            continues_answer=branch.continues_answer,
        )

    # ── the turns that a request may mean ──

    async def _turns(
        self, ask: Ask, family: SessionId, branch: ClientBranch
    ) -> tuple[FamilyTurn, ...]:
        """The turns by which a request is found. Most requests go on from a prefix that one read finds; many turns may
        have the same answer."""
        found = await self._look(ask, family, branch.prefixes())
        last = branch.boundaries[-1] if branch.boundaries else None
        if last is None or (last.last.is_answered and _have_prefix(found, last.prefix)):
            return found
        found = (*found, *await self._look(ask, family, branch.digests()))
        few = len(branch.digests(recent=None)) > len(branch.digests())
        if few and not any(each.state == "committed" for each in found):
            found = await self._look(ask, family, branch.digests(recent=None))
        return tuple({each.turn_id: each for each in found}.values())

    async def _look(
        self, ask: Ask, family: SessionId, digests: Iterable[bytes]
    ) -> tuple[FamilyTurn, ...]:
        parent = ask.history.parent if ask.history else ""
        more = (id_digest(parent),) if parent else ()
        return await self._store.family_turns(
            ask.tenant,
            family,
            digests=(*digests, *more),
            request_hash=ask.attempt.request_hash,
            limit=limits.family_candidates_max,
        )

    async def _begun(self, ask: Ask, found: Sequence[FamilyTurn]) -> Known | None:
        """The turn that the same request has begun before, in whichever line: a person may have regenerated meanwhile."""
        if not ask.attempt.request_hash:
            return None
        same = (each for each in found if each.request_hash == ask.attempt.request_hash)
        lines = dict.fromkeys(each.session_id for each in same if each.state != "discarded")
        for session_id in lines:
            target = ById(session_id=session_id)
            known = await self._store.find_attempt(ask.tenant, ask.attempt, target)
            if known is not None:
                return known
        return None

    # ── the version to go on from ──

    async def _base(
        self,
        ask: Ask,
        branch: ClientBranch,
        found: Sequence[FamilyTurn],
        current: SessionRow,
        choice: AgentChoice,
        reader: _LineReader,
    ) -> _Base | None:
        kept = [each for each in found if each.state == "committed" and each.seq is not None]
        found_by = await self._by_call(branch, kept, choice, reader)
        found_by = found_by or await self._by_id(ask, branch, kept, choice, reader)
        if found_by is not None:
            return found_by
        by_prefix, by_answer = (
            _indexed(kept, lambda each: each.prefix),
            _indexed(kept, lambda each: each.answer),
        )
        for boundary in reversed(branch.boundaries):
            if reader.budget.is_spent:
                return None
            equal = by_prefix.get(boundary.prefix, [])
            chosen = await self._equal(branch, boundary, equal, choice, reader)
            if chosen is not None:
                return chosen
            alike = [turn for each in boundary.answers for turn in by_answer.get(each, ())]
            heads_first = not (branch.has_media or reader.question)
            for group in _ranked(alike, choice, heads_first=heads_first):
                compared = [
                    await self._compared(branch, boundary, each, choice, reader) for each in group
                ]
                bases = [each for each in compared if each is not None]
                chosen = await self._chosen(branch, bases, reader)
                if chosen is not None:
                    return chosen
                if bases:
                    break
        if reader.is_unclear:
            return None
        return await self._by_comparison(ask, branch, current, choice, reader)

    async def _equal(
        self,
        branch: ClientBranch,
        boundary: Boundary,
        equal: Sequence[FamilyTurn],
        choice: AgentChoice,
        reader: _LineReader,
    ) -> _Base | None:
        """The version to go on from among those that have the prefix of a boundary."""
        if boundary.last.is_answered:
            found = [await self._compared(branch, boundary, each, choice, reader) for each in equal]
            bases = [each for each in found if each is not None]
        else:
            bases = []
            for each in equal:
                assert each.seq is not None, "only a committed turn has a version"
                held = await reader.held_at(each.session_id, each.seq)
                match = None if held is None else matched_unfinished(branch, boundary, held)
                if match is not None:
                    bases.append(_base_of(each, choice, match=match))
        return await self._chosen(branch, bases, reader)

    async def _by_id(
        self,
        ask: Ask,
        branch: ClientBranch,
        kept: Sequence[FamilyTurn],
        choice: AgentChoice,
        reader: _LineReader,
    ) -> _Base | None:
        """The version whose answer has the client's id, if the client has not changed what it holds: the id tells lines
        apart that look alike. A request that ends with an answer is found by content."""
        parent = ask.history.parent if ask.history else ""
        if not parent or branch.continues_answer:
            return None
        digest = id_digest(parent)
        for each in kept:
            if each.answer_id != digest:
                continue
            base = await self._compared(branch, branch.answer_before, each, choice, reader)
            if base is not None:
                return base
        return None

    async def _by_call(
        self,
        branch: ClientBranch,
        kept: Sequence[FamilyTurn],
        choice: AgentChoice,
        reader: _LineReader,
    ) -> _Base | None:
        """The version whose calls wait for results that end the request: by the id of the call, also if the
        request has more."""
        digests = {call_digest(call_id) for _, call_id in branch.results}
        waiting = [each for each in kept if each.answer in digests]
        if not waiting:
            return None
        first = min(at for at, _ in branch.results)
        last = branch.boundaries[-1] if branch.boundaries else None
        alike = [
            await self._compared(branch, last, each, choice, reader)
            for each in (waiting if last is not None else ())
        ]
        bases = [_as_known(each, first) for each in alike if each is not None]
        if not bases:  # of a line whose rounds have all their results, the last round waits
            newest = {each.session_id: each for each in sorted(waiting, key=_seq)}
            bases = [_base_of(each, choice, known=first) for each in newest.values()]
        return await self._chosen(branch, bases, reader)

    async def _compared(
        self,
        branch: ClientBranch,
        boundary: Boundary | None,
        turn: FamilyTurn,
        choice: AgentChoice,
        reader: _LineReader,
    ) -> _Base | None:
        """A version as the base of a request up to a boundary, if both agree. Without a boundary the request begins
        after the version."""
        assert turn.seq is not None, "only a committed turn has a version"
        if boundary is None:
            snapshot = await reader.at(turn.session_id, turn.seq)
            return _base_of(turn, choice, match=begun_after(snapshot))
        if turn.prefix == boundary.prefix and not branch.has_media:
            return _base_of(turn, choice, known=boundary.end)
        if not boundary.last.is_answered or reader.budget.is_spent:
            return None
        held = await reader.held_at(turn.session_id, turn.seq)
        match = None if held is None else matched(branch, boundary, held, reader.budget)
        return None if match is None else _base_of(turn, choice, match=match)

    async def _by_comparison(
        self,
        ask: Ask,
        branch: ClientBranch,
        current: SessionRow,
        choice: AgentChoice,
        reader: _LineReader,
    ) -> _Base | None:
        """The version of the name's own line, or of the family's first one, for versions that have no digests."""
        if not any(each.last.is_answered for each in branch.boundaries):
            return None
        for session_id in dict.fromkeys((current.id, current.family_id)):
            row = await self._store.session(ask.tenant, session_id)
            if row is None or row.state == "deleted":
                continue
            line = await self._lookup.snapshot(ask.tenant, session_id, verify=True)
            match = matched_anywhere(branch, line, reader.budget)
            if match is not None:
                mark = line.marks[match.version - 1]
                same = _is_same(choice, row.source_key, row.entry_agent, mark.agent)
                return _Base(
                    session_id=session_id,
                    match=match,
                    head=row.head,
                    is_same_agent=same,
                )
        return None

    async def _chosen(
        self, branch: ClientBranch, bases: Sequence[_Base], reader: _LineReader
    ) -> _Base | None:
        """One of several versions that a request may go on from: of the same agent, then one whose question the request
        shows, then a head. Among those that are left, any, if a model sees the same in all of them; else none, since it
        would be a guess. That a version is a head says nothing about its pictures."""
        left = [each for each in bases if each.is_same_agent] or list(bases)
        if len(left) > 1 and reader.question:
            left = await self._asking(left, reader.question, reader)
        heads = [each for each in left if each.head == each.match.version] or left
        if not branch.has_media:
            left = heads
        if len(left) < 2:
            return left[0] if left else None
        views = [_content(await reader.at(each.session_id, each.match.version)) for each in left]
        if any(each != views[0] for each in views):
            reader.is_unclear = True
            return None
        return heads[0]

    async def _asking(self, bases: list[_Base], shown: str, reader: _LineReader) -> list[_Base]:
        """The versions that end with the question that a request shows, or all of them if there are none. If one of them
        was answered, only that one: the request may be its answer, sent again, which decides about no other call."""
        lines = [(each, await reader.at(each.session_id, each.match.version)) for each in bases]
        questions = ((each, question_of(snapshot)) for each, snapshot in lines)
        asking = [each for each, found in questions if found and found.is_end_of(shown)]
        answered = [each for each in asking if each.head != each.match.version]
        return answered or asking or bases

    async def _waits_for_more(self, branch: ClientBranch, base: _Base, reader: _LineReader) -> bool:
        """Whether a request lets an answer go on whose calls wait for results, without them: its client shows the answer
        without its calls. In this line they would have to be answered first."""
        if not branch.continues_answer:
            return False
        snapshot = await reader.at(base.session_id, base.match.version)
        waiting = {each.call_id for each in snapshot.waiting if each.waits_for == "client"}
        return bool(waiting) and waiting.isdisjoint(branch.boundaries[-1].last.calls)

    async def _is_passed(self, tenant: Tenant, base: _Base) -> bool:
        """Whether a request that does not follow this client's history has appended to the line after the base."""
        if base.head == base.match.version:
            return False
        line = await self._lookup.snapshot(tenant, base.session_id, verify=False)
        marks = line.marks.since(base.match.version)
        turn = await self._store.turn(tenant, marks[0].turn_id) if marks else None
        return turn is not None and turn.family is not None and turn.prefix is None


def _base_of(
    turn: FamilyTurn,
    choice: AgentChoice,
    *,
    known: int = 0,
    match: LineMatch | None = None,
) -> _Base:
    assert turn.seq is not None, "only a committed turn is a base"
    return _Base(
        session_id=turn.session_id,
        match=match or LineMatch(version=turn.seq, known=known),
        head=turn.head,
        is_same_agent=_is_same(choice, turn.source_key, turn.entry_agent, turn.agent),
    )


def _seq(turn: FamilyTurn) -> Version:
    assert turn.seq is not None, "only a committed turn has a version"
    return turn.seq


def _have_prefix(turns: Iterable[FamilyTurn], prefix: bytes) -> bool:
    return any(each.state == "committed" and each.prefix == prefix for each in turns)


def _indexed(
    turns: Iterable[FamilyTurn], digest: Callable[[FamilyTurn], bytes | None]
) -> dict[bytes, list[FamilyTurn]]:
    found: defaultdict[bytes, list[FamilyTurn]] = defaultdict(list)
    for each in turns:
        key = digest(each)
        if key is not None:
            found[key].append(each)
    return dict(found)


def _ranked(
    turns: Sequence[FamilyTurn], choice: AgentChoice, *, heads_first: bool
) -> Iterator[list[FamilyTurn]]:
    """The turns in groups, in the order in which a choice prefers them: only the first that agrees has to be compared."""

    def rank(each: FamilyTurn) -> tuple[bool, bool]:
        same = _is_same(choice, each.source_key, each.entry_agent, each.agent)
        return not same, heads_first and each.seq != each.head

    for wanted in sorted({rank(each) for each in turns}):
        yield [each for each in turns if rank(each) == wanted]


def _as_known(base: _Base, known: int) -> _Base:
    """The base with this many of the request's messages held."""
    match = msgspec.structs.replace(base.match, known=known)
    return msgspec.structs.replace(base, match=match)


def _is_same(choice: AgentChoice, source_key: str, entry_agent: str, agent: str) -> bool:
    """Whether the agent that a request names is the line's: the one that it began with, or that speaks now."""
    return choice.source_key == source_key and choice.agent in (entry_agent, agent)


def _content(snapshot: Snapshot) -> list[object]:
    """What a model sees of a line, without the ids that tell lines apart."""
    fields = ("content", "text", "name", "arguments", "outcome")
    return [
        (type(each), *(getattr(each, name, None) for name in fields))
        for each in snapshot.items
        if not isinstance(each, Unreadable)
    ]


def _demand_version(ask: Ask, version: Version, session_id: SessionId) -> None:
    if ask.if_match is not None and ask.if_match != version:
        raise SessionConflict(session_id, expected=ask.if_match, found=version)
