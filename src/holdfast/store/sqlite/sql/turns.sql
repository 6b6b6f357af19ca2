-- Turns: begin, append, commit, end, takeover, signals.

-- begin_facts
-- What T1 has to know of every request: the session that it means, by its key or else by an id, the key's and
-- the node's rows, and whether a turn with its id is there. One row, whatever is found.
select s.{session},
       k.{session_key},
       n.{node},
       t.turn_id
  from (select 1)
  left join session_key k on k.tenant = :tenant and k.key = :key
  left join session s on s.tenant = :tenant and s.id = coalesce(k.session_id, :session_id)
  left join node n on n.node_id = :node
  left join turn t on t.tenant = :tenant and t.turn_id = :turn_id;

-- append_facts
-- What an append has to know: the session, the number of the turn's newest journal row or -1, and what is
-- there under the number that the append has. One row, whatever is found.
select s.{session},
       (select coalesce(max(n), -1) from journal where tenant = :tenant and turn_id = :turn_id),
       (select records from journal where tenant = :tenant and turn_id = :turn_id and n = :n)
  from (select 1)
  left join session s on s.tenant = :tenant and s.id = :session_id;

-- commit_facts
-- What T2 has to know: the session, whether the turn can be replayed, the number of its newest journal row
-- or -1, and whether somebody has steered it, or has an idempotency key for it. One row, whatever is found.
select s.{session},
       t.replayable,
       (select coalesce(max(n), -1) from journal where tenant = :tenant and turn_id = :turn_id),
       exists (select 1 from signal
                where tenant = :tenant and turn_id = :turn_id and kind = 'steer' and consumed = 0),
       exists (select 1 from idempotency where tenant = :tenant and turn_id = :turn_id)
  from (select 1)
  left join session s on s.tenant = :tenant and s.id = :session_id
  left join turn t on t.tenant = :tenant and t.turn_id = :turn_id;

-- node
-- A node's row.
select {node} from node where node_id = :node_id;

-- nodes
-- Every node's row.
select {node} from node order by node_id;

-- enrol_node
-- A new boot of a process; the slot is never handed out twice.
insert into node (node_id, ttl_ms, since_ms, expires_ms)
values (:node_id, :ttl_ms, :since_ms, :expires_ms);

-- renew_node
-- A node says that it is alive.
update node set ttl_ms = :ttl_ms, since_ms = :since_ms, expires_ms = :expires_ms
 where node_id = :node_id;

-- drop_node
-- A node is gone, and said so.
delete from node where node_id = :node_id;

-- session
-- A session's row.
select {session}
  from session where tenant = :tenant and id = :id;

-- insert_session
-- A new session: by its first turn, a fork, a reset or an import.
insert into session ({session})
values ({:session});

-- hold_session
-- A turn opens, or changes hands: from now on only this token and nonce may write it.
update session set open_turn = :turn_id, lease_token = :token, lease_nonce = :nonce,
                   lease_node = :node
 where tenant = :tenant and id = :session_id;

-- let_go
-- The open turn has ended without adding anything.
update session set open_turn = null, lease_node = null
 where tenant = :tenant and id = :session_id;

-- hand_over
-- The open turn stays open and has no holder.
update session set lease_node = null where tenant = :tenant and id = :session_id;

-- advance_session
-- A commit moves the session to its next version. Who and what it is for is written by the first.
update session
   set head = :head, length = :length, link = :link, agent = :agent,
       opening = iif(opening = '', :opening, opening),
       source_key = iif(source_key = '', :source_key, source_key),
       entry_agent = iif(entry_agent = '', :entry_agent, entry_agent),
       open_turn = null, lease_node = null, active_ms = :active_ms, unfinished = :unfinished,
       retries_left = :retries_left
 where tenant = :tenant and id = :session_id;

-- key
-- What a session key means.
select {session_key} from session_key where tenant = :tenant and key = :key;

-- insert_key
-- A key gets its first meaning.
insert into session_key ({session_key})
values ({:session_key});

-- turn
-- A turn's row.
select {turn}
  from turn where tenant = :tenant and turn_id = :turn_id;

-- turn_at
-- The turn that made a version of a session.
select {turn}
  from turn where tenant = :tenant and session_id = :session_id and seq = :seq;

-- earlier_turn
-- The last turn before a session's head that a request known by this has begun, among the last versions.
select {turn}
  from turn indexed by turn_by_seq
 where tenant = :tenant and session_id = :session_id and seq > :after and seq < :head
   and request_hash = :request_hash
 order by seq desc limit 1;

-- turn_unfinished
-- The last turn that was kept and did not complete whose request is known by this.
select {turn}
  from turn indexed by turn_unfinished
 where tenant = :tenant and request_hash = :request_hash and state = 'committed' and ended_by <> 'completed'
 order by turn_id desc limit 1;

-- insert_turn
-- A turn begins, or is imported.
insert into turn ({turn})
values ({:turn});

-- commit_turn
-- A turn becomes part of the history.
update turn
   set state = 'committed', seq = :seq, ended_by = :ended_by, detail = :detail, agent = :agent,
       start = :start, "end" = :end, rev = :rev, changes = :changes, link = :link, usage = :usage,
       ended_ms = :ended_ms, links = :links, replayable = :replayable
 where tenant = :tenant and turn_id = :turn_id;

-- discard_turn
-- A turn ends without adding anything.
update turn set state = 'discarded', ended_by = :ended_by, detail = :detail, ended_ms = :ended_ms
 where tenant = :tenant and turn_id = :turn_id;

-- retake_turn
-- A turn changes hands.
update turn set lease_token = :lease_token, attempt = :attempt
 where tenant = :tenant and turn_id = :turn_id;

-- acknowledge_turn
-- The client has the whole answer.
update turn set acked = 1 where tenant = :tenant and turn_id = :turn_id;

-- insert_item
-- An item goes to the end of its session's history.
insert into item (tenant, session_id, pos, turn_id, path, body) values (?, ?, ?, ?, ?, ?);

-- insert_state
-- A value of session state, from this version on.
insert into state ({state})
values ({:state});

-- add_memory
-- An agent remembers something; remembering it again changes nothing.
insert into memory ({memory})
values ({:memory})
on conflict do nothing;

-- delete_memory
-- An agent forgets something.
delete from memory where tenant = :tenant and agent = :agent and memory_id = :memory_id;

-- insert_journal
-- Some more records of a turn.
insert into journal ({journal})
values ({:journal});

-- delete_journal
-- Nobody will come back for this turn's events.
delete from journal where tenant = :tenant and turn_id = :turn_id;

-- idempotency
-- What is known under an idempotency key.
select {idempotency} from idempotency
 where tenant = :tenant and key = :key;

-- claim_key
-- A request claims its idempotency key; a failed or expired claim is replaced.
insert into idempotency ({idempotency})
values (:tenant, :key, :request_hash, :turn_id, 'running', 0, :steer)
on conflict (tenant, key) do update
   set request_hash = excluded.request_hash, turn_id = excluded.turn_id, state = 'running',
       expires_ms = 0, steer = excluded.steer;

-- spend_retry
-- A retry continues the session's head.
update session set retries_left = :retries_left where tenant = :tenant and id = :session_id;

-- move_keys
-- The keys of a turn lead to its continuation; what was steered into the turn is part of it.
update idempotency indexed by idempotency_by_turn
   set turn_id = :to_turn, state = 'running', expires_ms = 0, steer = null
 where tenant = :tenant and turn_id = :turn_id and state = 'done';

-- return_keys
-- A continuation was discarded: the keys that it had taken over lead back to the turn that it was to continue.
update idempotency indexed by idempotency_by_turn
   set turn_id = :to_turn, state = 'done', expires_ms = :expires_ms
 where tenant = :tenant and turn_id = :turn_id and state = 'running' and steer is null;

-- settle_keys
-- The turn behind some idempotency keys has ended; a steer that it has not heard was answered by nobody. Left to
-- itself, SQLite would go through the tenant's keys.
update idempotency as i indexed by idempotency_by_turn
   set state = case when i.steer is null
                      or exists (select 1 from signal g
                                  where g.tenant = i.tenant and g.turn_id = i.turn_id and g.n = i.steer
                                    and g.consumed = 1)
                    then :state else 'failed' end,
       expires_ms = :expires_ms
 where tenant = :tenant and turn_id = :turn_id and state = 'running';

-- waiting_signals
-- Signals of one kind that a turn has not heeded, oldest first.
select {signal} from signal
 where tenant = :tenant and turn_id = :turn_id and kind = :kind and consumed = 0
 order by n;

-- signal
-- One signal.
select {signal} from signal
 where tenant = :tenant and turn_id = :turn_id and n = :n;

-- last_signal
-- The number of a turn's newest signal.
select coalesce(max(n), 0) from signal where tenant = :tenant and turn_id = :turn_id;

-- insert_signal
-- A signal for a turn's owner.
insert into signal ({signal})
values (:tenant, :turn_id, :n, :kind, :payload, 0, :at_ms);

-- consume_signal
-- The turn has heard it.
update signal set consumed = 1 where tenant = ? and turn_id = ? and n = ?;

-- node_signals
-- Every signal that waits for an open turn of one node.
select g.{signal}
  from session s join signal g on g.tenant = s.tenant and g.turn_id = s.open_turn
 where s.lease_node = :node and s.open_turn is not null and g.consumed = 0
 order by g.at_ms, g.tenant, g.turn_id, g.n;

-- held_sessions
-- Open turns, and who holds them.
select s.tenant, s.id, s.open_turn, s.lease_node, n.{node}
  from session s left join node n on n.node_id = s.lease_node
 where s.open_turn is not null
 order by s.open_turn;
