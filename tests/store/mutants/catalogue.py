"""Ways to break a store, each of which some test has to notice."""

from __future__ import annotations

from msgspec import Struct

from tests.mutation import Edit

DECISIONS = "store/decisions.py"
SHAPING = "store/shapes.py"
TURNS = "store/operations/turns.py"
SESSIONS = "store/operations/sessions.py"
QUEUED = "store/operations/queue.py"
SIGNALS = "store/operations/signals.py"
NODES = "store/operations/nodes.py"
ACCESS = "store/operations/access.py"
READING = "store/operations/reads.py"
PRUNING = "store/operations/retention.py"
ARRIVALS = "store/operations/arrivals.py"
STEPS = "store/steps.py"
STATEMENTS = "store/statements.py"
SQLITE_DRIVER = "store/sqlite/driver.py"
BATCH = "store/sqlite/batch.py"
WRITER = "store/sqlite/writer.py"
RETENTION_SQL = "store/sql/retention.sql"
PG_DRIVER = "store/postgres/driver.py"
PG_COMPILER = "store/postgres/compiler.py"
PG_CACHE = "store/postgres/cache.py"
PG_ENGINE = "store/postgres/engine.py"
PG_GATHERING = "store/postgres/groups.py"
LISTS = "store/operations/lists.py"
LISTS_SQL = "store/sql/lists.sql"
SEARCH = "store/operations/search.py"
SEARCH_SQL = "store/sql/search.sql"
MOVING = "store/transfer.py"
IMPORTING = "store/imports.py"
HORIZON = "store/horizon.py"
MEMORY = "store/memory.py"
EFFORT = "store/effort.py"
INSPECTION = "store/operations/inspection.py"
JOBS = "store/sqlite/jobs.py"
READERS = "store/sqlite/readers.py"
PG_STORE = "store/postgres/store.py"

MODEL = "tests/store/model/test_model.py"
ATTEMPTS = "tests/store/contract/test_attempts.py"
STEERING = "tests/store/contract/test_steering.py"
LATE = "tests/store/contract/test_late_commits.py"
CONTINUATIONS = "tests/store/contract/test_continuations.py"
BEGIN = "tests/store/contract/test_begin.py"
TENANTS = "tests/store/contract/test_tenants.py"
QUEUE = "tests/store/contract/test_queue.py"
RETENTION = "tests/store/contract/test_retention.py"
WRITING = "tests/store/contract/test_writing.py"
FORKS = "tests/store/contract/test_forks.py"
REMOVAL = "tests/store/contract/test_removal.py"
LISTING = "tests/store/contract/test_listing.py"
READ = "tests/store/contract/test_reading.py"
SEAL_KEYS = "tests/store/contract/test_seal_keys.py"
GRANTS = "tests/store/contract/test_grants.py"
INTERLEAVINGS = "tests/store/model/test_interleavings.py"
FINDING = (
    "tests/store/contract/test_search.py",
    "tests/store/sqlite/test_search.py",
    "tests/store/test_search_model.py",
)
EXPORTS = ("tests/store/test_exports.py",)
ENGINE = ("tests/store/sqlite/test_batch.py", "tests/store/sqlite/test_engine.py")
RACES = "tests/store/postgres/test_races.py"
CACHE = "tests/store/postgres/test_cache.py"
GUARDS = "tests/store/postgres/test_guards.py"
GATHERING = "tests/store/postgres/test_groups.py"
CUT = "tests/store/postgres/test_cut.py"
SEARCHED = "tests/store/contract/test_search.py"
SEARCH_COST = (
    f"{SEARCHED}::test_a_page_ends_when_it_has_cost_enough_and_the_next_goes_on_inside_a_session"
)
ONE_MOMENT = f"{SEARCHED}::test_a_search_sees_one_moment"
MEMORY_HOME = "tests/store/test_memory.py"
WRITER_BY_HAND = "tests/store/sqlite/test_writer.py"
READERS_BY_HAND = "tests/store/sqlite/test_readers.py"
DEADLINES = "tests/store/sqlite/test_deadlines.py"
VERIFY = "tests/store/test_verify.py"


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
            "    session = decisions.demand_fence(fence, found.session)\n",
            ("    session = found.session\n    assert session is not None\n"),
        ),
        telling=True,
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
            "store/shapes.py",
            "        came_ms = first_ms - 1 if ask.ahead else max(now_ms, last_ms + 1)",
            "        came_ms = first_ms - 1 if ask.ahead else now_ms",
        ),
        tests=(QUEUE, MODEL),
    ),
    mutant(
        "a queued turn leaves its key to others",
        (QUEUED, "        *claimed(ask.attempt, facts.claim, turn.tenant, turn.turn_id),\n", ""),
        tests=(QUEUE, MODEL),
    ),
    mutant(
        "who queues does not move the stamp of the session",
        (
            QUEUED,
            ("        on=(session,),\n        as_read=claim_as_read(facts.claim),\n"),
            "        as_read=claim_as_read(facts.claim),\n",
        ),
        tests=(QUEUE,),
    ),
    mutant(
        "two first requests with one key start two sessions",
        (
            TURNS,
            (
                '    node: NodeRow | None = one(NODES, node_id=":node")\n'
                '    key: KeyRow | None = one(KEYS, tenant=":tenant", key=":key")'
            ),
            (
                '    node: NodeRow | None = one(NODES, node_id=":node")\n'
                '    key: KeyRow | None = one(KEYS, tenant=":tenant", key=":key", generation=-1)'
            ),
        ),
        (
            TURNS,
            "        yield insert(KEYS, key)\n",
            "        yield insert(KEYS, key, if_absent=True)\n",
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
            RETENTION_SQL,
            "where state <> 'running' and expires_ms <= :before_ms",
            "where expires_ms <= :before_ms",
        ),
    ),
    mutant(
        "a claim that is done never expires",
        (
            RETENTION_SQL,
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
        (RETENTION_SQL, "(i.body, {bytes b.digest}) > 0)", "(i.body, {bytes b.digest}) > 1000000)"),
        tests=(RETENTION,),
    ),
    mutant(
        "a blob that is put again goes by the time at which it was put first",
        (
            SESSIONS,
            "change(BLOB_NAMES, known, noticed_ms=None)",
            "change(BLOB_NAMES, known, noticed_ms=known.noticed_ms)",
        ),
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
            TURNS,
            '[row for row in rows if row.state == "running"]',
            '[row for row in rows if row.state == "done"]',
        ),
    ),
    mutant(
        "a steer that was never heard is answered",
        (DECISIONS, 'settlement if heard else "failed"', "settlement"),
        tests=(STEERING, MODEL),
        telling=True,
    ),
    mutant(
        "a steer that was heard fails with those that were not",
        (
            TURNS,
            "    is_told = any(row.steer is not None for row in running)\n",
            "    is_told = False\n",
        ),
        tests=(STEERING, MODEL),
    ),
    mutant(
        "a steer claims no key",
        (SIGNALS, "        *claimed(attempt, claim, tenant, turn_id, steer=outcome.n),\n", ""),
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
            TURNS,
            'if row.state == "done" and row.key != ask.attempt.key]',
            'if row.state == "done" and row.key != ask.attempt.key and not row.steer]',
        ),
        tests=(CONTINUATIONS,),
        telling=True,
    ),
    mutant(
        "a discarded continuation does not give its keys back",
        (TURNS, 'back_to=None if ended_by == "deleted" else turn.continues,', "back_to=None,"),
        tests=(CONTINUATIONS,),
    ),
    mutant(
        "retries continue a turn without end",
        (
            "store/shapes.py",
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
        "SQLite: a killed process counts as alive until its time is up",
        (SQLITE_DRIVER, " and not is_held(value.slot)", ""),
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
        "somebody else's commit of the same items counts as one's own",
        (DECISIONS, "turn.lease_token == fence.token and turn.link ==", "turn.link =="),
        tests=(LATE,),
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
        "the first word on a memory counts, not the last",
        (
            TURNS,
            "(each.agent, each.memory_id): each\n        for each in made.changes\n",
            "(each.agent, each.memory_id): each\n        for each in made.changes[::-1]\n",
        ),
        tests=(WRITING, MODEL),
    ),
    mutant(
        "a commit leaves the turn open",
        (TURNS, '        "open_turn": None,\n', ""),
    ),
    mutant(
        "a commit keeps the journal of a turn that nobody comes back for",
        (TURNS, "    if not keeps:  #", "    if not turn_id:  #"),
    ),
    mutant(
        "a discarded turn makes its session active",
        (
            TURNS,
            "change(SESSIONS, session, open_turn=None, lease_node=None)",
            "change(SESSIONS, session, open_turn=None, lease_node=None, active_ms=NOW)",
        ),
    ),
    mutant(
        "a discarded turn moves the head",
        (
            TURNS,
            "change(SESSIONS, session, open_turn=None, lease_node=None)",
            "change(SESSIONS, session, open_turn=None, lease_node=None, head=session.head.next)",
        ),
    ),
    mutant(
        "an append overwrites the journal",
        (DECISIONS, "    if same_n is not None or n <= last_n:", "    if n < 0 and n <= last_n:"),
        (
            TURNS,
            ("    if not is_new:\n        return []\n    return [insert("),
            "    return [Delete(JOURNAL, (fence.tenant, fence.turn_id, n)), insert(",
        ),
    ),
    # ── signals ──────────────────────────────────────────────────────────────────────────────
    mutant(
        "a steer that was heard is not marked",
        (TURNS, '{"consumed": True}', '{"consumed": False}'),
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
            SHAPING,
            ('        state="deleted",\n        lease_token=session.lease_token + 1,'),
            ('        state="deleted",\n        lease_token=session.lease_token,'),
        ),
    ),
    mutant(
        "a delete leaves the open turn to its holder",
        (
            SESSIONS,
            (
                "            lease_token=row.lease_token,\n"
                "            lease_nonce=row.lease_nonce,\n"
                "            lease_node=row.lease_node,\n"
                "            open_turn=row.open_turn,\n"
            ),
            "",
        ),
    ),
    mutant(
        "a delete keeps the key",
        (SESSIONS, "    changes += (Delete(KEYS, (tenant, each.key)) for each in keys)\n", ""),
    ),
    mutant(
        "a fork reads its parent's later items",
        (READING, '"upto": each.upto_pos - 1}', '"upto": None}'),
    ),
    mutant(
        "a fork reads its parent's later state",
        (
            READING,
            "state += yield from _own(STATE_OF, tenant, each.session_id, **versions)",
            "state += yield from _own(STATE_OF, tenant, each.session_id, above=each.from_version)",
        ),
    ),
    mutant(
        "a fork reads its parent's later annotations",
        (SESSIONS, "        rev = following.rev\n", "        rev = session.meta_rev\n"),
    ),
    mutant(
        "a deleted parent takes its forks along",
        (
            RETENTION_SQL,
            "p.ancestor = d.id and s.state = 'live')",
            "p.ancestor = d.id and s.state = '')",
        ),
        (
            RETENTION_SQL,
            "and s.state = 'live' limit 1",
            "and s.state = '' limit 1",
        ),
        tests=(FORKS, REMOVAL, RETENTION),
    ),
    # ── what goes with time ──────────────────────────────────────────────────────────────────
    mutant(
        "a discarded turn leaves its events behind",
        (PRUNING, "_removed(TURNS, turns, also=said)", "_removed(TURNS, turns)"),
        tests=(RETENTION,),
    ),
    mutant(
        "a turn whose events are gone is found again",
        (PRUNING, '{"replayable": False}', '{"replayable": True}'),
        tests=(RETENTION,),
    ),
    mutant(
        "a key goes as soon as it is a day old, and not a day after its end",
        (PRUNING, "horizon.before_ms(day_s) + int(day_s * 1000)", "horizon.before_ms(0)"),
        tests=(RETENTION,),
    ),
    mutant(
        "a key that was taken up again goes",
        (PRUNING, '_removed(CLAIMS, found, "state", "expires_ms")', "_removed(CLAIMS, found)"),
        tests=(GUARDS,),
    ),
    mutant(
        "a node that has come back goes",
        (PRUNING, '_removed(NODES, found, "expires_ms")', "_removed(NODES, found)"),
        tests=(GUARDS,),
    ),
    mutant(
        "a node goes that holds a turn",
        (RETENTION_SQL, "s.lease_node = n.node_id)", "s.lease_node = '')"),
        tests=(RETENTION,),
    ),
    mutant(
        "a blob of no session goes though it was put again",
        (PRUNING, '_removed(BLOB_NAMES, found, "noticed_ms")', "_removed(BLOB_NAMES, found)"),
        tests=(GUARDS,),
    ),
    mutant(
        "a blob that nothing names goes though it was put again",
        (PRUNING, '(*fresh, *due), ("noticed_ms",), changes)', "(*fresh, *due), (), changes)"),
        tests=(GUARDS,),
    ),
    mutant(
        "a blob that a fork names goes",
        (
            RETENTION_SQL,
            "and p.ancestor = b.session_id) r\n           {then} @item",
            "and p.ancestor = '') r\n           {then} @item",
        ),
        tests=(RETENTION,),
    ),
    mutant(
        "a line goes in which a turn has begun",
        (PRUNING, "SessionId(place.session_id), may_go)", "SessionId(place.session_id), bool)"),
        tests=(GUARDS,),
    ),
    mutant(
        "a turn goes that a key leads to",
        (
            RETENTION_SQL,
            "union all select 'kept', 0, t.turn_id",
            "union all select 'turn', 0, t.turn_id",
        ),
        tests=(RETENTION,),
    ),
    mutant(
        "a deleted session is done with while turns are left",
        (PRUNING, "len(found) < limit and len(going) == len(found)", "len(found) < limit"),
        tests=(RETENTION,),
    ),
    mutant(
        "a deleted session is cleared though a session reads it that was restored",
        (
            PRUNING,
            "    if (yield from ask(LIVE_READER",
            "    if limit < 0 and (yield from ask(LIVE_READER",
        ),
        tests=(GUARDS,),
    ),
    mutant(
        "a restored session does not tell what it reads",
        (ARRIVALS, "on=tuple(deleted.values()), ", ""),
        tests=(GUARDS,),
    ),
    mutant(
        "a session is restored on a past that is going",
        (ARRIVALS, "turn=turn, is_going=is_going)", "turn=turn)"),
        tests=("tests/store/contract/test_moving.py",),
    ),
    mutant(
        "a rewind does not count a generation",
        (SESSIONS, "generation=known.generation + 1)", "generation=known.generation)"),
    ),
    mutant(
        "an attribute that is gone is where lists look for it",
        (SESSIONS, "    for name in were.keys() - are.keys():\n", "    for name in ():\n"),
        tests=(LISTING,),
    ),
    mutant(
        "an attribute that has changed is where lists looked for it before",
        (SESSIONS, "        elif were[name] != value:\n", "        elif not name:\n"),
        tests=(LISTING,),
    ),
    mutant(
        "a summary is accepted on top of any other",
        (
            "store/shapes.py",
            "if summary_rev is not None and summary_rev != session.summary_rev:",
            "if summary_rev is not None and summary_rev < 0:",
        ),
    ),
    mutant(
        "another tenant's session can be read",
        (
            STEPS,
            "for name in table.key})})",
            'for name in table.key if (table.name, name) != ("session", "tenant")})})',
        ),
    ),
    mutant(
        "a begin finds another tenant's session",
        (
            TURNS,
            (
                '        SESSIONS, tenant=":tenant", id=("key.session_id", ":session_id")\n'
                "    )\n    holder"
            ),
            '        SESSIONS, id=("key.session_id", ":session_id")\n    )\n    holder',
        ),
        tests=(BEGIN, TENANTS, MODEL),
    ),
    mutant(
        "a begin finds another tenant's key",
        (
            TURNS,
            (
                '    node: NodeRow | None = one(NODES, node_id=":node")\n'
                '    key: KeyRow | None = one(KEYS, tenant=":tenant", key=":key")'
            ),
            (
                '    node: NodeRow | None = one(NODES, node_id=":node")\n'
                '    key: KeyRow | None = one(KEYS, key=":key")'
            ),
        ),
        tests=(BEGIN, TENANTS, MODEL),
    ),
    mutant(
        "a commit does not look whether somebody has steered it",
        (TURNS, "    if found.is_told:\n", "    if not found.is_told:\n"),
    ),
    mutant(
        "a commit does not look how its turn has ended",
        (TURNS, "turn = None if is_open else (yield from turn_of(tenant, turn_id))", "turn = None"),
    ),
    mutant(
        "a commit forgets the idempotency key of its turn",
        (TURNS, "    elif found.is_claimed:", "    elif not found.is_claimed:"),
    ),
    mutant(
        "a commit settles the key of what a turn has not heard",
        (TURNS, "    if found.is_claimed and found.is_told:\n", "    if False:\n"),
    ),
    mutant(
        "another tenant's key is found",
        (
            STEPS,
            "for name in table.key})})",
            'for name in table.key if (table.name, name) != ("session_key", "tenant")})})',
        ),
    ),
    mutant(
        "sessions of one moment are lost between two pages",
        (
            LISTS_SQL,
            "(s.active_ms, s.id) < (:before_ms::bigint, :before_id::text)\n   and (:agent",
            "s.active_ms < :before_ms::bigint and s.id <> :before_id::text\n   and (:agent",
        ),
    ),
    mutant(
        "sessions of one moment are lost between two pages of those with a key",
        (
            LISTS_SQL,
            "s.head > 0\n   and (s.active_ms, s.id) < (:before_ms::bigint, :before_id::text)\n order",
            "s.head > 0\n   and s.active_ms < :before_ms::bigint and s.id <> :before_id::text\n order",
        ),
        tests=(LISTING,),
    ),
    mutant(
        "sessions are found by their keys alone",
        (
            LISTS,
            "each for each in shown if pages.is_listed(each.session, each.keys, self._where)",
            "each for each in shown",
        ),
        tests=(LISTING,),
    ),
    mutant(
        "a list ends after the first sessions with a key",
        (LISTS, "        self.at_end = not self._places\n", "        self.at_end = True\n"),
        tests=(LISTING, *FINDING),
    ),
    mutant(
        "a turn that waits stands where it began",
        (LISTS_SQL, "when 'queued' then 9223372036854775807 else", "else"),
        tests=(QUEUE, READ),
    ),
    # ── the engine ───────────────────────────────────────────────────────────────────────────
    mutant(
        "callers are told before the commit",
        (
            WRITER,
            "            yield job\n",
            (
                "            yield job\n"
                "            if job.error is None:\n"
                "                self.queue.tell([job])\n"
            ),
        ),
        tests=ENGINE,
    ),
    mutant(
        "a commit that was refused counts as done",
        (BATCH, "                self.refuse(error, succeeded)\n", "                pass\n"),
        tests=ENGINE,
    ),
    mutant(
        "a job that fails leaves half of its work behind",
        (
            BATCH,
            "            if db.in_transaction:\n",
            "            if guarded and db.in_transaction:\n",
        ),
        tests=ENGINE,
        telling=True,
    ),
    mutant(
        "the second job that fails leaves half of its work behind",
        (
            BATCH,
            "            if db.in_transaction:\n",
            "            if not guarded and db.in_transaction:\n",
        ),
        tests=ENGINE,
    ),
    mutant(
        "a job that fails takes the others along",
        (
            BATCH,
            '"ROLLBACK")\n        else:\n            if not db.in_transaction',
            (
                '"ROLLBACK")\n'
                "                if not guarded:\n"
                '                    self._control("BEGIN IMMEDIATE")\n'
                "        else:\n"
                "            if not db.in_transaction"
            ),
        ),
        tests=ENGINE,
    ),
    mutant(
        "the second job that fails takes the others along",
        (
            BATCH,
            '"ROLLBACK")\n        else:\n            if not db.in_transaction',
            (
                '"ROLLBACK")\n'
                "                if guarded:\n"
                '                    self._control("ROLLBACK")\n'
                '                    self._control("BEGIN IMMEDIATE")\n'
                '                    self._control("SAVEPOINT work")\n'
                "        else:\n"
                "            if not db.in_transaction"
            ),
        ),
        tests=ENGINE,
    ),
    mutant(
        "a batch has no savepoints after a failure either",
        (BATCH, "        self._guarded = True\n", ""),
        tests=ENGINE,
    ),
    # ── PostgreSQL: what is written on condition ─────────────────────────────────────────────
    mutant(
        "PostgreSQL: what is written alone does not look whether its session has changed",
        (
            PG_COMPILER,
            '" on s.tenant = h.tenant_ and s.id = h.id_ and s.stamp = h.stamp_"',
            "f\" on s.tenant = h.tenant_ and s.id = h.id_{'' if waits else ' and s.stamp = h.stamp_'}\"",
        ),
        tests=(GUARDS,),
        telling=True,
    ),
    mutant(
        "PostgreSQL: several processes write to one session as each has read it",
        (
            PG_COMPILER,
            '" on s.tenant = h.tenant_ and s.id = h.id_ and s.stamp = h.stamp_"',
            "f\" on s.tenant = h.tenant_ and s.id = h.id_{'' if waits else ' and s.stamp = h.stamp_'}\"",
        ),
        tests=(RACES,),
    ),
    mutant(
        "PostgreSQL: a node that is not live goes on with what it knows",
        (PG_COMPILER, "join {SCHEMA}node n on n.node_id", "left join {SCHEMA}node n on n.node_id"),
        tests=(CACHE,),
        telling=True,
    ),
    mutant(
        "PostgreSQL: a node whose time is up goes on with what it knows",
        (PG_COMPILER, " and n.expires_ms > r.now_ms", ""),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: what was known outlives the connection",
        (PG_CACHE, ("            self._known.clear()\n            self._named.clear()\n"), ""),
        tests=(CACHE,),
    ),
    mutant(
        "PostgreSQL: what was known about one key is taken for another's",
        (
            PG_CACHE,
            "self._named.get((tenant, key))",
            "next((each.session.id for each in self), None)",
        ),
        tests=(CACHE,),
    ),
    mutant(
        "PostgreSQL: a key leads to what it meant when the session was known before",
        (
            PG_CACHE,
            (
                "        if known is not None and known.key is not None:\n"
                "            self._named.pop((tenant, known.key), None)\n"
            ),
            "",
        ),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: an append of ours hides what others have said",
        (
            PG_DRIVER,
            "if run.known is not None and run.known.stamp == was:",
            "if run.known is not None:",
        ),
        tests=(CACHE,),
    ),
    mutant(
        "PostgreSQL: turns that come together do not look whether their sessions have changed",
        (
            PG_COMPILER,
            '" on s.tenant = h.tenant_ and s.id = h.id_ and s.stamp = h.stamp_"',
            "f\" on s.tenant = h.tenant_ and s.id = h.id_{' and s.stamp = h.stamp_' if waits else ''}\"",
        ),
        tests=(GATHERING,),
        telling=True,
    ),
    mutant(
        "PostgreSQL: what was known of a session counts, whatever others have written since",
        (
            PG_COMPILER,
            '" on s.tenant = h.tenant_ and s.id = h.id_ and s.stamp = h.stamp_"',
            "f\" on s.tenant = h.tenant_ and s.id = h.id_{' and s.stamp = h.stamp_' if waits else ''}\"",
        ),
        tests=(CACHE,),
    ),
    mutant(
        "PostgreSQL: what is left out is written with the others",
        (
            PG_COMPILER,
            "u join ready r on r.w = u.w",
            "u join (select max(now_ms) as now_ms from ready having count(*) > 0) r on true",
        ),
        tests=(GATHERING,),
    ),
    mutant(
        "PostgreSQL: what breaks a statement breaks it for all",
        (PG_GATHERING, 'if fault_of(error) not in ("again", "unknown", None):', "if True:"),
        tests=(GATHERING,),
    ),
    mutant(
        "PostgreSQL: a signal does not move the stamp",
        (SIGNALS, "        on=(session,),\n", ""),
        tests=(CACHE, RACES),
    ),
    mutant(
        "PostgreSQL: two resets of a key count as one",
        (
            SESSIONS,
            (
                "        on=(session,) if session else (),\n"
                '        as_read=(AsRead(KEYS, known, ("generation",)),) if known else (),\n'
            ),
            "",
        ),
        tests=(RACES,),
    ),
    mutant(
        "PostgreSQL: a reset of a key does not move the stamp of what it meant",
        (SESSIONS, "        on=(session,) if session else (),\n", ""),
        tests=(CACHE,),
    ),
    mutant(
        "PostgreSQL: whoever comes later begins as well, under the same idempotency key",
        (TURNS, "return [insert(CLAIMS, row)]", "return [insert(CLAIMS, row, if_absent=True)]"),
        tests=(RACES,),
    ),
    mutant(
        "PostgreSQL: a turn is taken over from a holder that has come back",
        (
            NODES,
            '        as_read=(AsRead(NODES, expired, ("expires_ms",)),) if expired else (),\n',
            "",
        ),
        tests=(GUARDS,),
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
            "    ids = {*holders, *(each.id for each in forks)}",
            "    ids = {*holders}",
        ),
        tests=FINDING,
    ),
    mutant(
        "hidden messages are found",
        (SEARCH, "    return notes_of(rows).hidden_from_people", "    return frozenset()"),
        tests=FINDING,
    ),
    mutant(
        "a title that changed leaves its session where it was",
        (
            SEARCH_SQL,
            "and (indexed_length <> length or indexed_rev <> meta_rev)\n order by id",
            "and indexed_length <> length\n order by id",
        ),
        (
            SEARCH_SQL,
            " where indexed_length <> length or indexed_rev <> meta_rev order by tenant",
            " where indexed_length <> length order by tenant",
        ),
        tests=FINDING,
    ),
    mutant(
        "a step is written although another one was first",
        (
            SEARCH,
            "        if now is None or not was.is_still(now):",
            "        if now is None or now.state != was.state:",
        ),
        tests=FINDING,
    ),
    mutant(
        "PostgreSQL: a step is written although another one was first",
        (
            SEARCH,
            "            as_read=(AsRead(INDEXED, now, INDEXED.names[len(INDEXED.key) :]),),\n",
            "",
        ),
        tests=(GUARDS,),
    ),
    mutant(
        "what was not read ahead counts as read",
        (SEARCH, "    if sum(len(row.body) for row in rows) >= most:\n", "    if not most:\n"),
        tests=FINDING,
    ),
    mutant(
        "only the ends of stretches are looked through",
        (
            SEARCH,
            "start=span.start, end=tail.start)\n",
            "start=span.start, end=span.start)\n",
        ),
        tests=FINDING,
    ),
    mutant(
        "a page of a search goes on after the session in which it ended",
        (SEARCH, "            self.left_at = position\n", "            self.left_at = 0\n"),
        tests=FINDING,
    ),
    mutant(
        "stretches without a message cost nothing",
        (
            SEARCH,
            "                if not tail.messages:\n                    self._effort.spend()\n",
            "                if not tail.messages:\n",
        ),
        tests=FINDING,
    ),
    mutant(
        "a chunk with too many words has none",
        (SEARCH, "else tag + ANYTHING\n", 'else ""\n'),
        tests=FINDING,
    ),
    mutant(
        "a search that is not waited for goes on",
        (SEARCH, "                if self._effort.given_up:\n", "                if False:\n"),
        ("store/home.py", "            effort.given_up = True\n", "            pass\n"),
        tests=FINDING,
    ),
    mutant(
        "memory: others write while a search gives way",
        (
            MEMORY,
            "        async with self._unchanged:\n            db = self.db\n",
            "        if True:\n            db = self.db\n",
        ),
        tests=FINDING,
    ),
    mutant(
        "the name of a deleted session stays in the index",
        (SESSIONS, "        Delete(CHUNKS, (tenant, session_id, -1)),\n", ""),
        tests=FINDING,
    ),
    # ── search: what a page costs, and what it sees ──────────────────────────────────────────
    mutant(
        "a search does not give way",
        (SEARCH, "                yield from give_way()\n", "                yield from ()\n"),
        tests=(f"{SEARCHED}::test_a_search_ends_when_it_is_not_waited_for_any_more",),
    ),
    mutant(
        "a page of a search looks through any number of items",
        (EFFORT, "            or self._items >= limits.search_items_max\n", ""),
        tests=(SEARCH_COST,),
    ),
    mutant(
        "a page of a search looks through any number of bytes",
        (EFFORT, "            or self._bytes >= limits.search_bytes_max\n", ""),
        tests=(SEARCH_COST,),
    ),
    mutant(
        "a page of a search takes any time",
        (EFFORT, "            or self._clock() - self._began >= limits.search_s\n", ""),
        tests=(SEARCH_COST,),
    ),
    mutant(
        "the size of an item costs nothing",
        (SEARCH, "self._effort.spend(len(message.body))", "self._effort.spend()"),
        tests=(SEARCH_COST,),
    ),
    mutant(
        "names of sessions cost nothing",
        (SEARCH, "            self._effort.spend()  # its name", "            pass  # its name"),
        tests=(f"{SEARCHED}::test_a_page_ends_among_sessions_with_nothing_to_read",),
    ),
    mutant(
        "the first item of a stretch is not read",
        (SEARCH_SQL, "m.pos >= spans.first", "m.pos > spans.first"),
        tests=(f"{SEARCHED}::test_the_first_message_of_a_chunk_is_found",),
    ),
    mutant(
        "an item with which a page weighs enough is not read",
        (SEARCH_SQL, "weighed.lighter < :bytes", "weighed.lighter + length(i.body) < :bytes"),
        tests=(SEARCH_COST,),
    ),
    mutant(
        "what was read ahead is read again",
        (SEARCH, "        if span not in self._known:\n", "        if self._spans:\n"),
        tests=("tests/store/test_reading.py",),
    ),
    mutant(
        "PostgreSQL: a search sees several moments",
        (PG_STORE, "            if not one_moment:\n", "            if db:\n"),
        tests=(ONE_MOMENT,),
    ),
    mutant(
        "memory: a search that gives way holds no lock",
        (
            MEMORY,
            "        async with self._unchanged:\n            while True:\n",
            "        if True:\n            while True:\n",
        ),
        tests=(ONE_MOMENT,),
    ),
    mutant(
        "memory: an operation that fails leaves half of its work behind",
        (MEMORY, 'db.execute("rollback")', 'db.execute("commit")'),
        tests=(MEMORY_HOME,),
    ),
    mutant(
        "the index stops while sessions are behind",
        (SEARCH, "more=cut or len(steps) < len(behind)", "more=cut"),
        tests=(f"{SEARCHED}::test_small_steps_come_to_the_same_end",),
    ),
    mutant(
        "PostgreSQL: a step of the index moves the stamp of its session",
        (
            SEARCH,
            "            as_read=(AsRead(INDEXED,",
            "            on=(now,), as_read=(AsRead(INDEXED,",
        ),
        tests=(f"{GUARDS}::test_a_turn_does_not_begin_anew_because_its_session_was_indexed",),
    ),
    # ── retention: what may go ───────────────────────────────────────────────────────────────
    mutant(
        "a discarded turn goes at once",
        (
            RETENTION_SQL,
            "where state = 'discarded' and ended_ms <= :before_ms",
            "where state = 'discarded' and ended_ms <= :before_ms + 1000000000000",
        ),
        tests=(RETENTION,),
    ),
    mutant(
        "what was said to a discarded turn goes before the turn",
        (
            RETENTION_SQL,
            "where t.state = 'committed' and t.ended_ms <= :before_ms limit",
            "where t.ended_ms <= :before_ms limit",
        ),
        tests=(RETENTION,),
    ),
    mutant(
        "blobs of any session go as those of none",
        (RETENTION_SQL, "where s.tenant = b.tenant and s.id = b.session_id)", "where s.id = '')"),
        tests=(RETENTION,),
    ),
    mutant(
        "a blob goes that only a journal names",
        (
            RETENTION_SQL,
            "(j.records, {bytes b.digest}) > 0)",
            "(j.records, {bytes b.digest}) > 1000000)",
        ),
        tests=(RETENTION,),
    ),
    mutant(
        "a line goes in which a turn was played meanwhile",
        (PRUNING, "session.open_turn is None and idle", "session.open_turn is None"),
        tests=(f"{GUARDS}::test_a_line_in_which_a_turn_has_begun_does_not_go",),
    ),
    mutant(
        "PostgreSQL: a deleted session is cleared though its stamp has moved",
        (
            PRUNING,
            "write(*changes, on=(session,), as_read=locked)",
            "write(*changes, as_read=locked)",
        ),
        tests=(
            f"{GUARDS}::test_a_deleted_session_does_not_go_while_a_session_is_restored_that_reads_it",
        ),
    ),
    mutant(
        "PostgreSQL: what a deleted session leaves is locked in any order",
        (
            PRUNING,
            "write(*changes, on=(session,), as_read=locked)",
            "write(*changes, on=(session,))",
        ),
        tests=(
            f"{GUARDS}::test_turns_of_a_deleted_session_are_locked_in_the_order_of_their_names",
        ),
    ),
    mutant(
        "PostgreSQL: a clock is looked at from what was seen before another look",
        (PRUNING, 'write(seen, as_read=(AsRead(HORIZON, before, ("seen_ms",)),))', "write(seen)"),
        tests=(f"{GUARDS}::test_a_clock_is_looked_at_from_what_was_seen_last",),
    ),
    mutant(
        "PostgreSQL: what was said to a turn is locked before the turn",
        (PRUNING, "_removed(SIGNALS, found, after=locked)", "_removed(SIGNALS, found)"),
        tests=(f"{GUARDS}::test_what_was_said_to_a_turn_is_locked_after_the_turn",),
    ),
    mutant(
        "a line that cannot be read delays what goes",
        ("store/home.py", "with suppress(*DAMAGE, InvalidValue):", "if True:"),
        tests=(f"{RETENTION}::test_a_line_that_cannot_be_read_does_not_delay_what_goes",),
    ),
    # ── verify: one question about several tables ────────────────────────────────────────────
    mutant(
        "journal records without a turn are not noticed",
        (INSPECTION, '_owned(JOURNAL, TURNS, "turn_id")', '_owned(SIGNALS, TURNS, "turn_id")'),
        tests=(VERIFY,),
    ),
    mutant(
        "SQLite: questions of one name are one question",
        (
            SQLITE_DRIVER,
            "known = self._questions.get(question)\n",
            "known = self._questions.get(question.name)\n",
        ),
        (
            SQLITE_DRIVER,
            "known = self._questions[question] = sql",
            "known = self._questions[question.name] = sql",
        ),
        tests=(VERIFY,),
    ),
    mutant(
        "PostgreSQL: questions of one name are one question",
        (PG_DRIVER, "self._questions.get(question)", "self._questions.get(question.name)"),
        (PG_DRIVER, "self._questions[question] = query", "self._questions[question.name] = query"),
        tests=("tests/store/postgres/test_verify.py",),
    ),
    # ── SQLite: the queue of jobs ────────────────────────────────────────────────────────────
    mutant(
        "a write runs whose caller was cancelled before",
        (JOBS, "            self.withdraw(job)\n            raise\n", "            raise\n"),
        tests=("tests/store/sqlite/test_engine.py",),
    ),
    mutant(
        "a write begins after its deadline",
        (WRITER, "            if job.deadline <= now:\n", "            if job.deadline < 0:\n"),
        tests=(WRITER_BY_HAND,),
    ),
    mutant(
        "a read begins after its deadline",
        (READERS, "if job.deadline <= self._queue.clock():", "if job.deadline < 0:"),
        tests=(READERS_BY_HAND,),
    ),
    mutant(
        "a timer that has rung is not set for the next deadline",
        (JOBS, "        if earliest < inf:\n            self._set_timer(loop, earliest)\n", ""),
        tests=(DEADLINES,),
    ),
    mutant(
        "a timer is not set for an earlier deadline",
        (JOBS, "timer is None or not job.asked <= timer[0] <= job.deadline:", "timer is None:"),
        tests=(DEADLINES,),
    ),
    mutant(
        "a job waits at a queue that was poisoned",
        (
            JOBS,
            "        if self.health.fatal is not None:\n            self._refuse_all()\n            return\n",
            "",
        ),
        tests=(WRITER_BY_HAND,),
    ),
    mutant(
        "closing leaves what has queued",
        (
            JOBS,
            "            while self.health.fatal is None:\n",
            "            while self.health.fatal is None and not self.closed:\n",
        ),
        tests=(DEADLINES,),
    ),
    mutant(
        "a job that is not taken after all goes to the end of the queue",
        (JOBS, "self.waiting.appendleft(job)", "self.waiting.append(job)"),
        tests=(WRITER_BY_HAND,),
    ),
    mutant(
        "what waits for a loop that was stopped waits for ever",
        (JOBS, "if self._scheduled is not loop:", "if self._scheduled is None:"),
        tests=("tests/store/sqlite/test_engine.py",),
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
    # ── PostgreSQL: what is compiled ─────────────────────────────────────────────────────────
    mutant(
        "PostgreSQL: an idempotency key is taken up by several",
        (
            TURNS,
            "() if claim is None else (_leads_there(claim.row),)",
            "()",
        ),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: rows need not be as they were read",
        (
            PG_COMPILER,
            'f" = (select count(*) from same{nth} where w = r.w)"',
            'f" >= (select count(*) from same{nth} where w = r.w)"',
        ),
        tests=(GUARDS,),
        telling=True,
    ),
    mutant(
        "PostgreSQL: a fork is made of what is not there any more",
        (
            SESSIONS,
            "    yield from write(*made(row), as_read=(_unchanged(parent),))\n",
            "    yield from write(*made(row))\n",
        ),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: a blob is put into a session that was deleted meanwhile",
        (SESSIONS, '() if session is None else (AsRead(SESSIONS, session, ("state",)),)', "()"),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: one of two sessions as it was read is enough",
        (PG_COMPILER, " having count(*) = {shape.sessions}", ""),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: sessions are locked in any order",
        (PG_COMPILER, " order by s.tenant, s.id for no key", " for no key"),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: those that come together wait for a lock",
        (PG_COMPILER, 'skip = "" if waits else " skip locked"', 'skip = ""'),
        tests=(GATHERING,),
    ),
    mutant(
        "PostgreSQL: a session's stamp stays where it was",
        (
            PG_COMPILER,
            '            sets.append("stamp = x.stamp + 1")\n',
            '            sets.append("stamp = x.stamp")\n',
        ),
        tests=(GUARDS, CACHE),
    ),
    mutant(
        "PostgreSQL: rows as they were read are locked in any order",
        (PG_COMPILER, "    if several:\n", "    if not slot:\n"),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: what belongs to a session does not move its stamp",
        (PG_COMPILER, "        if place in unmoved:\n", "        if not place:\n"),
        tests=(GUARDS, CACHE),
    ),
    mutant(
        "PostgreSQL: what stands for the time of a write is written as it is",
        (
            PG_COMPILER,
            'return f"u.{name}_ + r.now_ms" if name in slot.moments else f"u.{name}_"',
            'return f"u.{name}_"',
        ),
    ),
    mutant(
        "PostgreSQL: what may be there must not be",
        (
            PG_COMPILER,
            'done = " on conflict do nothing" if slot.verb == "insert if absent" else ""',
            'done = ""',
        ),
        tests=(SEAL_KEYS,),
    ),
    mutant(
        "PostgreSQL: what must not be there may be",
        (
            PG_COMPILER,
            'done = " on conflict do nothing" if slot.verb == "insert if absent" else ""',
            'done = " on conflict do nothing"',
        ),
        tests=(RACES,),
    ),
    mutant(
        "PostgreSQL: two writes of one session go in one statement",
        (PG_GATHERING, "            if key in group or full:\n", "            if full:\n"),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: a key that leads elsewhere since is moved to a continuation",
        (TURNS, "        as_read += tuple(map(_leads_there, moved))\n", ""),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: an end of one's own that lands meanwhile is somebody else's",
        (
            TURNS,
            (
                "    found = yield from _appending(fence, n)\n"
                "    # After the session: an end of ours that lands meanwhile is seen here.\n"
                "    turn = yield from turn_of(fence.tenant, fence.turn_id)\n"
            ),
            (
                "    turn = yield from turn_of(fence.tenant, fence.turn_id)\n"
                "    found = yield from _appending(fence, n)\n"
            ),
        ),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: a turn that was opened meanwhile is not next",
        (
            QUEUED,
            "    if not waiting or waiting[0].turn_id != turn_id:  # it may have been opened since\n",
            "    if not turn_id:\n",
        ),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: an approval is revoked twice",
        (ACCESS, '("revoked_ms",)),),', '("revoked_ms",)),) if table is API_KEYS else (),'),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: a key is revoked twice",
        (ACCESS, '("revoked_ms",)),),', '("revoked_ms",)),) if table is GRANTS else (),'),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: a node is renewed from what it was before",
        (NODES, '        as_read=(AsRead(NODES, known, ("expires_ms",)),),\n', ""),
        tests=(GUARDS,),
    ),
    # ── PostgreSQL: what is known ────────────────────────────────────────────────────────────
    mutant(
        "PostgreSQL: a request with a key is not looked up if its session is known",
        (
            PG_CACHE,
            'if kind is Beginning and given["claim"] is None:',
            "if kind is Beginning:",
        ),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: what is known is used twice",
        (
            PG_CACHE,
            "known = self._known.pop((tenant, session_id), None)",
            "known = self._known.get((tenant, session_id))",
        ),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: a refusal comes of what was known",
        (
            PG_DRIVER,
            ("        except (StopIteration, HoldfastError):\n            return None\n"),
            ("        except StopIteration:\n            return None\n"),
        ),
        tests=(GUARDS,),
    ),
    mutant(
        "PostgreSQL: what waits for a session is taken for its open turn",
        (
            PG_CACHE,
            "    return [row for row in rows if row.turn_id == turn_id]\n",
            "    return list(rows)\n",
        ),
        tests=(QUEUE,),
    ),
    mutant(
        "PostgreSQL: what was appended is not known to the commit",
        (PG_CACHE, "        last_n = max([last_n, *(row.n for row in journal)])\n", ""),
        tests=(LATE,),
    ),
    mutant(
        "PostgreSQL: the keys that a continuation took over are not known to its commit",
        (
            PG_CACHE,
            (
                "            if any(isinstance(each, Update) and each.table is CLAIMS for each in writing.changes):\n"
                "                return None  # keys that led elsewhere are better read\n"
            ),
            "",
        ),
        tests=(CONTINUATIONS,),
    ),
    # ── what drivers do ──────────────────────────────────────────────────────────────────────
    mutant(
        "SQLite: what stands for the time of a write is written as it is",
        (
            SQLITE_DRIVER,
            "*_stored(table, columns)",
            "*(_stored(table, columns)[0], ())",
        ),
    ),
    mutant(
        "SQLite: what stands for the time of a write is inserted as it is",
        (SQLITE_DRIVER, "*_stored(table, table.names)", "*(_stored(table, table.names)[0], ())"),
    ),
    mutant(
        "SQLite: what may be there must not be",
        (SQLITE_DRIVER, 'done = " on conflict do nothing" if if_absent else ""', 'done = ""'),
        tests=(SEAL_KEYS,),
    ),
    mutant(
        "SQLite: a delete takes its neighbours along",
        (SQLITE_DRIVER, 'where {_by_key(table, size)}"', 'where {_by_key(table, min(size, 2))}"'),
        tests=(MODEL, WRITING),
    ),
    mutant(
        "a look leads to what was brought along, and not to what a name means",
        (
            STATEMENTS,
            "f\"coalesce({', '.join(spelled)})\"",
            "f\"coalesce({', '.join(reversed(spelled))})\"",
        ),
    ),
    mutant(
        "a look has the first number, not the last",
        (STATEMENTS, "(select max(x.", "(select min(x."),
    ),
    mutant(
        "what is found lies beyond its bound",
        (STATEMENTS, '[f"{over} <= :upto"] * upto', '[f"{over} <= :upto + 1"] * upto'),
        tests=(ATTEMPTS, MODEL),
    ),
    mutant(
        "what is found begins where it was to go on",
        (STATEMENTS, '[f"{over} > :above"] * above', '[f"{over} >= :above"] * above'),
        tests=(GRANTS, MODEL),
    ),
    mutant(
        "what is found is in no order",
        (
            STATEMENTS,
            'order = f" order by {\', \'.join(ordered)}" if ordered else ""',
            'order = ""',
        ),
        tests=(QUEUE, MODEL),
    ),
    mutant(
        "what is excluded is found",
        (STATEMENTS, " <> {_spelled(value)}", " is not null"),
        tests=(CONTINUATIONS, MODEL),
    ),
    mutant(
        "any choice finds everything",
        (
            STATEMENTS,
            'f"({given}{cast(column)} is null or {own} = {given})"',
            'f"({given}{cast(column)} is null or {given}{cast(column)} is not null)"',
        ),
        tests=(GRANTS,),
    ),
)
