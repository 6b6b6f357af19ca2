-- Turns that wait for their session. Whoever adds one, opens one or takes one out moves the stamp of the session.

-- queued_of
-- The queued turns of a session, in the order in which they came.
select t.{turn} from holdfast.turn t
 where t.tenant = :tenant and t.session_id = :session_id and t.state = 'queued'
 order by t.began_ms, t.turn_id;

-- queued_turns
-- Queued turns of everybody, in the order in which they came, and whether their sessions are free.
select t.tenant, t.session_id, t.turn_id, s.open_turn is null
  from holdfast.turn t
  join holdfast.session s on s.tenant = t.tenant and s.id = t.session_id
 where t.state = 'queued'
 order by t.began_ms, t.turn_id limit :limit;

-- queue_turn
-- A turn that waits for its session. A claim that is in the way of :claim is replaced, if it is still the one that was
-- read; if there was none, one that has come since breaks the statement.
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
queued as (
  insert into holdfast.turn ({turn}) select {:turn} from ready),
claimed as (
  insert into holdfast.idempotency (tenant, key, request_hash, turn_id, state, expires_ms)
  select :tenant, :claim, :request_hash, :turn_id, 'running', 0 from ready
   where :claim::text is not null and :replaced::text is null),
claimed_again as (
  update holdfast.idempotency
     set request_hash = :request_hash, turn_id = :turn_id, state = 'running', expires_ms = 0, steer = null
   where tenant = :tenant and key = :claim and :replaced::text is not null and exists (select from ready))
insert into holdfast.journal ({journal})
select :tenant, :turn_id, 0, 0, :records from ready
returning 1;

-- opening_facts
-- What the opening of a queued turn has to know: the time, the node that asks, the session, its holder, the turn, and
-- the first of those that wait for the session.
select c.now_ms, n.{node}, s.{session}, s.stamp, h.{node}, t.{turn},
       (select q.turn_id from holdfast.turn q
         where q.tenant = s.tenant and q.session_id = s.id and q.state = 'queued'
         order by q.began_ms, q.turn_id limit 1)
  from (select {now} as now_ms) c
  left join holdfast.node n on n.node_id = :node
  left join holdfast.session s on s.tenant = :tenant and s.id = :session_id
  left join holdfast.node h on h.node_id = s.lease_node
  left join holdfast.turn t on t.tenant = :tenant and t.turn_id = :turn_id;

-- open_queued_turn
-- A queued turn becomes the open one of its session, held by a node that is alive; its request is rewritten.
with ready as (
  update holdfast.session
     set open_turn = :turn_id, lease_token = :lease_token, lease_nonce = :nonce, lease_node = :node,
         stamp = stamp + 1
   where tenant = :tenant and id = :session_id and stamp = :stamp
     and exists (select from holdfast.node n where n.node_id = :node and n.expires_ms > {now})
  returning 1),
opened as (
  update holdfast.turn
     set state = 'open', base_head = :base_head, lease_token = :lease_token, agent = :agent,
         source_digest = :source_digest, began_ms = :began_ms
   where tenant = :tenant and turn_id = :turn_id and exists (select from ready)),
rewritten as (
  update holdfast.journal set token = :lease_token, records = :records
   where tenant = :tenant and turn_id = :turn_id and n = 0 and exists (select from ready))
select 1 from ready;

-- withdrawal_facts
-- What has to be known to end a queued turn: the time, the turn, and the stamp of its session.
select {now}, t.{turn}, s.stamp
  from holdfast.turn t join holdfast.session s on s.tenant = t.tenant and s.id = t.session_id
 where t.tenant = :tenant and t.turn_id = :turn_id;

-- withdraw_turn
-- A queued turn ends without having begun.
with ready as (
  update holdfast.session set stamp = stamp + 1
   where tenant = :tenant and id = :session_id and stamp = :stamp
  returning 1),
turned as (
  update holdfast.turn
     set state = 'discarded', ended_by = :ended_by, detail = :detail, ended_ms = :ended_ms
   where tenant = :tenant and turn_id = :turn_id and exists (select from ready)),
written as (
  insert into holdfast.journal ({journal})
  select :tenant, :turn_id, 1, 0, :records from ready where :records::bytea <> ''),
settled as (
  update holdfast.idempotency set state = :settlement, expires_ms = :expires_ms
   where tenant = :tenant and turn_id = :turn_id and state = 'running' and exists (select from ready))
select 1 from ready;
