-- Moving sessions: what a dump holds besides the rows of the session itself.

-- session_journals
-- What is kept of the journals of a session's ended turns, in order.
select j.{journal}
  from turn t cross join journal j on j.tenant = t.tenant and j.turn_id = t.turn_id
 where t.tenant = :tenant and t.session_id = :session_id and t.state in ('committed', 'discarded')
 order by j.turn_id, j.n;

-- session_claims
-- The idempotency keys that lead to a session's ended turns, by key.
select i.{idempotency}
  from turn t cross join idempotency i indexed by idempotency_by_turn
    on i.tenant = t.tenant and i.turn_id = t.turn_id
 where t.tenant = :tenant and t.session_id = :session_id and t.state in ('committed', 'discarded')
 order by i.key;

-- restore_journal
-- Some records of a turn that comes from elsewhere.
insert into journal ({journal}) values (?, ?, ?, ?, ?);

-- restore_claim
-- An idempotency key that comes from elsewhere, with its turn.
insert into idempotency ({idempotency})
values ({:idempotency});

-- restore_memory
-- A memory that comes from elsewhere; one that is there stays.
insert into memory ({memory})
values ({:memory})
on conflict do nothing;

-- all_memories
-- Some memories of a tenant, by agent and id.
select {memory} from memory
 where tenant = :tenant and (agent, memory_id) > (:agent, :after)
 order by agent, memory_id limit :limit;
