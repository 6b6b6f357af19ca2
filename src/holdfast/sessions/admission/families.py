"""Finds the line of a family in which a request goes on, for clients that own their history.

The comparison is `core/history/branches.py`; here are its reads. Nothing is final: T1 checks that the line is free and
has not moved, and a request that meets a busy or moved line goes on in a fork of it. So such a request never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from holdfast import limits
from holdfast.core.codec import Unreadable, Value
from holdfast.core.exchanges import WHOLE
from holdfast.core.history.branches import (
    Boundary,
    ClientBranch,
    LineMatch,
    begun_after,
    branch_of,
    call_digest,
    followed_by,
    id_digest,
    matched,
    matched_anywhere,
    matched_unfinished,
)
from holdfast.core.history.conversation import Snapshot
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
    is_free: bool
    is_same_agent: bool
    snapshot: Snapshot | None = None
    """The line at that version, if it was read for the comparison."""


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
        base = await self._base(ask, branch, found, current, choice)
        if base is None:
            fresh = self._ambient.mint(SessionId)
            target = NewLine(key=ask.name, family=family, fresh=fresh)
            _demand_version(ask, Version(0), fresh)
            return self._line(ask, branch, target, None, Snapshot(session_id=fresh), None)
        _demand_version(ask, base.match.version, base.session_id)
        snapshot = base.snapshot or await self._at(ask.tenant, base.session_id, base.match.version)
        is_head = base.is_free and base.head == base.match.version
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
        """The turns by which a request is found, in one read; in a second one if its last exchanges are unknown."""
        found = await self._look(ask, family, branch.digests())
        few = len(branch.digests(recent=None)) > len(branch.digests())
        if few and not any(each.state == "committed" for each in found):
            found = await self._look(ask, family, branch.digests(recent=None))
        return found

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
        """The turn that the same request has begun before, in whichever line."""
        for each in found:
            is_same = each.request_hash == ask.attempt.request_hash
            if is_same and each.state != "discarded" and ask.attempt.request_hash:
                target = ById(session_id=each.session_id)
                return await self._store.find_attempt(ask.tenant, ask.attempt, target)
        return None

    # ── the version to go on from ──

    async def _base(
        self,
        ask: Ask,
        branch: ClientBranch,
        found: Sequence[FamilyTurn],
        current: SessionRow,
        choice: AgentChoice,
    ) -> _Base | None:
        kept = [each for each in found if each.state == "committed" and each.seq is not None]
        found_by = await self._by_call(ask, branch, kept, choice)
        found_by = found_by or await self._by_id(ask, branch, kept, choice)
        if found_by is not None:
            return found_by
        for boundary in reversed(branch.boundaries):
            equal = [each for each in kept if each.prefix == boundary.prefix]
            bases = [_base_of(each, choice, known=boundary.end) for each in equal]
            if not boundary.last.is_answered:
                bases = []
                for each in equal:
                    snapshot = await self._at(ask.tenant, each.session_id, each.seq)
                    match = matched_unfinished(branch, boundary, snapshot)
                    if match is not None:
                        bases.append(_base_of(each, choice, match=match, snapshot=snapshot))
            chosen = await self._chosen(ask.tenant, bases)
            if chosen is not None:
                return chosen
            alike = [
                await self._compared(ask.tenant, branch, boundary, each, choice)
                for each in kept
                if each.answer in boundary.answers
            ]
            bases = [each for each in alike if each is not None]
            chosen = await self._chosen(ask.tenant, bases)
            if chosen is not None:
                return chosen
        return await self._by_comparison(ask, branch, current, choice)

    async def _by_id(
        self, ask: Ask, branch: ClientBranch, kept: Sequence[FamilyTurn], choice: AgentChoice
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
            base = await self._compared(ask.tenant, branch, branch.answer_before, each, choice)
            if base is not None:
                return base
        return None

    async def _by_call(
        self, ask: Ask, branch: ClientBranch, kept: Sequence[FamilyTurn], choice: AgentChoice
    ) -> _Base | None:
        """The version whose calls wait for results that end the request: by the id of the call, whatever else the
        request has."""
        for n, call_id in branch.results:
            digest = call_digest(call_id)
            waiting = [each for each in kept if each.answer == digest]
            first = min((at for at, _ in branch.results), default=n)
            last = branch.boundaries[-1] if branch.boundaries else None
            alike = [
                await self._compared(ask.tenant, branch, last, each, choice)
                for each in (waiting if last is not None else ())
            ]
            bases = [_as_known(each, first) for each in alike if each is not None]
            bases = bases or [_base_of(each, choice, known=first) for each in waiting]
            chosen = await self._chosen(ask.tenant, bases)
            if chosen is not None:
                return chosen
        return None

    async def _compared(
        self,
        tenant: Tenant,
        branch: ClientBranch,
        boundary: Boundary | None,
        turn: FamilyTurn,
        choice: AgentChoice,
    ) -> _Base | None:
        """A version as the base of a request up to a boundary, if both agree. Without a boundary the request begins
        after the version."""
        if boundary is not None and turn.prefix == boundary.prefix:
            return _base_of(turn, choice, known=boundary.end)
        snapshot = await self._at(tenant, turn.session_id, turn.seq)
        if boundary is None:
            return _base_of(turn, choice, match=begun_after(snapshot), snapshot=snapshot)
        match = matched(branch, boundary, snapshot) if boundary.last.is_answered else None
        if match is None:
            return None
        return _base_of(turn, choice, match=match, snapshot=snapshot)

    async def _by_comparison(
        self, ask: Ask, branch: ClientBranch, current: SessionRow, choice: AgentChoice
    ) -> _Base | None:
        """The version of the name's own line, or of the family's first one, for versions that have no digests."""
        if not any(each.last.is_answered for each in branch.boundaries):
            return None
        for session_id in dict.fromkeys((current.id, current.family_id)):
            row = await self._store.session(ask.tenant, session_id)
            if row is None or row.state == "deleted":
                continue
            line = await self._lookup.snapshot(ask.tenant, session_id, verify=True)
            match = matched_anywhere(branch, line)
            if match is not None:
                mark = line.marks[match.version - 1]
                same = _is_same(choice, row.source_key, row.entry_agent, mark.agent)
                return _Base(
                    session_id=session_id,
                    match=match,
                    head=row.head,
                    is_free=row.open_turn is None,
                    is_same_agent=same,
                )
        return None

    async def _chosen(self, tenant: Tenant, bases: Sequence[_Base]) -> _Base | None:
        """One of several versions that a request may go on from: of the same agent, then a head. Among those that are
        left, any, if a model sees the same in all of them; else none, since it would be a guess."""
        left = [each for each in bases if each.is_same_agent] or list(bases)
        left = [each for each in left if each.head == each.match.version] or left
        if len(left) < 2:
            return left[0] if left else None
        views = [
            _content(each.snapshot or await self._at(tenant, each.session_id, each.match.version))
            for each in left
        ]
        return left[0] if all(each == views[0] for each in views) else None

    async def _at(self, tenant: Tenant, session_id: SessionId, version: Version | None) -> Snapshot:
        """A line at a version; its head if it is there."""
        head = await self._lookup.snapshot(tenant, session_id, verify=True)
        if version is None or head.version == version:
            return head
        found = await self._store.snapshot(tenant, session_id, version=version)
        if found is None:
            raise SessionGone(session_id, why="deleted")
        return found

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
    snapshot: Snapshot | None = None,
) -> _Base:
    assert turn.seq is not None, "only a committed turn is a base"
    return _Base(
        session_id=turn.session_id,
        match=match or LineMatch(version=turn.seq, known=known),
        head=turn.head,
        is_free=turn.open_turn is None,
        is_same_agent=_is_same(choice, turn.source_key, turn.entry_agent, turn.agent),
        snapshot=snapshot,
    )


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
