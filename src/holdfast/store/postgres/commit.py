"""T2, as work on the database: a turn becomes a session's next version. See `turns.py` for the rules.

Whoever knows the session (`recall.py`) writes without reading, together with all others who are about to
(`gathering.py`). What that leaves out, and whatever else there is to a commit, is looked at alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from holdfast.core.codec import Value, encode
from holdfast.core.conversation import Commit
from holdfast.core.events import MemoryAdded, MemoryDeleted, StateSet
from holdfast.core.items import path_text
from holdfast.ids import SessionKey
from holdfast.store import decisions, shaping
from holdfast.store.base import CommitOutcome, Committed, Fence, Settlement
from holdfast.store.opening import opening_of
from holdfast.store.postgres.engine import Db, Engine
from holdfast.store.postgres.faults import Stale
from holdfast.store.postgres.gathering import Gathering
from holdfast.store.postgres.recall import Known, Recall
from holdfast.store.postgres.tables import Bound, Column, utf8
from holdfast.store.postgres.turns import CLAIM_KEEP_MS, ending

AT_ONCE = 2
"""Statements with commits on their way: while one is waiting for the disk, the next is worked on."""


class Asked(Value):
    """A commit as it was asked for."""

    fence: Fence
    made: Commit
    n: int
    records: bytes
    settlement: Settlement

    @property
    def memories(self) -> list[MemoryAdded | MemoryDeleted]:
        changes = self.made.changes
        return [each for each in changes if isinstance(each, MemoryAdded | MemoryDeleted)]


class Proposed(Value):
    """A commit on a session as it is known."""

    asked: Asked
    on: Known


# ── many ─────────────────────────────────────────────────────────────────────────────────────


def gathered_commits(engine: Engine, recall: Recall) -> Gathering[Proposed, CommitOutcome]:
    """The way to T2 for commits on what is known."""

    async def alone(proposed: Proposed) -> CommitOutcome:
        asked, key = proposed.asked, proposed.on.key
        return await engine.run(lambda db: commit(db, asked, recall, key=key))

    async def together(db: Db, group: Sequence[Proposed]) -> list[CommitOutcome | None]:
        rows = await db.write("commit_turns", **_columns(group))
        written = {(tenant, turn_id): now_ms for tenant, turn_id, now_ms in rows}
        done: list[CommitOutcome | None] = []
        for each in group:
            now_ms = written.get((each.asked.fence.tenant, each.asked.fence.turn_id))
            done.append(None if now_ms is None else _written(db, each, recall, now_ms=now_ms))
        return done

    return Gathering(
        engine,
        together,
        key=lambda proposed: proposed.asked.fence.session_id,
        size=lambda proposed: sum(map(len, proposed.asked.made.encoded)),
        alone=alone,
        at_once=AT_ONCE,
    )


def propose(asked: Asked, known: Known | None) -> Proposed | None:
    """A commit that may be written on what is known; None if there is more to be looked at."""
    if known is None or asked.memories:
        return None
    may = decisions.may_commit_as_known(
        asked.fence, asked.made, known.session, n=asked.n, last_n=known.last_n
    )
    return Proposed(asked=asked, on=known) if may else None


def _columns(group: Sequence[Proposed]) -> dict[str, Bound]:
    """The values of one commit after the other, as columns; what a commit has several of, in one row after all."""
    rows = [_bound(each) for each in group]
    columns: dict[str, Bound] = {name: [row[name] for row in rows] for name in rows[0]}
    columns["keep_ms"] = CLAIM_KEEP_MS
    several = [_several(each.asked) for each in group]
    for what, names in (("items", ("paths", "bodies")), ("values", ("names", "values"))):
        upto = list(accumulate(len(each[names[0]]) for each in several))
        columns[f"{what}_from"] = [before + 1 for before in (0, *upto[:-1])]
        columns[f"{what}_upto"] = upto
        for name in names:
            columns[name] = [value for each in several for value in each[name]]
    return columns


# ── one ──────────────────────────────────────────────────────────────────────────────────────


async def commit(db: Db, asked: Asked, recall: Recall, *, key: SessionKey | None) -> CommitOutcome:
    """T2, looked at closely. `key` is one that was known to mean the session."""
    fence = asked.fence
    found = await ending(db, fence)
    outcome = decisions.judge_commit(
        fence,
        asked.made,
        session=found.session,
        turn=found.turn,
        steers=decisions.waiting_steers(found.signals),
        n=asked.n,
        last_n=found.last_n,
    )
    if outcome is not None:
        return outcome
    session, turn = found.session, found.turn
    assert session is not None and turn is not None, "judge_commit lets only held turns through"
    on = Known(session=session, stamp=found.stamp, key=key, replayable=turn.replayable)
    done = await _write(db, Proposed(asked=asked, on=on), recall)
    if done is None:
        raise Stale
    return done


async def _write(db: Db, proposed: Proposed, recall: Recall) -> Committed | None:
    """Write it, on condition that the session is still like this; None if it is not."""
    asked = proposed.asked
    values = _bound(proposed) | _several(asked) | {"keep_ms": CLAIM_KEEP_MS}
    if asked.memories:
        async with db.transaction():
            rows = await db.write("commit_turn", **values)
            for change in asked.memories if rows else ():
                await _remember(db, asked.fence, change, now_ms=rows[0][0])
    else:
        rows = await db.write("commit_turn", **values)
    return _written(db, proposed, recall, now_ms=rows[0][0]) if rows else None


def _written(db: Db, proposed: Proposed, recall: Recall, *, now_ms: int) -> Committed:
    """What has come of it; and the session is known anew."""
    made, on = proposed.asked.made, proposed.on
    session = shaping.committed_session(on.session, made, now_ms=now_ms)
    recall.put(Known(session=session, stamp=on.stamp + 1, key=on.key, noted_s=db.moment_s))
    return Committed(version=made.version, at_ms=now_ms)


def _bound(proposed: Proposed) -> dict[str, Column]:
    """What a commit has one of."""
    asked, made, session = proposed.asked, proposed.asked.made, proposed.on.session
    return {
        "tenant": asked.fence.tenant,
        "session_id": asked.fence.session_id,
        "turn_id": asked.fence.turn_id,
        "stamp": proposed.on.stamp,
        "token": asked.fence.token,
        "seq": made.version,
        "ended_by": made.ended_by,
        "detail": utf8(made.detail),
        "agent": utf8(made.agent),
        "source_key": utf8(made.source_key),
        "entry_agent": utf8(made.entry_agent),
        "opening": utf8(opening_of(made.items)),
        "start": session.length,
        "end": session.length + len(made.items),
        "rev": session.meta_rev,
        "changes": encode(made.changes),
        "link": made.link,
        "usage": encode(made.usage),
        "replayable": made.keeps_journal(replayable=proposed.on.replayable),
        "unfinished": made.unfinished,
        "retries_left": made.retries_left,
        "links": made.links,
        "n": asked.n,
        "records": asked.records,
        "settlement": asked.settlement,
    }


def _several(asked: Asked) -> dict[str, list[Column]]:
    """What it has any number of: items, and state."""
    # The last word on each name counts, as in `changed_state`.
    changes = asked.made.changes
    state = {each.name: each.value for each in changes if isinstance(each, StateSet)}
    return {
        "paths": [path_text(item.path) for item in asked.made.items],
        "bodies": list(asked.made.encoded),
        "names": [utf8(name) for name in state],
        "values": [utf8(value) for value in state.values()],
    }


async def _remember(
    db: Db, fence: Fence, change: MemoryAdded | MemoryDeleted, *, now_ms: int
) -> None:
    which: dict[str, Bound] = {
        "tenant": fence.tenant,
        "agent": utf8(change.agent),
        "memory_id": utf8(change.memory_id),
    }
    match change:
        case MemoryAdded():
            text = utf8(change.text)
            await db.write("add_memory", text=text, turn_id=fence.turn_id, at_ms=now_ms, **which)
        case MemoryDeleted():
            await db.write("delete_memory", **which)
