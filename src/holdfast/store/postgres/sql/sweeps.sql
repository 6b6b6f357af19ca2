-- What a node looks for in all sessions.

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

-- queued_turns
-- Queued turns of everybody, in the order in which they came, and whether their sessions are free.
select t.tenant, t.session_id, t.turn_id, s.open_turn is null
  from holdfast.turn t
  join holdfast.session s on s.tenant = t.tenant and s.id = t.session_id
 where t.state = 'queued'
 order by t.began_ms, t.turn_id limit :limit;
