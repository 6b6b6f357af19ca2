-- Turns that wait for their session.

-- queued_of
-- The first queued turns of a session, in the order in which they came.
select {turn}
  from turn indexed by turn_queued
 where tenant = :tenant and session_id = :session_id and state = 'queued'
 order by began_ms, turn_id limit :limit;

-- queued_turns
-- Queued turns of everybody, in the order in which they came, and whether their sessions are free.
select t.tenant, t.session_id, t.turn_id, s.open_turn is null
  from turn t indexed by turn_queued
  cross join session s on s.tenant = t.tenant and s.id = t.session_id
 where t.state = 'queued'
 order by t.began_ms, t.turn_id limit :limit;

-- open_queued_turn
-- A queued turn becomes the open one of its session.
update turn set state = 'open', base_head = :base_head, lease_token = :lease_token, agent = :agent,
                source_digest = :source_digest, began_ms = :began_ms
 where tenant = :tenant and turn_id = :turn_id;

-- rewrite_request
-- The request of a queued turn, as it is on top of the version that it begins from.
update journal set token = :token, records = :records
 where tenant = :tenant and turn_id = :turn_id and n = 0;
