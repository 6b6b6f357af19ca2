-- What a node looks for in all sessions.

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

-- queued_turns
-- Queued turns of everybody, in the order in which they came, and whether their sessions are free.
select t.tenant, t.session_id, t.turn_id, s.open_turn is null
  from turn t indexed by turn_queued
  cross join session s on s.tenant = t.tenant and s.id = t.session_id
 where t.state = 'queued'
 order by t.began_ms, t.turn_id limit :limit;
