-- Turns: begin, append, commit, end, takeover, signals.
--
-- `s.{session}` stands for the columns of a table in the order of its struct in store/rows.py, `{:session}` for
-- values bound to them, `{now}` for the time in milliseconds: the database's own, unless a clock was given.
-- A statement that ends in `returning` or `select` of `ready` has written everything if it
-- gives a row, and nothing if it gives none: then what was decided on has changed since it was read.

-- now
-- The time.
select {now};

-- node
-- A node's row.
select n.{node} from holdfast.node n where n.node_id = :node_id;

-- nodes
-- Every node's row.
select n.{node} from holdfast.node n order by n.node_id;

-- renew_node
-- A node says that it is alive; a gap starts its record anew.
insert into holdfast.node as n (node_id, ttl_ms, since_ms, expires_ms)
select :node_id, :ttl_ms::bigint, c.now_ms, c.now_ms + :ttl_ms::bigint
  from (select {now} as now_ms) c
on conflict (node_id) do update
   set ttl_ms = excluded.ttl_ms, expires_ms = excluded.expires_ms,
       since_ms = case when n.expires_ms <= excluded.since_ms then excluded.since_ms else n.since_ms end
returning n.{node};

-- drop_node
-- A node is gone, and said so.
delete from holdfast.node where node_id = :node_id;

-- begin_facts
-- What T1 has to know, but for the rare: the time, the node that asks, what its target means, who holds that,
-- whether it has begun already, and its claim. A key that means nothing yet leads to the id brought along.
select c.now_ms, n.{node}, k.{session_key}, s.{session}, s.stamp, h.{node}, own.turn_id, i.{idempotency}
  from (select {now} as now_ms) c
  left join holdfast.node n on n.node_id = :node
  left join holdfast.session_key k on k.tenant = :tenant and k.key = :key
  left join holdfast.session s on s.tenant = :tenant and s.id = coalesce(k.session_id, :session_id)
  left join holdfast.node h on h.node_id = s.lease_node
  left join holdfast.turn own on own.tenant = :tenant and own.turn_id = :turn_id
  left join holdfast.idempotency i on i.tenant = :tenant and i.key = :claim;

-- claim_facts
-- An idempotency key, the turn that it leads to, that turn's session, and what the request's session key means.
select i.{idempotency}, t.{turn}, s.{session}, k.session_id
  from (select 1) c
  left join holdfast.idempotency i on i.tenant = :tenant and i.key = :key
  left join holdfast.turn t on t.tenant = i.tenant and t.turn_id = i.turn_id
  left join holdfast.session s on s.tenant = t.tenant and s.id = t.session_id
  left join holdfast.session_key k on k.tenant = :tenant and k.key = :name;

-- target_facts
-- What a target means, the turn that is open there, and the one that made its head.
select c.now_ms, s.{session}, o.{turn}, h.{turn}
  from (select {now} as now_ms) c
  left join holdfast.session_key k on k.tenant = :tenant and k.key = :key
  left join holdfast.session s on s.tenant = :tenant and s.id = coalesce(k.session_id, :session_id)
  left join holdfast.turn o on o.tenant = s.tenant and o.turn_id = s.open_turn
  left join holdfast.turn h on h.tenant = s.tenant and h.session_id = s.id and h.seq = s.head;

-- own_facts
-- A turn and its session.
select t.{turn}, s.{session}
  from holdfast.turn t
  left join holdfast.session s on s.tenant = t.tenant and s.id = t.session_id
 where t.tenant = :tenant and t.turn_id = :turn_id;

-- open_turn
-- T1 on a session that is there, by a node that is alive. A claim that is in the way of :claim is replaced, if it is
-- still the one that was read; if there was none, one that has come since breaks the statement.
-- A continuation takes over the keys of the turn that it goes on with.
with as_read as (
  select 1 from holdfast.session s
   where s.tenant = :tenant and s.id = :session_id and s.stamp = :stamp
     for no key update),
claim_as_read as (
  select 1 from holdfast.idempotency i
   where i.tenant = :tenant and i.key = :claim and i.turn_id = :replaced
     for no key update),
ready as (
  select 1 where exists (select from as_read)
             and exists (select from holdfast.node n where n.node_id = :node and n.expires_ms > {now})
             and (:replaced::text is null or exists (select from claim_as_read))),
held as (
  update holdfast.session
     set open_turn = :turn_id, lease_token = :lease_token, lease_nonce = :nonce, lease_node = :node,
         retries_left = :retries_left, stamp = stamp + 1
   where tenant = :tenant and id = :session_id and exists (select from ready)),
moved as (
  update holdfast.idempotency
     set turn_id = :turn_id, state = 'running', expires_ms = 0, steer = null
   where tenant = :tenant and turn_id = :continues and state = 'done'
     and key is distinct from :claim and exists (select from ready)),
began as (
  insert into holdfast.turn ({turn}) select {:turn} from ready),
claimed as (
  insert into holdfast.idempotency (tenant, key, request_hash, turn_id, state, expires_ms)
  select :tenant, :claim, :claim_hash, :turn_id, 'running', 0 from ready
   where :claim::text is not null and :replaced::text is null),
claimed_again as (
  update holdfast.idempotency
     set request_hash = :claim_hash, turn_id = :turn_id, state = 'running', expires_ms = 0, steer = null
   where tenant = :tenant and key = :claim and :replaced::text is not null and exists (select from ready))
insert into holdfast.journal ({journal})
select :tenant, :turn_id, 0, :lease_token, :records from ready
returning 1;

-- open_turns
-- T1 of many turns, each on a session as it is known, without a claim. Those that come back are written. A session that
-- somebody is writing to is left out: nobody waits here for anybody.
with asked as (
  select * from unnest(:tenant::text[], :session_id::text[], :stamp::bigint[], :turn_id::text[],
                       :base_head::bigint[], :lease_token::bigint[], :nonce::text[], :node::text[],
                       :agent::bytea[], :source_digest::bytea[], :request_hash::bytea[],
                       :replayable::boolean[], :began_ms::bigint[], :records::bytea[])
           as a (tenant, session_id, stamp, turn_id, base_head, token, nonce, node, agent, source_digest,
                 request_hash, replayable, began_ms, records)),
held as (
  select a.*
    from asked a
    join holdfast.node n on n.node_id = a.node and n.expires_ms > {now}
    join holdfast.session s on s.tenant = a.tenant and s.id = a.session_id and s.stamp = a.stamp
     for no key update of s skip locked),
moved as (
  update holdfast.session s
     set open_turn = h.turn_id, lease_token = h.token, lease_nonce = h.nonce, lease_node = h.node,
         stamp = s.stamp + 1
    from held h where s.tenant = h.tenant and s.id = h.session_id),
began as (
  insert into holdfast.turn
         (tenant, turn_id, session_id, base_head, state, detail, attempt, client_attempt, lease_token, agent,
          source_digest, request_hash, replayable, start, "end", rev, changes, link, usage, acked, began_ms,
          ended_ms)
  select tenant, turn_id, session_id, base_head, 'open', '', 1, 0, token, agent,
         source_digest, request_hash, replayable, 0, 0, 0, :changes, '', :usage, false, began_ms, 0 from held),
written as (
  insert into holdfast.journal ({journal})
  select tenant, turn_id, 0, token, records from held)
select tenant, turn_id from held;

-- open_session
-- T1 that makes its session, and gives its key a meaning. Whoever came first breaks the statement of the other.
with claim_as_read as (
  select 1 from holdfast.idempotency i
   where i.tenant = :tenant and i.key = :claim and i.turn_id = :replaced
     for no key update),
ready as (
  select 1 where :replaced::text is null or exists (select from claim_as_read)),
made as (
  insert into holdfast.session
         (tenant, id, head, length, link, lease_token, lease_nonce, lease_node, open_turn, source_key,
          entry_agent, agent, lineage, settings, meta_rev, summary_rev, title, opening, state, anonymous,
          created_ms, active_ms)
  select :tenant, :session_id, 0, 0, :genesis, :lease_token, :nonce, :node, :turn_id, '', '', '',
         :lineage, :settings, 0, 0, '', '', 'live', :anonymous, :began_ms, :began_ms from ready),
named as (
  insert into holdfast.session_key ({session_key})
  select :tenant, :key, :session_id, 1 from ready where :key::text is not null),
began as (
  insert into holdfast.turn ({turn}) select {:turn} from ready),
claimed as (
  insert into holdfast.idempotency (tenant, key, request_hash, turn_id, state, expires_ms)
  select :tenant, :claim, :claim_hash, :turn_id, 'running', 0 from ready
   where :claim::text is not null and :replaced::text is null),
claimed_again as (
  update holdfast.idempotency
     set request_hash = :claim_hash, turn_id = :turn_id, state = 'running', expires_ms = 0, steer = null
   where tenant = :tenant and key = :claim and :replaced::text is not null and exists (select from ready))
insert into holdfast.journal ({journal})
select :tenant, :turn_id, 0, :lease_token, :records from ready
returning 1;

-- append_facts
-- What a single append has to know: the session, the number of the journal's last row, and the row that has
-- this number already.
select s.{session}, s.stamp,
       (select coalesce(max(j.n), -1) from holdfast.journal j
         where j.tenant = :tenant and j.turn_id = :turn_id),
       (select j.records from holdfast.journal j
         where j.tenant = :tenant and j.turn_id = :turn_id and j.n = :n)
  from holdfast.session s where s.tenant = :tenant and s.id = :session_id;

-- append_one
-- Some more records of a turn, and the signals that it has heard.
with ready as (
  update holdfast.session set stamp = stamp + 1
   where tenant = :tenant and id = :session_id and stamp = :stamp
  returning 1),
heard as (
  update holdfast.signal set consumed = true
   where tenant = :tenant and turn_id = :turn_id and n = any (:consumed::bigint[])
     and exists (select from ready)),
written as (
  insert into holdfast.journal ({journal})
  select {:journal} from ready where :is_new::boolean)
select 1 from ready;

-- append_many
-- Records of many turns, each under its own fence. Sessions are locked in order, so that two of these cannot
-- wait for each other. Those that come back are written, with their new stamps; whoever is left out has to be looked at alone.
with asked as (
  select * from unnest(:tenants::text[], :session_ids::text[], :turn_ids::text[], :tokens::bigint[],
                       :nonces::text[], :ns::bigint[], :records::bytea[])
           as a (tenant, session_id, turn_id, token, nonce, n, records)),
held as (
  select a.tenant, a.session_id, a.turn_id, a.token, a.n, a.records, s.stamp
    from asked a join holdfast.session s on s.tenant = a.tenant and s.id = a.session_id
   where s.open_turn = a.turn_id and s.lease_token = a.token and s.lease_nonce = a.nonce
     and not exists (
           select 1 from holdfast.journal j
            where j.tenant = a.tenant and j.turn_id = a.turn_id and j.n >= a.n)
   order by s.tenant, s.id
     for no key update of s),
moved as (
  update holdfast.session s set stamp = s.stamp + 1
    from held h where s.tenant = h.tenant and s.id = h.session_id),
written as (
  insert into holdfast.journal ({journal})
  select h.{journal} from held h)
select h.tenant, h.turn_id, h.stamp + 1 from held h;

-- commit_facts
-- What T2 has to know: the time, the session, the turn, and the number of the journal's last row.
select c.now_ms, s.{session}, s.stamp, t.{turn},
       (select coalesce(max(j.n), -1) from holdfast.journal j
         where j.tenant = :tenant and j.turn_id = :turn_id),
       exists (select 1 from holdfast.signal g
                where g.tenant = :tenant and g.turn_id = :turn_id and not g.consumed)
  from (select {now} as now_ms) c
  left join holdfast.session s on s.tenant = :tenant and s.id = :session_id
  left join holdfast.turn t on t.tenant = :tenant and t.turn_id = :turn_id;

-- commit_turn
-- T2: items, state, the turn, the session's next version, the journal and the claims; gives the time. Who and what a
-- session is for is written by its first commit. A claim by a steer that was not heard was answered by nobody.
with ready as (
  update holdfast.session
     set head = :seq, length = :end, link = :link, agent = :agent,
         opening = case when opening = '' then :opening else opening end,
         source_key = case when source_key = '' then :source_key else source_key end,
         entry_agent = case when entry_agent = '' then :entry_agent else entry_agent end,
         open_turn = null, lease_node = null, active_ms = {now}, unfinished = :unfinished,
         retries_left = :retries_left, stamp = stamp + 1
   where tenant = :tenant and id = :session_id and stamp = :stamp
  returning active_ms as now_ms),
items as (
  insert into holdfast.item (tenant, session_id, pos, turn_id, path, body)
  select :tenant, :session_id, :start + i.nth - 1, :turn_id, i.path, i.body
    from ready, unnest(:paths::text[], :bodies::bytea[]) with ordinality as i (path, body, nth)),
remembered as (
  insert into holdfast.state ({state})
  select :tenant, :session_id, v.name, :seq, v.value
    from ready, unnest(:names::bytea[], :values::bytea[]) as v (name, value)),
turned as (
  update holdfast.turn
     set state = 'committed', seq = :seq, ended_by = :ended_by, detail = :detail, agent = :agent,
         start = :start, "end" = :end, rev = :rev, changes = :changes, link = :link, usage = :usage,
         ended_ms = ready.now_ms, links = :links, replayable = :replayable
    from ready where tenant = :tenant and turn_id = :turn_id),
forgotten as (
  delete from holdfast.journal
   where tenant = :tenant and turn_id = :turn_id and not :replayable::boolean
     and exists (select from ready)),
written as (
  insert into holdfast.journal ({journal})
  select {:journal} from ready
   where :replayable::boolean and :records::bytea <> ''),
settled as (
  update holdfast.idempotency i
     set state = case when i.steer is null
                      or exists (select 1 from holdfast.signal g
                                  where g.tenant = i.tenant and g.turn_id = i.turn_id and g.n = i.steer
                                    and g.consumed)
                    then :settlement else 'failed' end,
         expires_ms = ready.now_ms + :keep_ms
    from ready where i.tenant = :tenant and i.turn_id = :turn_id and i.state = 'running')
select now_ms from ready;

-- commit_turns
-- T2 of many turns, each on a session as it is known; what a turn has several of are its part of the arrays. Those that
-- come back are written, and the time. A session that somebody is writing to is left out: nobody waits here for anybody.
with asked as (
  select * from unnest(:tenant::text[], :session_id::text[], :turn_id::text[], :stamp::bigint[],
                       :token::bigint[], :seq::bigint[], :ended_by::text[], :detail::bytea[],
                       :agent::bytea[], :source_key::bytea[], :entry_agent::bytea[], :opening::bytea[],
                       :start::bigint[], :end::bigint[], :rev::bigint[], :changes::bytea[],
                       :link::bytea[], :usage::bytea[], :replayable::boolean[], :n::bigint[],
                       :records::bytea[], :settlement::text[], :unfinished::bigint[],
                       :retries_left::bigint[], :links::bigint[], :items_from::int[],
                       :items_upto::int[], :values_from::int[], :values_upto::int[])
           as a (tenant, session_id, turn_id, stamp, token, seq, ended_by, detail, agent, source_key,
                 entry_agent, opening, start, upto, rev, changes, link, usage, replayable, n, records,
                 settlement, unfinished, retries_left, links, items_from, items_upto, values_from,
                 values_upto)),
held as (
  select a.*
    from asked a
    join holdfast.session s on s.tenant = a.tenant and s.id = a.session_id and s.stamp = a.stamp
     for no key update of s skip locked),
ready as (
  update holdfast.session s
     set head = h.seq, length = h.upto, link = h.link, agent = h.agent,
         opening = case when s.opening = '' then h.opening else s.opening end,
         source_key = case when s.source_key = '' then h.source_key else s.source_key end,
         entry_agent = case when s.entry_agent = '' then h.entry_agent else s.entry_agent end,
         open_turn = null, lease_node = null, active_ms = {now}, unfinished = h.unfinished,
         retries_left = h.retries_left, stamp = s.stamp + 1
    from held h where s.tenant = h.tenant and s.id = h.session_id
  returning h.*, s.active_ms as now_ms),
items as (
  insert into holdfast.item (tenant, session_id, pos, turn_id, path, body)
  select r.tenant, r.session_id, r.start + i.nth - 1, r.turn_id, i.path, i.body
    from ready r
   cross join lateral unnest((:paths::text[])[r.items_from : r.items_upto],
                             (:bodies::bytea[])[r.items_from : r.items_upto])
                      with ordinality as i (path, body, nth)),
remembered as (
  insert into holdfast.state ({state})
  select r.tenant, r.session_id, v.name, r.seq, v.value
    from ready r
   cross join lateral unnest((:names::bytea[])[r.values_from : r.values_upto],
                             (:values::bytea[])[r.values_from : r.values_upto]) as v (name, value)),
turned as (
  update holdfast.turn t
     set state = 'committed', seq = r.seq, ended_by = r.ended_by, detail = r.detail, agent = r.agent,
         start = r.start, "end" = r.upto, rev = r.rev, changes = r.changes, link = r.link,
         usage = r.usage, ended_ms = r.now_ms, links = r.links, replayable = r.replayable
    from ready r where t.tenant = r.tenant and t.turn_id = r.turn_id),
forgotten as (
  delete from holdfast.journal j using ready r
   where j.tenant = r.tenant and j.turn_id = r.turn_id and not r.replayable),
written as (
  insert into holdfast.journal ({journal})
  select {journal} from ready where replayable and records <> ''),
settled as (
  update holdfast.idempotency i
     set state = case when i.steer is null
                      or exists (select 1 from holdfast.signal g
                                  where g.tenant = i.tenant and g.turn_id = i.turn_id and g.n = i.steer
                                    and g.consumed)
                    then r.settlement else 'failed' end,
         expires_ms = r.now_ms + :keep_ms
    from ready r where i.tenant = r.tenant and i.turn_id = r.turn_id and i.state = 'running')
select tenant, turn_id, now_ms from ready;

-- add_memory
-- An agent remembers something; remembering it again changes nothing.
insert into holdfast.memory ({memory})
values ({:memory})
on conflict do nothing;

-- delete_memory
-- An agent forgets something.
delete from holdfast.memory where tenant = :tenant and agent = :agent and memory_id = :memory_id;

-- discard_turn
-- A turn ends without adding anything to its session. The keys that a continuation had taken over lead back to the turn
-- that it was to continue.
with ready as (
  update holdfast.session set open_turn = null, lease_node = null, stamp = stamp + 1
   where tenant = :tenant and id = :session_id and stamp = :stamp
  returning 1),
turned as (
  update holdfast.turn
     set state = 'discarded', ended_by = :ended_by, detail = :detail, ended_ms = :ended_ms
   where tenant = :tenant and turn_id = :turn_id and exists (select from ready)),
written as (
  insert into holdfast.journal ({journal})
  select {:journal} from ready where :is_new::boolean),
settled as (
  update holdfast.idempotency i
     set turn_id = case when i.steer is null then coalesce(:continues, i.turn_id) else i.turn_id end,
         state = case when i.steer is null and :continues::text is not null then 'done'
                      when i.steer is null
                      or exists (select 1 from holdfast.signal g
                                  where g.tenant = i.tenant and g.turn_id = i.turn_id and g.n = i.steer
                                    and g.consumed)
                    then :settlement else 'failed' end,
         expires_ms = :expires_ms
   where i.tenant = :tenant and i.turn_id = :turn_id and i.state = 'running' and exists (select from ready))
select 1 from ready;

-- journal_row
-- What is under this number in a turn's journal.
select records from holdfast.journal where tenant = :tenant and turn_id = :turn_id and n = :n;

-- hand_over
-- The open turn stays open and has no holder.
update holdfast.session set lease_node = null, stamp = stamp + 1
 where tenant = :tenant and id = :session_id and stamp = :stamp
returning 1;

-- takeover_facts
-- What a takeover has to know: the time, the node that asks, the session, its holder and its open turn.
select c.now_ms, n.{node}, s.{session}, s.stamp, h.{node}, t.{turn}
  from (select {now} as now_ms) c
  left join holdfast.node n on n.node_id = :node
  left join holdfast.session s on s.tenant = :tenant and s.id = :session_id
  left join holdfast.node h on h.node_id = s.lease_node
  left join holdfast.turn t on t.tenant = s.tenant and t.turn_id = s.open_turn;

-- take_turn
-- An open turn changes hands, if its holder has not said meanwhile that it is alive.
with holder_as_read as (
  select 1 from holdfast.node h
   where h.node_id = :holder and h.expires_ms = :holder_expires_ms
     for share),
ready as (
  update holdfast.session
     set lease_token = :token, lease_nonce = :nonce, lease_node = :node, stamp = stamp + 1
   where tenant = :tenant and id = :session_id and stamp = :stamp
     and (:holder_expires_ms::bigint is null or exists (select from holder_as_read))
  returning 1),
turned as (
  update holdfast.turn set lease_token = :token, attempt = :attempt
   where tenant = :tenant and turn_id = :turn_id and exists (select from ready))
select 1 from ready;

-- orphans
-- Open turns whose holder is gone, has let go, or asks.
select s.tenant, s.id, s.open_turn, s.lease_node
  from holdfast.turn t
  join holdfast.session s on s.tenant = t.tenant and s.id = t.session_id and s.open_turn = t.turn_id
  left join holdfast.node n on n.node_id = s.lease_node
 where t.state = 'open'
   and (s.lease_node is null or s.lease_node = :node or n.node_id is null
     or n.expires_ms <= {now})
 order by t.turn_id limit :limit;

-- turn
-- A turn's row.
select t.{turn} from holdfast.turn t where t.tenant = :tenant and t.turn_id = :turn_id;

-- turn_at
-- The turn that made a version of a session.
select t.{turn} from holdfast.turn t
 where t.tenant = :tenant and t.session_id = :session_id and t.seq = :seq;

-- earlier_turn
-- The last turn before a session's head that a request known by this has begun, among the last versions.
select t.{turn} from holdfast.turn t
 where t.tenant = :tenant and t.session_id = :session_id and t.seq > :after and t.seq < :head
   and t.request_hash = :request_hash
 order by t.seq desc limit 1;

-- turn_unfinished
-- The last turn that was kept and did not complete whose request is known by this.
select t.{turn} from holdfast.turn t
 where t.tenant = :tenant and t.request_hash = :request_hash and t.state = 'committed'
   and t.ended_by <> 'completed'
 order by t.turn_id desc limit 1;

-- acknowledge_turn
-- The client has the whole answer.
update holdfast.turn set acked = true where tenant = :tenant and turn_id = :turn_id and not acked;

-- idempotency
-- What is known under an idempotency key.
select i.{idempotency} from holdfast.idempotency i where i.tenant = :tenant and i.key = :key;

-- signal_facts
-- What a signal has to know: the time, its turn, the session, the number of the turn's last signal, and its claim.
select {now},
       t.{turn}, s.{session}, s.stamp,
       (select coalesce(max(g.n), 0) from holdfast.signal g
         where g.tenant = :tenant and g.turn_id = :turn_id),
       i.{idempotency}
  from holdfast.turn t
  left join holdfast.session s on s.tenant = t.tenant and s.id = t.session_id
  left join holdfast.idempotency i on i.tenant = t.tenant and i.key = :claim
 where t.tenant = :tenant and t.turn_id = :turn_id;

-- insert_signal
-- A signal for a turn's owner. With a :claim it is claimed for the turn, as when a turn begins.
with as_read as (
  select 1 from holdfast.session s
   where s.tenant = :tenant and s.id = :session_id and s.stamp = :stamp
     for no key update),
claim_as_read as (
  select 1 from holdfast.idempotency i
   where i.tenant = :tenant and i.key = :claim and i.turn_id = :replaced
     for no key update),
ready as (
  select 1 where exists (select from as_read)
             and (:replaced::text is null or exists (select from claim_as_read))),
moved as (
  update holdfast.session set stamp = stamp + 1
   where tenant = :tenant and id = :session_id and exists (select from ready)),
claimed as (
  insert into holdfast.idempotency ({idempotency})
  select :tenant, :claim, :request_hash, :turn_id, 'running', 0, :n from ready
   where :claim::text is not null and :replaced::text is null),
claimed_again as (
  update holdfast.idempotency
     set request_hash = :request_hash, turn_id = :turn_id, state = 'running', expires_ms = 0, steer = :n
   where tenant = :tenant and key = :claim and :replaced::text is not null and exists (select from ready))
insert into holdfast.signal ({signal})
select :tenant, :turn_id, :n, :kind, :payload, false, :at_ms from ready
returning 1;

-- waiting_signals
-- Signals that a turn has not heeded, oldest first.
select g.{signal} from holdfast.signal g
 where g.tenant = :tenant and g.turn_id = :turn_id and not g.consumed order by g.n;

-- signal
-- One signal.
select g.{signal} from holdfast.signal g
 where g.tenant = :tenant and g.turn_id = :turn_id and g.n = :n;

-- node_signals
-- Every signal that waits for an open turn of one node.
select g.{signal}
  from holdfast.signal g
  join holdfast.turn t on t.tenant = g.tenant and t.turn_id = g.turn_id
  join holdfast.session s on s.tenant = t.tenant and s.id = t.session_id and s.open_turn = t.turn_id
 where not g.consumed and t.state = 'open' and s.lease_node = :node
 order by g.at_ms, g.tenant, g.turn_id, g.n;

-- notify
-- Hints for these nodes.
select pg_notify(:channel, n.id) from unnest(:nodes::text[]) as n (id);
