"""Ways to break a store, each of which some test has to notice."""

from __future__ import annotations

from msgspec import Struct

from tests.mutation import Edit

DECISIONS = "store/decisions.py"
TURNS = "store/sqlite/turns.py"
OPERATIONS = "store/sqlite/operations.py"
READING = "store/sqlite/reading.py"
BATCH = "store/sqlite/batch.py"
DESK = "store/sqlite/desk.py"
MEMORY = "store/memory/turns.py"
SIGNALLING = "store/sqlite/signalling.py"
TURNS_SQL = "store/sqlite/sql/turns.sql"
SESSIONS_SQL = "store/sqlite/sql/sessions.sql"
UPKEEP_SQL = "store/sqlite/sql/upkeep.sql"
PG_TURNS = "store/postgres/turns.py"
PG_TURNS_SQL = "store/postgres/sql/turns.sql"
PG_SESSIONS_SQL = "store/postgres/sql/sessions.sql"
PG_ENGINE = "store/postgres/engine.py"
PG_RECALL = "store/postgres/recall.py"
PG_COMMIT = "store/postgres/commit.py"
PG_GATHERING = "store/postgres/gathering.py"
SEARCH = "store/sqlite/search.py"
SEARCH_SQL = "store/sqlite/sql/search.sql"
MOVING = "store/moving.py"
IMPORTING = "store/importing.py"
HORIZON = "store/horizon.py"

MODEL = "tests/store/model/test_model.py"
ATTEMPTS = "tests/store/contract/test_attempts.py"
STEERING = "tests/store/contract/test_steering.py"
CONTINUATIONS = "tests/store/contract/test_continuations.py"
BEGIN = "tests/store/contract/test_begin.py"
TENANTS = "tests/store/contract/test_tenants.py"
QUEUE = "tests/store/contract/test_queue.py"
RETENTION = "tests/store/contract/test_retention.py"
INTERLEAVINGS = "tests/store/model/test_interleavings.py"
FINDING = (
    "tests/store/contract/test_search.py",
    "tests/store/sqlite/test_search.py",
    "tests/store/test_search_model.py",
)
EXPORTS = ("tests/store/test_exporting.py",)
ENGINE = ("tests/store/sqlite/test_batch.py", "tests/store/sqlite/test_engine.py")
RACES = "tests/store/postgres/test_races.py"
RECALL = "tests/store/postgres/test_recall.py"
GATHERING = "tests/store/postgres/test_gathering.py"
CUT = "tests/store/postgres/test_cut.py"


class Mutant(Struct, frozen=True, kw_only=True):
    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...] = (MODEL,)
    """Who has to notice."""
    telling: bool = False
    """Among the few that every run of the tests tries."""


def mutant(name: str, *edits: tuple[str, str, str], **more: object) -> Mutant:
    return Mutant(name=name, edits=tuple(Edit(*each) for each in edits), **more)  # type: ignore[arg-type]


MUTANTS: tuple[Mutant, ...] = (
    # ── fences ───────────────────────────────────────────────────────────────────────────────
    mutant(
        "append does not look at the fence",
        (
            TURNS,
            ("    decisions.demand_fence(fence, session)\n    for each in consumed:"),
            "    for each in consumed:",
        ),
        telling=True,
    ),
    mutant(
        "append does not look at the fence, in memory",
        (
            MEMORY,
            (
                "    decisions.demand_fence(fence, tables.sessions.get((fence.tenant, fence.session_id)))\n"
                "    _append_records"
            ),
            "    _append_records",
        ),
    ),
    mutant(
        "commit does not look at the fence",
        (
            DECISIONS,
            "    session = demand_fence(fence, session)\n    if session.head.next",
            "    assert session is not None\n    if session.head.next",
        ),
    ),
    mutant(
        "end does not look at the fence",
        (
            DECISIONS,
            "        return turn\n    demand_fence(fence, session)\n    return None\n",
            "        return turn\n    return None\n",
        ),
    ),
    mutant(
        "a takeover does not bump the token",
        (
            DECISIONS,
            "token=session.lease_token + 1, nonce=nonce)",
            "token=session.lease_token, nonce=nonce)",
        ),
        telling=True,
    ),
    mutant(
        "a fence is compared without its nonce",
        (
            DECISIONS,
            "fence_of(session) == fence",
            "fence_of(session).token == fence.token",
        ),
    ),
    mutant(
        "a new turn gets the token of the last one",
        (
            DECISIONS,
            "_FIRST_TOKEN if session is None else session.lease_token + 1",
            "_FIRST_TOKEN if session is None else session.lease_token",
        ),
    ),
    # ── begin ────────────────────────────────────────────────────────────────────────────────
    mutant(
        "a begin does not see that a turn is open",
        (
            DECISIONS,
            "    if session.open_turn is not None:\n        if continues",
            "    if not session.id:\n        if continues",
        ),
        telling=True,
    ),
    mutant(
        "a begin does not compare the head",
        (
            DECISIONS,
            "    if (session.head, session.meta_rev) != (ask.request.base, ask.request.base_rev):",
            "    if session.meta_rev != ask.request.base_rev:",
        ),
    ),
    mutant(
        "a begin does not compare the annotations",
        (
            DECISIONS,
            "    if (session.head, session.meta_rev) != (ask.request.base, ask.request.base_rev):",
            "    if session.head != ask.request.base:",
        ),
    ),
    mutant(
        "a begin does not compare the session that it was meant for",
        (
            DECISIONS,
            (
                "    if session.id != ask.expected:\n"
                "        return Moved(session_id=session.id, head=session.head)\n"
                "    continues,"
            ),
            (
                "    if not session.id:\n"
                "        return Moved(session_id=session.id, head=session.head)\n"
                "    continues,"
            ),
        ),
    ),
    mutant(
        "any of those that wait for a session can be opened",
        (
            DECISIONS,
            '    if turn.state != "queued" or facts.first != turn.turn_id:',
            '    if turn.state != "queued":',
        ),
        tests=(QUEUE, MODEL),
        telling=True,
    ),
    mutant(
        "a turn is opened on a version that its session has left behind",
        (
            DECISIONS,
            "    if (session.head, session.meta_rev) != (request.base, request.base_rev):",
            "    if False:",
        ),
        tests=(QUEUE, MODEL),
    ),
    mutant(
        "two that queue in one moment are in nobody's order",
        (
            "store/shaping.py",
            "        came_ms = first_ms - 1 if ask.ahead else max(now_ms, last_ms + 1)",
            "        came_ms = first_ms - 1 if ask.ahead else now_ms",
        ),
        tests=(QUEUE, MODEL),
    ),
    mutant(
        "a queued turn leaves its key to others",
        (
            "store/sqlite/queue.py",
            (
                "        if ask.attempt.key is not None:\n"
                "            claim_key(db, ask.tenant, ask.attempt, ask.request.turn_id)\n"
            ),
            "",
        ),
        tests=(QUEUE, MODEL),
    ),
    mutant(
        "who queues does not move the stamp of the session",
        (
            "store/postgres/sql/queue.sql",
            (
                "  update holdfast.session set stamp = stamp + 1\n"
                "   where tenant = :tenant and id = :session_id and exists (select from ready)),"
            ),
            "  select 1),",
        ),
        tests=(QUEUE,),
    ),
    mutant(
        "two first requests with one key start two sessions",
        (
            TURNS_SQL,
            "left join session_key k on k.tenant = :tenant and k.key = :key",
            "left join session_key k on k.tenant = :tenant and k.key = :key and k.generation < 0",
        ),
        (
            TURNS_SQL,
            "insert into session_key (tenant, key, session_id, generation)\nvalues",
            "insert or replace into session_key (tenant, key, session_id, generation)\nvalues",
        ),
        telling=True,
    ),
    mutant(
        "a dead node may begin turns",
        (
            DECISIONS,
            "return None if is_live(facts.node, facts.now_ms) else NotLive()",
            "return None",
        ),
    ),
    mutant(
        "a deleted session can be continued",
        (
            DECISIONS,
            (
                '    if session.state == "deleted":\n        return Gone(session_id=session.id, why="deleted")\n'
                "    if ask.expire"
            ),
            "    if ask.expire",
        ),
    ),
    mutant(
        "an expired session is revived",
        (
            DECISIONS,
            "if ask.expire_after_ms is not None and not session.open_turn",
            "if ask.expire_after_ms == 0 and not session.open_turn",
        ),
    ),
    mutant(
        "a begin that is repeated begins again",
        (
            DECISIONS,
            "    if facts.own_turn is not None:\n",
            '    if facts.own_turn is not None and facts.own_turn.state != "open":\n',
        ),
    ),
    mutant(
        "whoever repeats a begin gets the fence of who has taken it over",
        (DECISIONS, "    if session.lease_nonce != ask.nonce:", "    if not session.lease_nonce:"),
        tests=(BEGIN, MODEL),
    ),
    # ── attempts ─────────────────────────────────────────────────────────────────────────────
    mutant(
        "an idempotency key answers any request",
        (DECISIONS, "if row.request_hash != attempt.request_hash:", "if not row.request_hash:"),
        telling=True,
    ),
    mutant(
        "a running claim is pruned",
        (
            UPKEEP_SQL,
            "where state <> 'running' and expires_ms <= :before_ms",
            "where expires_ms <= :before_ms",
        ),
    ),
    mutant(
        "a claim that is done never expires",
        (
            UPKEEP_SQL,
            "where state <> 'running' and expires_ms",
            "where state = 'failed' and expires_ms",
        ),
    ),
    mutant(
        "a clock that leaps is believed at once",
        (HORIZON, "    if step_ms > limits.clock_leap_s * 1000:", "    if step_ms < 0:"),
        tests=(RETENTION, MODEL),
    ),
    mutant(
        "what was written after a leap is as young as what was written before it",
        (HORIZON, "max(at_ms, min(at_ms + leap.by_ms, leap.to_ms))", "at_ms + leap.by_ms"),
        tests=(RETENTION, MODEL),
    ),
    mutant(
        "a blob that an item names goes with the turns that were discarded",
        (UPKEEP_SQL, "where instr(i.body, :digest))", "where instr(i.body, :digest) > 1000000)"),
        tests=(RETENTION,),
    ),
    mutant(
        "a blob that is put again goes by the time at which it was put first",
        (SESSIONS_SQL, "do update set noticed_ms = null where noticed_ms > 0", "do nothing"),
        tests=(RETENTION,),
    ),
    mutant(
        "a failed attempt is replayed",
        (
            DECISIONS,
            'if row.state == "failed" and (turn.continues is None or row.steer is not None):',
            'if row.state == "failed" and row.steer is not None:',
        ),
        tests=(ATTEMPTS, MODEL),
    ),
    mutant(
        "a claim is not settled when its turn ends",
        (
            TURNS_SQL,
            "where tenant = :tenant and turn_id = :turn_id and state = 'running';",
            "where tenant = :tenant and turn_id = :turn_id and state = 'done';",
        ),
    ),
    mutant(
        "a steer that was never heard is answered",
        (TURNS_SQL, "then :state else 'failed' end", "then :state else :state end"),
        tests=(STEERING, MODEL),
        telling=True,
    ),
    mutant(
        "a steer claims no key",
        (
            SIGNALLING,
            "    if attempt is not None:\n        claim_key(",
            "    if attempt is None:\n        claim_key(",
        ),
        tests=(STEERING, MODEL),
    ),
    mutant(
        "a retry takes over the steps of a turn that it was only said to",
        (
            DECISIONS,
            "None if claim.row.steer is not None else",
            "None if claim.row.steer == 0 else",
        ),
        tests=(STEERING, MODEL),
    ),
    mutant(
        "a request passes for a retry of itself",
        (
            DECISIONS,
            "turn.client_attempt < attempt.client_attempt",
            "turn.client_attempt <= attempt.client_attempt",
        ),
    ),
    mutant(
        "a retry is recognised after its answer has arrived",
        (
            DECISIONS,
            "if kept is None or kept.acked:",
            "if kept is None:",
        ),
        tests=(ATTEMPTS, MODEL),
    ),
    mutant(
        "a retry is forgotten as soon as something else was said",
        (
            DECISIONS,
            "kept = head_turn if is_head else earlier",
            "kept = head_turn if is_head else None",
        ),
        tests=(ATTEMPTS, MODEL),
    ),
    # ── continuations ────────────────────────────────────────────────────────────────────────
    mutant(
        "a continuation leaves keys behind with the turn that it goes on with",
        (
            TURNS_SQL,
            "and turn_id = :turn_id and state = 'done';",
            "and turn_id = :turn_id and state = 'done' and steer is null;",
        ),
        tests=(CONTINUATIONS,),
        telling=True,
    ),
    mutant(
        "a discarded continuation does not give its keys back",
        (
            TURNS_SQL,
            "and state = 'running' and steer is null;",
            "and state = '' and steer is null;",
        ),
        tests=(CONTINUATIONS,),
    ),
    mutant(
        "retries continue a turn without end",
        (
            "store/shaping.py",
            "retries_left=session.retries_left - 1)",
            "retries_left=session.retries_left)",
        ),
        tests=(CONTINUATIONS,),
    ),
    mutant(
        "a turn that is whole is continued",
        (
            DECISIONS,
            "    if not is_head or session.unfinished != session.head:",
            "    if not is_head:",
        ),
        tests=(CONTINUATIONS,),
    ),
    mutant(
        "of several continuations of one turn the others wait",
        (DECISIONS, "open_turn.continues == continues:", "open_turn.continues == session.id:"),
        tests=(CONTINUATIONS,),
    ),
    mutant(
        "a key continues what its name does not mean any more",
        (DECISIONS, " or meant not in (None, session.id):", ":"),
        tests=(CONTINUATIONS,),
    ),
    mutant(
        "the same words continue a turn on the next day",
        (
            DECISIONS,
            "if is_head and _is_same_again(attempt, session) and age_s <= limits.unfinished_retry_s:",
            "if is_head and _is_same_again(attempt, session):",
        ),
        tests=(CONTINUATIONS,),
    ),
    mutant(
        "a request under a fresh key is taken for a retry",
        (DECISIONS, "is_retry and attempt.key is None and bool", "is_retry and bool"),
        tests=(CONTINUATIONS,),
    ),
    mutant(
        "PostgreSQL: a continuation leaves keys behind with the turn that it goes on with",
        (
            PG_TURNS_SQL,
            "and turn_id = :continues and state = 'done'",
            "and turn_id = :continues and state = 'done' and steer is null",
        ),
        tests=(CONTINUATIONS,),
    ),
    mutant(
        "PostgreSQL: a discarded continuation does not give its keys back",
        (PG_TURNS_SQL, "coalesce(:continues, i.turn_id)", "coalesce(i.turn_id, :continues)"),
        tests=(CONTINUATIONS,),
    ),
    # ── takeover ─────────────────────────────────────────────────────────────────────────────
    mutant(
        "a takeover does not count the attempt",
        (DECISIONS, "attempt=turn.attempt + (1 if crashed else 0)", "attempt=turn.attempt"),
    ),
    mutant(
        "a hand-over counts as a crash",
        (
            DECISIONS,
            'crashed = facts.holder in ("expired", "dead")',
            'crashed = facts.holder in ("expired", "dead", "absent")',
        ),
    ),
    mutant(
        "a node takes over as soon as it is back",
        (
            DECISIONS,
            'elif facts.holder == "expired" and facts.now_ms - node.since_ms < node.ttl_ms:',
            "elif not node.ttl_ms:",
        ),
    ),
    mutant(
        "a gap in its renewals does not count",
        (
            DECISIONS,
            "if row is None or row.expires_ms <= fresh.since_ms:",
            "if row is None:",
        ),
    ),
    mutant(
        "a live holder is overruled at once",
        (
            DECISIONS,
            "overruled = ignored_cancel and _ignored(facts)",
            "overruled = ignored_cancel",
        ),
    ),
    mutant(
        "a killed process counts as alive until its time is up",
        (DECISIONS, "if row is None or lock_free:", "if row is None:"),
    ),
    # ── commit and end ───────────────────────────────────────────────────────────────────────
    mutant(
        "a commit does not compare the head",
        (
            DECISIONS,
            "    if session.head.next != commit.version:",
            "    if not commit.version:",
        ),
    ),
    mutant(
        "a commit that is repeated is refused",
        (
            DECISIONS,
            'if turn is not None and turn.state == "committed" and again:',
            'if turn is not None and turn.state == "committed" and not commit.link:',
        ),
    ),
    mutant(
        "a commit that got lost lands in a turn that has gone on",
        (
            DECISIONS,
            "    if n <= last_n:\n        # It was given up",
            "    if n < 0:\n        # It was given up",
        ),
    ),
    mutant(
        "a commit does not ask for steers",
        (
            DECISIONS,
            'if steers and commit.hears and commit.ended_by == "completed"',
            'if not commit.link and commit.ended_by == "completed"',
        ),
        tests=(INTERLEAVINGS,),
    ),
    mutant(
        "a commit does not write the session's state",
        (TURNS, "    for name, value in values.items():", "    for name, value in ():"),
    ),
    mutant(
        "the first word on a name counts, not the last",
        (
            TURNS,
            "values = {each.name: each.value for each in made.changes if isinstance(each, StateSet)}",
            "values = {e.name: e.value for e in made.changes[::-1] if isinstance(e, StateSet)}",
        ),
    ),
    mutant(
        "a commit leaves the turn open",
        (
            TURNS_SQL,
            "       open_turn = null, lease_node = null, active_ms = :active_ms",
            "       lease_node = null, active_ms = :active_ms",
        ),
    ),
    mutant(
        "a commit keeps the journal of a turn that nobody comes back for",
        (TURNS, "    elif not kept:", "    elif not turn_id:"),
    ),
    mutant(
        "a discarded turn makes its session active",
        (
            TURNS_SQL,
            "update session set open_turn = null, lease_node = null\n",
            "update session set open_turn = null, lease_node = null, active_ms = active_ms + 1\n",
        ),
    ),
    mutant(
        "a discarded turn moves the head",
        (
            TURNS_SQL,
            "update session set open_turn = null, lease_node = null\n",
            "update session set open_turn = null, lease_node = null, head = head + 1\n",
        ),
    ),
    mutant(
        "an append overwrites the journal",
        (
            DECISIONS,
            "    if same_n is not None or n <= last_n:",
            "    if n < 0 and n <= last_n:",
        ),
        (
            TURNS_SQL,
            "insert into journal (tenant, turn_id, n, token, records)",
            "insert or replace into journal (tenant, turn_id, n, token, records)",
        ),
    ),
    # ── signals ──────────────────────────────────────────────────────────────────────────────
    mutant(
        "a steer that was heard is not marked",
        (
            TURNS_SQL,
            "update signal set consumed = 1 where tenant = ? and turn_id = ? and n = ?;",
            "update signal set consumed = 0 where tenant = ? and turn_id = ? and n = ?;",
        ),
    ),
    mutant(
        "a turn that has ended is still told things",
        (
            DECISIONS,
            "    if session is None or session.open_turn != turn.turn_id:\n        return TooLate",
            "    if session is None:\n        return TooLate",
        ),
    ),
    # ── sessions as a whole ──────────────────────────────────────────────────────────────────
    mutant(
        "a delete does not bump the token",
        (
            SESSIONS_SQL,
            "set state = 'deleted', lease_token = lease_token + 1, lease_nonce = ''",
            "set state = 'deleted', lease_nonce = ''",
        ),
    ),
    mutant(
        "a delete leaves the open turn to its holder",
        (
            SESSIONS_SQL,
            (
                "set state = 'deleted', lease_token = lease_token + 1, lease_nonce = '', lease_node = null,\n"
                "       open_turn = null,"
            ),
            "set state = 'deleted',",
        ),
    ),
    mutant(
        "a delete keeps the key",
        (
            OPERATIONS,
            '    run(db, "free_keys", tenant=tenant, session_id=session_id)\n',
            "",
        ),
    ),
    mutant(
        "a fork reads its parent's later items",
        (SESSIONS_SQL, "and pos >= :from_pos and pos < :upto_pos", "and pos >= :from_pos"),
    ),
    mutant(
        "a fork reads its parent's later state",
        (
            SESSIONS_SQL,
            (
                "select tenant, session_id, name, seq, value from state\n"
                " where tenant = :tenant and session_id = :session_id and seq > :from_version"
                " and seq <= :upto_version"
            ),
            (
                "select tenant, session_id, name, seq, value from state\n"
                " where tenant = :tenant and session_id = :session_id and seq > :from_version"
            ),
        ),
    ),
    mutant(
        "a fork reads its parent's later annotations",
        (READING, "        rev = following.rev\n", "        rev = session.meta_rev\n"),
    ),
    mutant(
        "a deleted parent takes its forks along",
        (
            UPKEEP_SQL,
            "p.ancestor = d.id and s.state = 'live')",
            "p.ancestor = d.id and s.state = '')",
        ),
    ),
    mutant(
        "a rewind does not count a generation",
        (
            OPERATIONS,
            "generation=known.generation + 1 if known else 1,",
            "generation=known.generation if known else 1,",
        ),
    ),
    mutant(
        "a summary is accepted on top of any other",
        (
            "store/shaping.py",
            "if summary_rev is not None and summary_rev != session.summary_rev:",
            "if summary_rev is not None and summary_rev < 0:",
        ),
    ),
    mutant(
        "another tenant's session can be read",
        (
            TURNS_SQL,
            "  from session where tenant = :tenant and id = :id;",
            "  from session where :tenant is not null and id = :id;",
        ),
    ),
    mutant(
        "a begin finds another tenant's session",
        (
            TURNS_SQL,
            "left join session s on s.tenant = :tenant and s.id = coalesce(k.session_id, :session_id)",
            "left join session s on :tenant is not null and s.id = coalesce(k.session_id, :session_id)",
        ),
        tests=(BEGIN, TENANTS, MODEL),
    ),
    mutant(
        "a begin finds another tenant's key",
        (
            TURNS_SQL,
            "left join session_key k on k.tenant = :tenant and k.key = :key",
            "left join session_key k on :tenant is not null and k.key = :key",
        ),
        tests=(BEGIN, TENANTS, MODEL),
    ),
    mutant(
        "a commit does not look whether somebody has steered it",
        (TURNS, "if steered else ()", "if not steered else ()"),
    ),
    mutant(
        "a commit does not look how its turn has ended",
        (TURNS, "turn=None if is_open else find_turn(db, tenant, turn_id)", "turn=None"),
    ),
    mutant(
        "a commit forgets the idempotency key of its turn",
        (TURNS, "    if claimed:\n", "    if not claimed:\n"),
    ),
    mutant(
        "another tenant's key is found",
        (
            TURNS_SQL,
            "from session_key where tenant = :tenant and key = :key;",
            "from session_key where :tenant is not null and key = :key;",
        ),
    ),
    mutant(
        "sessions of one moment are lost between two pages",
        (
            SESSIONS_SQL,
            "(active_ms, id) < (:before_ms, :before_id)",
            "active_ms < :before_ms and id <> :before_id",
        ),
    ),
    # ── the engine ───────────────────────────────────────────────────────────────────────────
    mutant(
        "callers are told before the commit",
        (
            DESK,
            "            yield job.work\n",
            (
                "            kept: list[object] = []\n"
                "            yield lambda db, job=job: kept.append(job.work(db)) or kept[0]\n"
                "            if kept:\n"
                "                from holdfast.store.sqlite.jobs import Done\n"
                "                self.deliver([(job, Done(kept[0]))])\n"
            ),
        ),
        tests=ENGINE,
    ),
    mutant(
        "a commit that was refused counts as done",
        (BATCH, "        _refuse(outcomes, error)\n    return Batch", "    return Batch"),
        tests=ENGINE,
    ),
    mutant(
        "a job that fails leaves half of its work behind",
        (
            BATCH,
            (
                "    if isinstance(outcome, Failed) and connection.in_transaction:\n"
                '        _control(connection, "ROLLBACK")\n'
            ),
            "",
        ),
        tests=ENGINE,
        telling=True,
    ),
    mutant(
        "the second job that fails leaves half of its work behind",
        (
            BATCH,
            (
                "        if isinstance(outcome, Failed):\n"
                '            _control(connection, "ROLLBACK TO work")\n'
            ),
            "",
        ),
        tests=ENGINE,
    ),
    mutant(
        "a job that fails takes the others along",
        (
            BATCH,
            '        _control(connection, "ROLLBACK")\n    return outcome',
            (
                '        _control(connection, "ROLLBACK")\n'
                '        _control(connection, "BEGIN IMMEDIATE")\n'
                "    return outcome"
            ),
        ),
        tests=ENGINE,
    ),
    mutant(
        "the second job that fails takes the others along",
        (
            BATCH,
            '            _control(connection, "ROLLBACK TO work")\n',
            (
                '            _control(connection, "ROLLBACK")\n'
                '            _control(connection, "BEGIN IMMEDIATE")\n'
                '            _control(connection, "SAVEPOINT work")\n'
            ),
        ),
        tests=ENGINE,
    ),
    mutant(
        "a batch has no savepoints after a failure either",
        (BATCH, "                run = _run_guarded\n", ""),
        tests=ENGINE,
    ),
    # ── PostgreSQL: what is written on condition ─────────────────────────────────────────────
    mutant(
        "PostgreSQL: a grouped append does not look at the fence",
        (
            PG_TURNS_SQL,
            "s.open_turn = a.turn_id and s.lease_token = a.token and s.lease_nonce = a.nonce",
            "s.open_turn = a.turn_id",
        ),
        tests=(RACES, MODEL),
        telling=True,
    ),
    mutant(
        "PostgreSQL: a turn begins on a session that has changed",
        (
            PG_TURNS_SQL,
            (
                "that it goes on with.\nwith as_read as (\n  select 1 from holdfast.session s\n"
                "   where s.tenant = :tenant and s.id = :session_id and s.stamp = :stamp\n"
            ),
            (
                "that it goes on with.\nwith as_read as (\n  select 1 from holdfast.session s\n"
                "   where s.tenant = :tenant and s.id = :session_id and :stamp::bigint > 0\n"
            ),
        ),
        tests=(RACES,),
        telling=True,
    ),
    mutant(
        "PostgreSQL: a node that is not live goes on with what it knows",
        (
            PG_TURNS_SQL,
            "    join holdfast.node n on n.node_id = a.node and n.expires_ms > {now}\n",
            "",
        ),
        tests=(RECALL,),
        telling=True,
    ),
    mutant(
        "PostgreSQL: what was known outlives the connection",
        (PG_RECALL, "            self._known.clear()\n", ""),
        tests=(RECALL,),
    ),
    mutant(
        "PostgreSQL: what was known about one key is taken for another's",
        (PG_RECALL, "known if known is not None and key in (None, known.key) else None", "known"),
        tests=(RECALL,),
    ),
    mutant(
        "PostgreSQL: an append of ours hides what others have said",
        (PG_RECALL, "known is not None and known.stamp + 1 == stamp", "known is not None"),
        tests=(RECALL,),
    ),
    mutant(
        "PostgreSQL: turns that begin together do not look whether their sessions have changed",
        (
            PG_TURNS_SQL,
            (
                "n.expires_ms > {now}\n"
                "    join holdfast.session s on s.tenant = a.tenant and s.id = a.session_id and s.stamp = a.stamp"
            ),
            (
                "n.expires_ms > {now}\n"
                "    join holdfast.session s on s.tenant = a.tenant and s.id = a.session_id"
            ),
        ),
        tests=(GATHERING,),
        telling=True,
    ),
    mutant(
        "PostgreSQL: turns that are committed together do not look whether their sessions have changed",
        (
            PG_TURNS_SQL,
            (
                "    from asked a\n"
                "    join holdfast.session s on s.tenant = a.tenant and s.id = a.session_id and s.stamp = a.stamp"
            ),
            (
                "    from asked a\n"
                "    join holdfast.session s on s.tenant = a.tenant and s.id = a.session_id"
            ),
        ),
        tests=(RECALL, GATHERING),
        telling=True,
    ),
    mutant(
        "PostgreSQL: turns that are committed together get each other's items",
        (PG_COMMIT, "[before + 1 for before in (0, *upto[:-1])]", "[1 for _ in upto]"),
        tests=(GATHERING,),
    ),
    mutant(
        "PostgreSQL: what breaks a statement breaks it for all",
        (PG_GATHERING, 'if fault_of(error) not in ("again", "unknown", None):', "if True:"),
        tests=(GATHERING,),
    ),
    mutant(
        "PostgreSQL: a signal does not move the stamp",
        (
            PG_TURNS_SQL,
            (
                "moved as (\n  update holdfast.session set stamp = stamp + 1\n"
                "   where tenant = :tenant and id = :session_id and exists (select from ready)),\nclaimed as"
            ),
            (
                "moved as (\n  update holdfast.session set stamp = stamp\n"
                "   where tenant = :tenant and id = :session_id and exists (select from ready)),\nclaimed as"
            ),
        ),
        tests=(RECALL, RACES),
    ),
    mutant(
        "PostgreSQL: two resets of a key count as one",
        (
            PG_SESSIONS_SQL,
            "update holdfast.session set stamp = stamp + 1\n   where tenant = :tenant and id = :source",
            "update holdfast.session set stamp = stamp\n   where tenant = :tenant and id = :source",
        ),
        tests=(RACES,),
    ),
    mutant(
        "PostgreSQL: whoever comes later has the idempotency key",
        (
            PG_TURNS_SQL,
            (
                "   where :claim::text is not null and :replaced::text is null),\nclaimed_again as (\n"
                "  update holdfast.idempotency\n"
                "     set request_hash = :claim_hash, turn_id = :turn_id, state = 'running', expires_ms = 0, steer = null\n"
                "   where tenant = :tenant and key = :claim and :replaced::text is not null and exists (select from ready))\n"
                "insert into holdfast.journal (tenant, turn_id, n, token, records)\n"
                "select :tenant, :turn_id, 0, :lease_token, :records from ready\n"
                "returning 1;\n\n-- append_facts"
            ),
            (
                "   where :claim::text is not null and :replaced::text is null\n"
                "  on conflict (tenant, key) do update set turn_id = excluded.turn_id),\nclaimed_again as (\n"
                "  update holdfast.idempotency\n"
                "     set request_hash = :claim_hash, turn_id = :turn_id, state = 'running', expires_ms = 0, steer = null\n"
                "   where tenant = :tenant and key = :claim and :replaced::text is not null and exists (select from ready))\n"
                "insert into holdfast.journal (tenant, turn_id, n, token, records)\n"
                "select :tenant, :turn_id, 0, :lease_token, :records from ready\n"
                "returning 1;\n\n-- append_facts"
            ),
        ),
        tests=(RACES,),
    ),
    mutant(
        "PostgreSQL: a turn is taken over by several",
        (
            PG_TURNS_SQL,
            (
                "     and (:holder_expires_ms::bigint is null or exists (select from holder_as_read))\n"
            ),
            (
                "     and (:holder_expires_ms::bigint is null or exists (select from holder_as_read))\n"
                "      or (tenant = :tenant and id = :session_id)\n"
            ),
        ),
        tests=(RACES,),
    ),
    mutant(
        "PostgreSQL: what must not be done twice is done again when its answer is lost",
        (PG_ENGINE, "in_doubt = once and db.wrote", "in_doubt = False"),
        tests=(CUT,),
    ),
    mutant(
        "PostgreSQL: a lost answer is reported, and nobody looks what became of it",
        (
            PG_ENGINE,
            'may_repeat = fault == "again" or (fault == "lost" and not in_doubt)',
            'may_repeat = fault == "again"',
        ),
        tests=(CUT,),
    ),
    # ── search ───────────────────────────────────────────────────────────────────────────────
    mutant(
        "what is not indexed yet is not found",
        (
            SEARCH,
            "    return Narrowed(hits=hits, unknown=unknown)",
            "    return Narrowed(hits=hits)",
        ),
        tests=FINDING,
        telling=True,
    ),
    mutant(
        "forks of what was found are forgotten",
        (
            SEARCH,
            "    ids = {*holders, *(SessionId(each) for (each,) in forks)}",
            "    ids = {*holders}",
        ),
        tests=FINDING,
    ),
    mutant(
        "hidden messages are found",
        (SEARCH, "        return notes_of(rows).hidden_from_people", "        return frozenset()"),
        tests=FINDING,
    ),
    mutant(
        "a title that changed leaves its session where it was",
        (
            SEARCH_SQL,
            "and (indexed_length <> length or indexed_rev <> meta_rev)\n limit",
            "and indexed_length <> length\n limit",
        ),
        (
            SEARCH_SQL,
            " where indexed_length <> length or indexed_rev <> meta_rev limit",
            " where indexed_length <> length limit",
        ),
        tests=FINDING,
    ),
    mutant(
        "a step is written although another one was first",
        (
            SEARCH,
            "        if not was.is_still(now):",
            "        if now is None or now.state != was.state:",
        ),
        tests=FINDING,
    ),
    mutant(
        "the name of a deleted session stays in the index",
        (OPERATIONS, "    search.forget_name(db, tenant, session_id)\n", ""),
        tests=FINDING,
    ),
    # ── moving ───────────────────────────────────────────────────────────────────────────────
    mutant(
        "a deleted session goes out whole",
        (MOVING, "if row.pos < length)", "if row.pos >= 0)"),
        tests=EXPORTS,
        telling=True,
    ),
    mutant(
        "a damaged session comes in",
        (IMPORTING, "    if found is not None:\n", "    if False:\n"),
        tests=EXPORTS,
    ),
    mutant(
        "a file may end anywhere between two sessions",
        (IMPORTING, "        if not self._ended:\n", "        if self._block is not None:\n"),
        tests=EXPORTS,
    ),
    mutant(
        "a checksum is not compared",
        (
            IMPORTING,
            "        if (end.lines, end.sha256) != (self._lines, self._digest.hexdigest()):\n",
            "        if end.lines != self._lines:\n",
        ),
        tests=EXPORTS,
    ),
    mutant(
        "lines may come in any order",
        (IMPORTING, "        if place <= self._place:\n", "        if False:\n"),
        tests=EXPORTS,
    ),
)
