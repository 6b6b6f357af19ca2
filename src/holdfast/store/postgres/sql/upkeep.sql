-- Retention: what may go, in small steps. Rows that somebody else is at are left for the next step.

-- horizon
-- What was seen of the clock.
select h.{horizon} from holdfast.horizon h;

-- put_horizon
-- The clock was looked at, unless another node has looked meanwhile.
insert into holdfast.horizon as h (one, {horizon}) values (1, {:horizon})
on conflict (one) do update set seen_ms = excluded.seen_ms, ran_ms = excluded.ran_ms, leaps = excluded.leaps
 where h.seen_ms = :was_ms;

-- prune_discarded
-- Discarded turns whose time is over, with their journals and signals.
with gone as (
  select tenant, turn_id from holdfast.turn
   where state = 'discarded' and ended_ms <= :before_ms order by ended_ms limit :limit
     for update skip locked),
journals as (
  delete from holdfast.journal j using gone g where j.tenant = g.tenant and j.turn_id = g.turn_id),
signals as (
  delete from holdfast.signal x using gone g where x.tenant = g.tenant and x.turn_id = g.turn_id),
turns as (
  delete from holdfast.turn t using gone g where t.tenant = g.tenant and t.turn_id = g.turn_id)
select count(*) from gone;

-- prune_replays
-- The journals of committed turns whose events nobody may ask for any more.
with gone as (
  select tenant, turn_id from holdfast.turn
   where replayable and state = 'committed' and ended_ms <= :before_ms order by ended_ms limit :limit
     for no key update skip locked),
journals as (
  delete from holdfast.journal j using gone g where j.tenant = g.tenant and j.turn_id = g.turn_id),
turns as (
  update holdfast.turn t set replayable = false from gone g
   where t.tenant = g.tenant and t.turn_id = g.turn_id)
select count(*) from gone;

-- prune_signals
-- What was said to committed turns, a day after their end.
with gone as (
  select g.tenant, g.turn_id, g.n
    from holdfast.signal g join holdfast.turn t on t.tenant = g.tenant and t.turn_id = g.turn_id
   where t.state = 'committed' and t.ended_ms <= :before_ms limit :limit
     for update of g skip locked),
signals as (
  delete from holdfast.signal x using gone g
   where x.tenant = g.tenant and x.turn_id = g.turn_id and x.n = g.n)
select count(*) from gone;

-- prune_idempotency
-- Idempotency rows a day after the end.
with gone as (
  select tenant, key from holdfast.idempotency
   where state <> 'running' and expires_ms <= :before_ms order by expires_ms limit :limit
     for update skip locked),
claims as (
  delete from holdfast.idempotency i using gone g where i.tenant = g.tenant and i.key = g.key)
select count(*) from gone;

-- prune_nodes
-- Nodes that have been gone for a day and hold nothing.
with gone as (
  select n.node_id from holdfast.node n
   where n.expires_ms <= :before_ms
     and not exists (
           select 1 from holdfast.turn t
             join holdfast.session s on s.tenant = t.tenant and s.id = t.session_id
            where t.state = 'open' and s.open_turn = t.turn_id and s.lease_node = n.node_id)
   limit :limit for update skip locked),
nodes as (
  delete from holdfast.node n using gone g where n.node_id = g.node_id)
select count(*) from gone;

-- prune_stray_blobs
-- Blobs of sessions that never came to be; ids sort by the time they were minted at.
with gone as (
  select b.tenant, b.session_id, b.digest from holdfast.blob b
   where b.session_id < :before_id
     and not exists (
           select 1 from holdfast.session s where s.tenant = b.tenant and s.id = b.session_id)
   limit :limit for update skip locked),
blobs as (
  delete from holdfast.blob b using gone g
   where b.tenant = g.tenant and b.session_id = g.session_id and b.digest = g.digest)
select count(*) from gone;

-- judge_blobs
-- Blobs that were put since the last look. Of those whose time it is, the ones stay that an item,
-- or a journal that is kept, of their session or of one that reads it as its past names; the others go.
with fresh as (
  update holdfast.blob b set noticed_ms = :now_ms where b.ctid = any (array(
    select ctid from holdfast.blob where noticed_ms is null limit :limit for update skip locked))),
due as (
  select b.tenant, b.session_id, b.digest from holdfast.blob b
   where b.noticed_ms > 0 and b.noticed_ms <= :before_ms order by b.noticed_ms limit :judged for update skip locked),
judged as (
  select d.tenant, d.session_id, d.digest, exists (
           select 1 from holdfast.item i
            where i.tenant = d.tenant and i.session_id = any (r.ids)
              and position(convert_to(d.digest, 'UTF8') in i.body) > 0)
      or exists (
           select 1 from holdfast.turn t join holdfast.journal j on j.tenant = t.tenant and j.turn_id = t.turn_id
            where t.tenant = d.tenant and t.session_id = any (r.ids)
              and position(convert_to(d.digest, 'UTF8') in j.records) > 0) as named
    from due d cross join lateral (
      select array(
        select d.session_id union all select p.session_id from holdfast.session_past p
         where p.tenant = d.tenant and p.ancestor = d.session_id) as ids) r),
kept as (
  update holdfast.blob b set noticed_ms = 0 from judged j
   where j.named and b.tenant = j.tenant and b.session_id = j.session_id and b.digest = j.digest),
gone as (
  delete from holdfast.blob b using judged j
   where not j.named and b.tenant = j.tenant and b.session_id = j.session_id and b.digest = j.digest)
select count(*) from judged;

-- stale_anonymous
-- Anonymous lines that nobody has touched for a month.
select tenant, id from holdfast.session
 where anonymous and state = 'live' and active_ms <= :before_ms and open_turn is null
 order by active_ms limit :limit;

-- clearable_sessions
-- Deleted sessions that no live one reads, and of which more can go than turns with an idempotency key.
-- Those would stand in line before all others until their keys expire.
select d.tenant, d.id from holdfast.session d
 where d.state = 'deleted' and not d.bytes_gone
   and not exists (
         select 1 from holdfast.session_past p
           join holdfast.session s on s.tenant = p.tenant and s.id = p.session_id
          where p.tenant = d.tenant and p.ancestor = d.id and s.state = 'live')
   and (exists (select 1 from holdfast.item where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from holdfast.state where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from holdfast.annotation where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from holdfast.blob where tenant = d.tenant and session_id = d.id)
     or exists (select 1 from holdfast.search_chunk where tenant = d.tenant and session_id = d.id)
     or not exists (
          select 1 from holdfast.turn t
            join holdfast.idempotency i on i.tenant = t.tenant and i.turn_id = t.turn_id
           where t.tenant = d.tenant and t.session_id = d.id)
     or exists (
          select 1 from holdfast.turn t
           where t.tenant = d.tenant and t.session_id = d.id
             and not exists (
                   select 1 from holdfast.idempotency i
                    where i.tenant = t.tenant and i.turn_id = t.turn_id)))
 limit :limit;

-- hold_tombstone
-- A deleted session, for as long as some of it goes. Whoever restores a fork of it waits, or has come first.
select 1 from holdfast.session
 where tenant = :tenant and id = :id and state = 'deleted' and not bytes_gone
   for no key update skip locked;

-- is_read
-- Whether a live session reads another one as its past.
select exists (
  select 1 from holdfast.session_past p
    join holdfast.session s on s.tenant = p.tenant and s.id = p.session_id
   where p.tenant = :tenant and p.ancestor = :id and s.state = 'live');

-- clear_items
-- Some items of a deleted session.
with gone as (
  delete from holdfast.item where ctid = any (array(
    select ctid from holdfast.item where tenant = :tenant and session_id = :id limit :limit))
  returning 1)
select count(*) from gone;

-- clear_state
-- Some state of a deleted session.
with gone as (
  delete from holdfast.state where ctid = any (array(
    select ctid from holdfast.state where tenant = :tenant and session_id = :id limit :limit))
  returning 1)
select count(*) from gone;

-- clear_annotations
-- Some annotations of a deleted session.
with gone as (
  delete from holdfast.annotation where ctid = any (array(
    select ctid from holdfast.annotation where tenant = :tenant and session_id = :id limit :limit))
  returning 1)
select count(*) from gone;

-- clear_blobs
-- Some blobs of a deleted session.
with gone as (
  delete from holdfast.blob where ctid = any (array(
    select ctid from holdfast.blob where tenant = :tenant and session_id = :id limit :limit))
  returning 1)
select count(*) from gone;

-- clear_chunks
-- Some of what the search index has of a deleted session.
with gone as (
  delete from holdfast.search_chunk where ctid = any (array(
    select ctid from holdfast.search_chunk where tenant = :tenant and session_id = :id limit :limit))
  returning 1)
select count(*) from gone;

-- clear_turns
-- Some turns of a deleted session, as far as no idempotency key leads to them, with their journals and signals.
with gone as (
  select t.tenant, t.turn_id from holdfast.turn t
   where t.tenant = :tenant and t.session_id = :id
     and not exists (
           select 1 from holdfast.idempotency i where i.tenant = t.tenant and i.turn_id = t.turn_id)
   limit :limit for update),
journals as (
  delete from holdfast.journal j using gone g where j.tenant = g.tenant and j.turn_id = g.turn_id),
signals as (
  delete from holdfast.signal x using gone g where x.tenant = g.tenant and x.turn_id = g.turn_id),
turns as (
  delete from holdfast.turn t using gone g where t.tenant = g.tenant and t.turn_id = g.turn_id)
select count(*) from gone;

-- mark_cleared
-- Everything of a deleted session but its tombstone is gone; there is nothing left to index.
update holdfast.session set bytes_gone = true, indexed_length = length, indexed_rev = meta_rev
 where tenant = :tenant and id = :id
   and not exists (select 1 from holdfast.turn where tenant = :tenant and session_id = :id);

-- now
-- The time.
select {now};

-- notify
-- Hints for these nodes.
select pg_notify(:channel, n.id) from unnest(:nodes::text[]) as n (id);
