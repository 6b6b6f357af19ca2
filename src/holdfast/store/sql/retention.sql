-- Retention: what may go. `operations/retention.py` says when, and removes it.

-- stale_discarded
-- Discarded turns whose time is over.
select tenant, turn_id from @turn
 where state = 'discarded' and ended_ms > :after_ms and ended_ms <= :before_ms order by ended_ms limit :limit;

-- next_discarded
-- When the next discarded turn ended, as an index tells it.
select min(ended_ms) from @turn {indexed turn_discarded} where state = 'discarded' and ended_ms > :after_ms;

-- stale_replays
-- Committed turns whose events no request may ask for any more.
select tenant, turn_id from @turn
 where replayable = {true} and state = 'committed' and ended_ms > :after_ms and ended_ms <= :before_ms
 order by ended_ms limit :limit;

-- next_replay
-- When the next turn ended whose events are kept, as an index tells it.
select min(ended_ms) from @turn {indexed turn_replayable} where replayable = {true} and ended_ms > :after_ms;

-- stale_claims
-- Idempotency rows a day after the end.
select tenant, key, state, expires_ms from @idempotency
 where state <> 'running' and expires_ms > :after_ms and expires_ms <= :before_ms order by expires_ms limit :limit;

-- next_claim
-- When the next idempotency row expires, as an index tells it.
select min(expires_ms) from @idempotency {indexed idempotency_to_prune} where state <> 'running' and expires_ms > :after_ms;

-- stale_signals
-- What was said to committed turns, a day after their end. There are never many, so they are gone through,
-- and not the turns.
select g.tenant, g.turn_id, g.n
  from @signal g {then} @turn t on t.tenant = g.tenant and t.turn_id = g.turn_id
 where t.state = 'committed' and t.ended_ms <= :before_ms limit :limit;

-- stale_nodes
-- Nodes that have been gone for a day and hold nothing.
select n.node_id, n.expires_ms from @node n
 where n.expires_ms <= :before_ms
   and not exists (
         select 1 from @turn t
           join @session s on s.tenant = t.tenant and s.id = t.session_id and s.open_turn = t.turn_id
          where t.state = 'open' and s.open_turn is not null and s.lease_node = n.node_id)
 limit :limit;

-- stray_blobs
-- Blobs of sessions that never came to be; ids sort by the time they were minted at.
select b.tenant, b.session_id, b.digest, b.noticed_ms from @blob b
 where b.session_id < :before_id
   and not exists (select 1 from @session s where s.tenant = b.tenant and s.id = b.session_id)
 limit :limit;

-- fresh_blobs
-- Blobs that were put since the last look.
select tenant, session_id, digest, noticed_ms from @blob where noticed_ms is null limit :limit;

-- due_blobs
-- Blobs whose time it is, and whether an item, or a journal that is kept, names them: of their session, or of a
-- session that reads it as its past.
select b.tenant, b.session_id, b.digest, b.noticed_ms,
       exists (
         select 1 from (
             select b.session_id as id
             union all select p.session_id from @session_past p
                        where p.tenant = b.tenant and p.ancestor = b.session_id) r
           {then} @item i on i.tenant = b.tenant and i.session_id = r.id
          where {instr}(i.body, {bytes b.digest}) > 0)
       or exists (
         select 1 from (
             select b.session_id as id
             union all select p.session_id from @session_past p
                        where p.tenant = b.tenant and p.ancestor = b.session_id) r
           {then} @turn t on t.tenant = b.tenant and t.session_id = r.id
           {then} @journal j on j.tenant = t.tenant and j.turn_id = t.turn_id
          where {instr}(j.records, {bytes b.digest}) > 0)
  from (select tenant, session_id, digest, noticed_ms from @blob
         where noticed_ms > 0 and noticed_ms <= :before_ms order by noticed_ms limit :limit) b;

-- stale_lines
-- Anonymous lines that no request has touched for a month.
select tenant, id from @session
 where {which} anonymous = {true} and state = 'live' and family is null and active_ms <= :before_ms and open_turn is null
 order by active_ms {most};

-- clearable_sessions
-- Deleted sessions that no live one reads, and of which more can go than turns with an idempotency key.
-- Those would stand in line before all others until their keys expire.
select d.tenant, d.id from @session d
 where d.state = 'deleted' and d.bytes_gone = {false}
   and not exists (
         select 1 from @session_past p join @session s on s.tenant = p.tenant and s.id = p.session_id
          where p.tenant = d.tenant and p.ancestor = d.id and s.state = 'live')
   and (exists (select 1 from @item where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from @state where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from @annotation where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from @blob where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from @search_chunk where tenant = d.tenant and session_id = d.id)
     or not exists (
          select 1 from @turn t {then} @idempotency i on i.tenant = t.tenant and i.turn_id = t.turn_id
           where t.tenant = d.tenant and t.session_id = d.id)
     or exists (
          select 1 from @turn t
           where t.tenant = d.tenant and t.session_id = d.id
             and not exists (
                   select 1 from @idempotency i where i.tenant = t.tenant and i.turn_id = t.turn_id)))
 limit :limit;

-- to_clear_among
-- Deleted sessions of which something is left, among some sessions.
select tenant, id from @session
 where tenant = :tenant and id {in ids} and state = 'deleted' and bytes_gone = {false} order by tenant, id;

-- live_reader
-- A live session that reads another one as its past.
select p.tenant, p.session_id
  from @session_past p join @session s on s.tenant = p.tenant and s.id = p.session_id
 where p.tenant = :tenant and p.ancestor = :session_id and s.state = 'live' limit 1;

-- clearable_rows
-- Some rows of a session, by their table and by what tells them apart there: first its items, from the first on;
-- last the turns that stay, because an idempotency key leads to them.
select 'item', i.pos, ''
  from (select pos from @item where tenant = :tenant and session_id = :session_id
         order by pos limit :limit) i
union all select 'state', seq, '' from @state where tenant = :tenant and session_id = :session_id
union all select 'annotation', rev, '' from @annotation where tenant = :tenant and session_id = :session_id
union all select 'search_chunk', from_pos, '' from @search_chunk
           where tenant = :tenant and session_id = :session_id
union all select 'blob', 0, digest from @blob where tenant = :tenant and session_id = :session_id
union all select 'turn', 0, t.turn_id from @turn t
           where t.tenant = :tenant and t.session_id = :session_id
             and not exists (
                   select 1 from @idempotency i where i.tenant = t.tenant and i.turn_id = t.turn_id)
union all select 'kept', 0, t.turn_id
            from @turn t {then} @idempotency i on i.tenant = t.tenant and i.turn_id = t.turn_id
           where t.tenant = :tenant and t.session_id = :session_id
limit :limit;

-- parts_of
-- Some rows of a session in one table, by what tells them apart there.
select '{rows}', {number}, {named} from @{rows} r
 where r.tenant = :tenant and r.session_id = :session_id {unless} limit :limit;
