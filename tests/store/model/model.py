"""The promises of a store, as plain data: what every home is held against.

Written from the promises in ARCHITECTURE.md and the docstrings of the methods of `Store`, and from nothing else: no row
is looked up here that a home would look up, and `store/decisions.py` is not imported. Where a home has
tables, lineages and revisions, the model has lists:

1. A session is its story: the turns that were committed and the annotations that were made, in that order.
   Its versions are the stretches between its commits. A fork is a copy of the story up to a version.
2. A session has at most one open turn. Whoever holds the turn's latest token and nonce may write it. Others may
   wait in its queue, which is a list; the first one can be opened.
3. Each tenant has rows of its own, so no method can see another's.

A method answers like the store's, with the same values and errors, and has changed nothing if it raises.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import limits
from holdfast.core.history.conversation import Annotation, Patch, Snapshot
from holdfast.errors import SessionGone, SessionMissing
from holdfast.ids import IdempotencyKey, ItemId, SessionId, SessionKey, Tenant
from holdfast.store import outcomes
from holdfast.store.rows import IdempotencyRow, SessionRow
from tests.store.model.queue import Queue
from tests.store.model.things import Entry, Rows, Session, told


class Model(Queue):
    """A store that is obviously right."""

    # sessions as a whole

    def live(self, tenant: Tenant, session_id: SessionId) -> Session:
        session = self.of[tenant].sessions.get(session_id)
        if session is None:
            raise SessionMissing("session", session_id)
        if session.deleted:
            raise SessionGone(session_id, why="deleted")
        return session

    def annotate(
        self,
        tenant: Tenant,
        session_id: SessionId,
        patches: Sequence[tuple[ItemId | None, Patch]],
        *,
        summary_rev: int | None = None,
    ) -> outcomes.AnnotateOutcome:
        session = self.live(tenant, session_id)
        notes = session.head.notes
        if summary_rev not in (None, notes.summary_rev):
            return outcomes.SummaryMoved(summary_rev=notes.summary_rev)
        made = tuple(
            Annotation(rev=rev, patch=patch, item=item, at_ms=self.now_ms)
            for rev, (item, patch) in enumerate(patches, start=notes.rev + 1)
        )
        session.story += (Entry(session_id, each) for each in made)
        return outcomes.Annotated(annotations=made)

    def fork(
        self, tenant: Tenant, session_id: SessionId, *, version: int, fresh: SessionId
    ) -> SessionRow:
        there = self.of[tenant].sessions.get(fresh)
        if there is not None:
            return there.row
        parent = self.live(tenant, session_id)
        story = parent.at(version)
        if story is None:
            raise SessionMissing("version", str(version))
        made = self.new_session(tenant, fresh)
        made.anonymous, made.story = parent.anonymous, list(story)
        # Whoever made the next version holds the annotations of this one.
        holder = parent.story[len(story)].owner if len(story) < len(parent.story) else parent.id
        known = [*parent.past, parent.id]
        made.past = known[: known.index(holder) + 1]
        return made.row

    def bind(
        self, tenant: Tenant, key: SessionKey, *, fresh: SessionId, version: int | None = None
    ) -> SessionRow:
        rows = self.of[tenant]
        if fresh in rows.sessions:
            return rows.sessions[fresh].row
        if version is None:
            self.new_session(tenant, fresh)
        elif key not in rows.keys:
            raise SessionMissing("session key", key)
        else:
            self.fork(tenant, rows.keys[key].session_id, version=version, fresh=fresh)
        self.name(rows.sessions[fresh], key)
        return rows.sessions[fresh].row

    def remove(self, tenant: Tenant, session_id: SessionId) -> SessionRow:
        rows = self.of[tenant]
        session = rows.sessions.get(session_id)
        if session is None:
            raise SessionMissing("session", session_id)
        if not session.deleted:
            for turn in (*([session.open] if session.open else ()), *session.queue):
                self.close(turn, "discarded", "deleted", "", "done")
            session.deleted = True
            session.token += 1
            rows.keys = {key: row for key, row in rows.keys.items() if row.session_id != session_id}
        return session.row

    # reading

    def snapshot(
        self, tenant: Tenant, session_id: SessionId, *, version: int | None = None
    ) -> Snapshot | None:
        session = self.of[tenant].sessions.get(session_id)
        if session is None or session.deleted:
            return None
        story = session.story if version is None else session.at(version)
        return None if story is None else told(session_id, story)

    def idempotency(self, tenant: Tenant, key: IdempotencyKey) -> IdempotencyRow | None:
        claim = self.of[tenant].claims.get(key)
        return claim.row if claim else None

    def sessions(self, tenant: Tenant, where: outcomes.SessionFilter) -> list[SessionId]:
        """What a list shows, over all its pages."""
        shown = [
            session
            for session in self.of[tenant].sessions.values()
            if not session.deleted
            and session.head.version > 0
            and session.anonymous == where.anonymous
            and (where.busy is None or where.busy == (session.open is not None))
            and (where.agent is None or where.agent == session.head.agent)
            and (where.active_from_ms is None or session.active_ms >= where.active_from_ms)
            and (where.active_before_ms is None or session.active_ms < where.active_before_ms)
            and set(where.attributes) <= set(session.head.notes.settings.attributes)
            and (
                where.key_prefix is None
                or any(key.startswith(where.key_prefix) for key in self.keys_of(session))
            )
        ]
        shown.sort(key=lambda each: (each.active_ms, each.id), reverse=True)
        return [each.id for each in shown]

    def keys_of(self, session: Session) -> list[SessionKey]:
        keys = self.of[session.tenant].keys
        return sorted(key for key, row in keys.items() if row.session_id == session.id)

    # retention

    def prune(self) -> None:
        """Everything that may go now is gone."""
        self.look()
        for rows in self.of.values():
            for turn in list(rows.turns.values()):
                if turn.state == "discarded" and self.is_over(
                    turn.ended_ms, limits.discarded_keep_s
                ):
                    del rows.turns[turn.id]
                if turn.state == "committed" and self.is_over(
                    turn.ended_ms, limits.idempotency_keep_s
                ):
                    turn.replayable = False
                    turn.journal.clear()
            rows.claims = {
                key: claim
                for key, claim in rows.claims.items()
                if claim.state == "running"
                or not self.is_over(
                    claim.expires_ms - int(limits.idempotency_keep_s * 1000),
                    limits.idempotency_keep_s,
                )
            }
            for session in rows.sessions.values():
                idle = self.is_over(session.active_ms, limits.anonymous_keep_s)
                if session.anonymous and session.open is None and idle:
                    self.remove(session.tenant, session.id)
            self.clear_deleted(rows)
        holders = {turn.node for turn in self.open_turns()}
        self.nodes = {
            node: row
            for node, row in self.nodes.items()
            if node in holders or not self.is_over(row.expires_ms, limits.dead_node_keep_s)
        }

    def clear_deleted(self, rows: Rows) -> None:
        read = {past for each in rows.sessions.values() if not each.deleted for past in each.past}
        claimed = {claim.turn.id for claim in rows.claims.values()}
        rows.turns = {
            turn_id: turn
            for turn_id, turn in rows.turns.items()
            if not turn.session.deleted or turn.session.id in read or turn_id in claimed
        }

    def is_over(self, since_ms: int, keep_s: float) -> bool:
        return self.age_ms(since_ms) >= keep_s * 1000
