-- Retention: what may go, in small steps.

-- horizon
-- What was seen of the clock.
select {horizon} from horizon;

-- put_horizon
-- The clock was looked at.
insert into horizon (one, {horizon}) values (1, {:horizon})
on conflict (one) do update set seen_ms = excluded.seen_ms, ran_ms = excluded.ran_ms, leaps = excluded.leaps;

-- stale_discarded
-- Discarded turns whose time is over.
select tenant, turn_id from turn
 where state = 'discarded' and ended_ms <= :before_ms order by ended_ms limit :limit;

-- stale_replays
-- Committed turns whose events nobody may ask for any more.
select tenant, turn_id from turn
 where replayable = 1 and state = 'committed' and ended_ms <= :before_ms
 order by ended_ms limit :limit;

-- delete_turn
-- A discarded turn's row.
delete from turn where tenant = :tenant and turn_id = :turn_id;

-- forget_replay
-- A committed turn whose events are gone.
update turn set replayable = 0 where tenant = :tenant and turn_id = :turn_id;

-- prune_signals
-- What was said to committed turns, a day after their end. There are never many, so they are gone through,
-- and not the turns: `cross join` keeps the order.
delete from signal where (tenant, turn_id, n) in (
  select g.tenant, g.turn_id, g.n
    from signal g cross join turn t on t.tenant = g.tenant and t.turn_id = g.turn_id
   where t.state = 'committed' and t.ended_ms <= :before_ms limit :limit);

-- delete_signals
-- What was said to a turn that is over.
delete from signal where tenant = :tenant and turn_id = :turn_id;

-- prune_idempotency
-- Idempotency rows a day after the end.
delete from idempotency where (tenant, key) in (
  select tenant, key from idempotency
   where state <> 'running' and expires_ms <= :before_ms order by expires_ms limit :limit);

-- prune_nodes
-- Nodes that have been gone for a day and hold nothing.
delete from node where node_id in (
  select node_id from node n where expires_ms <= :before_ms
     and not exists (select 1 from session s where s.lease_node = n.node_id and s.open_turn is not null)
   limit :limit);

-- stale_anonymous
-- Anonymous lines that nobody has touched for a month.
select tenant, id from session
 where anonymous = 1 and state = 'live' and active_ms <= :before_ms and open_turn is null
 order by active_ms limit :limit;

-- clearable_sessions
-- Deleted sessions that no live one reads, and of which more can go than turns with an idempotency key.
-- Those would stand in line before all others until their keys expire.
select tenant, id from session d
 where state = 'deleted' and bytes_gone = 0
   and not exists (
         select 1 from session_past p join session s on s.tenant = p.tenant and s.id = p.session_id
          where p.tenant = d.tenant and p.ancestor = d.id and s.state = 'live')
   and (exists (select 1 from item where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from state where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from annotation where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from blob where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from search_chunk where tenant = d.tenant and session_id = d.id)
     or not exists (
          select 1 from turn t cross join idempotency i on i.tenant = t.tenant and i.turn_id = t.turn_id
           where t.tenant = d.tenant and t.session_id = d.id)
     or exists (
          select 1 from turn t
           where t.tenant = d.tenant and t.session_id = d.id
             and not exists (
                   select 1 from idempotency i where i.tenant = t.tenant and i.turn_id = t.turn_id)))
 limit :limit;

-- mark_cleared
-- Everything of a deleted session but its tombstone is gone; there is nothing left to index.
update session set bytes_gone = 1, indexed_length = length, indexed_rev = meta_rev
 where tenant = :tenant and id = :id;

-- clear_items
-- Some items of a deleted session.
delete from item where rowid in (
  select rowid from item where tenant = :tenant and session_id = :id limit :limit);

-- clear_state
-- Some state of a deleted session.
delete from state where rowid in (
  select rowid from state where tenant = :tenant and session_id = :id limit :limit);

-- clear_annotations
-- Some annotations of a deleted session.
delete from annotation where rowid in (
  select rowid from annotation where tenant = :tenant and session_id = :id limit :limit);

-- clear_blobs
-- Some blobs of a deleted session.
delete from blob where rowid in (
  select rowid from blob where tenant = :tenant and session_id = :id limit :limit);

-- clearable_turns
-- Some turns of a deleted session, as far as no idempotency key leads to them.
select t.turn_id from turn t
 where t.tenant = :tenant and t.session_id = :id
   and not exists (select 1 from idempotency i where i.tenant = t.tenant and i.turn_id = t.turn_id)
 limit :limit;

-- has_turns
-- Whether a session has a turn left.
select exists (select 1 from turn where tenant = :tenant and session_id = :id);

-- prune_stray_blobs
-- Blobs of sessions that never came to be; ids sort by the time they were minted at.
delete from blob where rowid in (
  select b.rowid from blob b
   where b.session_id < :before_id
     and not exists (select 1 from session s where s.tenant = b.tenant and s.id = b.session_id)
   limit :limit);

-- notice_blobs
-- Blobs that were put since the last look.
update blob set noticed_ms = :now_ms where rowid in (
  select rowid from blob where noticed_ms is null limit :limit);

-- due_blobs
-- Blobs of which it is time to look whether an item names them.
select tenant, session_id, digest from blob
 where noticed_ms > 0 and noticed_ms <= :before_ms order by noticed_ms limit :limit;

-- names_blob
-- Whether an item, or a journal that is kept, of a session or of one that reads it as its past, names a blob.
with reader (id) as (
  select :session_id
  union all select session_id from session_past where tenant = :tenant and ancestor = :session_id)
select exists (
         select 1 from reader r cross join item i on i.tenant = :tenant and i.session_id = r.id
          where instr(i.body, :digest))
    or exists (
         select 1 from reader r cross join turn t on t.tenant = :tenant and t.session_id = r.id
           cross join journal j on j.tenant = t.tenant and j.turn_id = t.turn_id
          where instr(j.records, :digest));

-- keep_blob
-- An item names it: it stays as long as its session.
update blob set noticed_ms = 0 where tenant = :tenant and session_id = :session_id and digest = :digest;

-- drop_blob
-- Nothing names it.
delete from blob where tenant = :tenant and session_id = :session_id and digest = :digest;

-- delete_journal
-- Nobody will come back for this turn's events.
delete from journal where tenant = :tenant and turn_id = :turn_id;
