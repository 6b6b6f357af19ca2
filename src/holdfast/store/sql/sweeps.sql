-- Sweeps: reads over all sessions.

-- held_turns
-- Open turns whose holder has expired or resigned, has handed the turn over, is the calling node, or is another process
-- of this machine, which may be dead.
select s.tenant, s.id, t.turn_id, s.lease_node, n.slot, n.expires_ms <= {now}
  from @session s {by}
  {then} @turn t on t.tenant = s.tenant and t.session_id = s.id and t.turn_id = s.open_turn
  left join @node n on n.node_id = s.lease_node
 where t.state = 'open' and s.open_turn is not null and {which}
   and (s.lease_node is null or s.lease_node = :node or n.node_id is null
     or n.expires_ms <= {now} or n.slot > 0)
 order by t.turn_id;

-- stray_turns
-- Open turns that a retry may join, and that their session does not name; so they have no holder.
select t.tenant, t.session_id, t.turn_id, null, {true}
  from @turn t {indexed turn_replayable}
  left join @session s on s.tenant = t.tenant and s.id = t.session_id and s.open_turn = t.turn_id
 where t.replayable = {true} and t.ended_ms = 0 and t.state = 'open' and s.id is null
 order by t.turn_id;

-- open_turns
-- Every turn that is open, by the table of turns alone.
select tenant, session_id, turn_id from @turn where state = 'open' order by turn_id;

-- turn_holders
-- The holder of each open turn.
select s.lease_node
  from @session s {indexed session_held}
  {then} @turn t on t.tenant = s.tenant and t.session_id = s.id and t.turn_id = s.open_turn
 where t.state = 'open' and s.open_turn is not null;

-- queued_turns
-- Queued turns of all tenants, in the order in which they came, and whether their sessions are free.
select t.tenant, t.session_id, t.turn_id, s.open_turn is null
  from @turn t {indexed turn_queued}
  {then} @session s on s.tenant = t.tenant and s.id = t.session_id
 where t.state = 'queued'
 order by t.began_ms, t.turn_id limit :limit;

-- node_signals
-- Every unread signal for an open turn of one node.
select g.{signal}
  from @signal g
  join @turn t on t.tenant = g.tenant and t.turn_id = g.turn_id
  join @session s on s.tenant = t.tenant and s.id = t.session_id and s.open_turn = t.turn_id
 where g.consumed = {false} and t.state = 'open' and s.open_turn is not null and s.lease_node = :node
 order by g.at_ms, g.tenant, g.turn_id, g.n;
