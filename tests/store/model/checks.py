"""What can be seen in a home, held against the model; and what must be true of it by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.core.codec import Value
from holdfast.core.history.checks import StoredTurn, Violation, check_history
from holdfast.core.history.conversation import Snapshot
from holdfast.ids import IdempotencyKey, SessionId, SessionKey, Tenant, TurnId, Version
from holdfast.store.outcomes import EVERYTHING, SessionDump, SessionFilter
from holdfast.store.rows import NodeRow, SessionRow, TurnRow
from holdfast.store.snapshots import mark_of
from holdfast.store.store import Store
from tests.store.model.homes import Homes
from tests.store.model.model import Model
from tests.store.model.things import Session, told


class View(Value):
    """A session as one home shows it."""

    row: SessionRow | None
    keys: tuple[SessionKey, ...]
    head: Snapshot | None
    turns: tuple[TurnRow, ...]
    dump: SessionDump | None


async def view(store: Store, tenant: Tenant, session_id: SessionId) -> View:
    info = await store.info(tenant, session_id)
    live = info is not None and info.session.state == "live"
    return View(
        row=plain(info.session) if info else None,
        keys=info.keys if info else (),
        head=await store.snapshot(tenant, session_id),
        turns=await store.turns(tenant, session_id, limit=1000),
        dump=await store.dump(tenant, session_id) if live else None,
    )


def comparable(answer: object) -> object:
    """An answer without what each home may have its own way in: lineages, slots, old nonces."""
    if isinstance(answer, SessionRow):
        return plain(answer)
    if isinstance(answer, NodeRow):
        return msgspec.structs.replace(answer, slot=0)
    return answer


def plain(row: SessionRow) -> SessionRow:
    nonce = row.lease_nonce if row.open_turn else ""
    return msgspec.structs.replace(row, lineage=(), lease_nonce=nonce)


def same_snapshot(found: Snapshot | None, promised: Snapshot | None) -> bool:
    if found is None or promised is None:
        return found is promised
    return msgspec.structs.replace(found, lineage=()) == promised


def check_session(homes: Homes, model: Model, tenant: Tenant, session_id: SessionId) -> None:
    """Every home shows this session as the model does, and in the same bytes as the others."""
    session = model.of[tenant].sessions.get(session_id)
    views = homes.each(lambda store: view(store, tenant, session_id))
    for home, seen in views.items():
        where = f"{home}: {tenant} {session_id}"
        row = session.row if session else None
        assert seen.row == row, f"{where} differs in {apart(seen.row, row)}"
        assert list(seen.keys) == (model.keys_of(session) if session else []), where
        assert same_snapshot(seen.head, model.snapshot(tenant, session_id)), where
        own = [turn.row for turn in model.of[tenant].turns.values() if turn.session is session]
        assert list(seen.turns) == _newest_first(own), where
        assert sum(turn.state == "open" for turn in seen.turns) <= 1, where
        if seen.dump is not None and session is not None:
            assert list(flaws(seen.dump, session)) == [], where
    first, *others = views.values()
    for other in others:
        assert other.dump == first.dump, f"{session_id} differs in {apart(other.dump, first.dump)}"


def _newest_first(turns: Sequence[TurnRow]) -> list[TurnRow]:
    """Those that wait, the last one first; then version by version what began from it, and what made it."""
    waiting = [turn for turn in turns if turn.state == "queued"]
    listed = sorted(waiting, key=lambda turn: (turn.began_ms, turn.turn_id), reverse=True)
    begun = [turn for turn in turns if turn.state != "queued"]
    for version in range(max((turn.base_head + 1 for turn in begun), default=0), -1, -1):
        stopped = [turn for turn in begun if turn.seq is None and turn.base_head == version]
        listed += [turn for turn in stopped if turn.state == "open"]
        listed += sorted(
            (turn for turn in stopped if turn.state != "open"), key=_by_id, reverse=True
        )
        listed += [turn for turn in begun if turn.seq == version]
    return listed


def _by_id(turn: TurnRow) -> TurnId:
    return turn.turn_id


def flaws(dump: SessionDump, session: Session) -> Iterator[Violation]:
    """What `holdfast db verify` would say about this session's own turns."""
    inherited = [each for each in session.story if each.owner != session.id]
    before = told(session.id, inherited)
    committed = sorted(
        (turn for turn in dump.turns if turn.seq is not None), key=lambda turn: turn.seq or 0
    )
    stored = (
        StoredTurn(
            mark=mark_of(turn),
            encoded=tuple(row.body for row in dump.items if row.turn_id == turn.turn_id),
            changes=turn.changes,
        )
        for turn in committed
    )
    return check_history(
        stored,
        previous=before.link,
        version=before.version,
        position=len(before.items),
        carried=before.waiting,
    )


def check_turn(homes: Homes, model: Model, tenant: Tenant, turn_id: TurnId) -> None:
    turn = model.of[tenant].turns.get(turn_id)
    for home, found in homes.each(lambda store: store.turn(tenant, turn_id)).items():
        assert found == (turn.row if turn else None), f"{home}: {tenant} {turn_id}"
    for home, rows in homes.each(lambda store: store.journal(tenant, turn_id)).items():
        assert list(rows) == (turn.journal if turn else []), f"{home}: {tenant} {turn_id}"


def check_everything(homes: Homes, model: Model, tenants: tuple[Tenant, ...]) -> None:
    """All that can be read, by each tenant, other tenants' ids included."""
    everybody = model.of.values()
    for tenant in tenants:
        for session_id in sorted({each for rows in everybody for each in rows.sessions}):
            check_session(homes, model, tenant, session_id)
        for turn_id in sorted({each for rows in everybody for each in rows.turns}):
            check_turn(homes, model, tenant, turn_id)
        for key in sorted({each for rows in everybody for each in rows.claims}):
            check_claim(homes, model, tenant, key)
        for name in sorted({each for rows in everybody for each in rows.keys}):
            check_key(homes, model, tenant, name)
        for agent in sorted({agent for rows in everybody for agent, _ in rows.memories}):
            check_memories(homes, model, tenant, agent)
        check_list(homes, model, tenant, EVERYTHING, limit=3)


def check_claim(homes: Homes, model: Model, tenant: Tenant, key: IdempotencyKey) -> None:
    for home, found in homes.each(lambda store: store.idempotency(tenant, key)).items():
        assert found == model.idempotency(tenant, key), f"{home}: {tenant} {key}"


def check_key(homes: Homes, model: Model, tenant: Tenant, key: SessionKey) -> None:
    for home, found in homes.each(lambda store: store.resolve(tenant, key)).items():
        assert found == model.of[tenant].keys.get(key), f"{home}: {tenant} {key}"


def check_memories(homes: Homes, model: Model, tenant: Tenant, agent: str) -> None:
    mine = [row for (whose, _), row in model.of[tenant].memories.items() if whose == agent]
    mine.sort(key=lambda row: (row.at_ms, row.memory_id))
    for home, found in homes.each(lambda store: store.memories(tenant, agent)).items():
        assert list(found) == mine, f"{home}: {tenant} {agent}"


def check_list(
    homes: Homes, model: Model, tenant: Tenant, where: SessionFilter, *, limit: int
) -> None:
    """All pages together show what the model shows, each session once."""
    for home, found in homes.each(lambda store: _all_pages(store, tenant, where, limit)).items():
        assert found == model.sessions(tenant, where), f"{home}: {tenant} {where}"


async def _all_pages(
    store: Store, tenant: Tenant, where: SessionFilter, limit: int
) -> list[SessionId]:
    found: list[SessionId] = []
    cursor: str | None = None
    while True:
        page = await store.sessions(tenant, where=where, cursor=cursor, limit=limit)
        found += (each.session.id for each in page.sessions)
        cursor = page.cursor
        if cursor is None:
            return found
        assert len(page.sessions) == limit, "only the last page may be short"


def check_version(
    homes: Homes, model: Model, session: Session, version: int, *, known: int
) -> None:
    """A version reads the same from scratch and on top of an earlier snapshot."""
    tenant, session_id = session.tenant, session.id
    promised = model.snapshot(tenant, session_id, version=version)
    for home, store in homes.stores.items():
        earlier = homes.run(store.snapshot(tenant, session_id, version=Version(known)))
        for base in (None, earlier):
            found = homes.run(
                store.snapshot(tenant, session_id, version=Version(version), known=base)
            )
            assert same_snapshot(found, promised), f"{home}: {session_id} at {version} from {base}"


def kept(dump: SessionDump | None) -> SessionDump | None:
    """What a discarded turn must leave as it was: everything but the turns that were never kept."""
    if dump is None:
        return None
    committed = tuple(turn for turn in dump.turns if turn.state == "committed")
    ids = {turn.turn_id for turn in committed}
    return msgspec.structs.replace(
        dump,
        turns=committed,
        journals=tuple(row for row in dump.journals if row.turn_id in ids),
        claims=tuple(claim for claim in dump.claims if claim.turn_id in ids),
    )


def apart(found: object, promised: object) -> str:
    """Where two values differ, for a message that can be read."""
    if type(found) is not type(promised) or not isinstance(found, Value):
        return f"{found!r}, not {promised!r}"
    pairs = (
        (name, getattr(found, name), getattr(promised, name)) for name in found.__struct_fields__
    )
    return "; ".join(
        f"{name}: {mine!r}, not {theirs!r}" for name, mine, theirs in pairs if mine != theirs
    )
