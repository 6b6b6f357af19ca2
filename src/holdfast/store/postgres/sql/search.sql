-- Search: how far sessions are indexed, and where words occur.

-- sessions_behind
-- Some sessions that are not indexed up to their ends, and how they stand. The planner believes that nearly all are,
-- and would look for the first ones in the table; in the order of their index, it finds them there.
select tenant, id, state, length, meta_rev, indexed_length, indexed_rev,
       case when title <> '' then title else opening end
  from holdfast.session
 where indexed_length <> length or indexed_rev <> meta_rev order by tenant, id limit :limit;

-- tenants_behind
-- Sessions of a tenant that are not indexed up to their ends: from where to where.
select id, indexed_length, length
  from holdfast.session
 where tenant = :tenant and (indexed_length <> length or indexed_rev <> meta_rev) order by id limit :limit;

-- messages_in
-- Items of a stretch that no sub-agent said, the last first, up to the one with which they weigh enough.
select pos, body
  from (select pos, body, sum(length(body)) over (order by pos desc) - length(body) as lighter
          from (select pos, body from holdfast.item
                 where tenant = :tenant and session_id = :session_id and pos >= :start and pos < :end
                   and path = '' order by pos desc limit :limit) i) weighed
 where lighter < :bytes
 order by pos desc;

-- messages_at_ends
-- The same of many stretches: a few items of each, the last first.
select nth, pos, body
  from (
select span.nth, i.pos, i.body,
       sum(length(i.body)) over (order by span.nth, i.pos desc) - length(i.body) as lighter
  from unnest(:session_ids::text[], :starts::bigint[], :ends::bigint[]) with ordinality
         as span (session_id, from_pos, upto_pos, nth)
 cross join lateral (
       select pos, body from holdfast.item
        where tenant = :tenant and session_id = span.session_id and pos >= span.from_pos
          and pos < span.upto_pos and path = ''
        order by pos desc limit :limit) i) weighed
 where lighter < :bytes
 order by nth, pos desc;

-- items_after
-- A session's own items from a position on, with their sizes.
select pos, length(body), case when path = '' then body end from holdfast.item
 where tenant = :tenant and session_id = :session_id and pos >= :start order by pos limit :limit;

-- put_step
-- A session is brought forward, if it stands where it was found: its name, and the words of its next items. Of a
-- deleted session they may be gone by now; what is written all the same goes with the rest of it.
with ready as (
  update holdfast.session set indexed_length = :upto, indexed_rev = :rev
   where tenant = :tenant and id = :id and state = :state and not bytes_gone
     and indexed_length = :from_pos and indexed_rev = :was_rev
  returning 1),
chunk as (
  select c.* from ready, (values
    (-1::bigint, -1::bigint, array_to_tsvector(:name::text[])),
    (:from_pos::bigint, :upto::bigint, array_to_tsvector(:words::text[]))) as c (from_pos, upto_pos, words)),
put as (
  insert into holdfast.search_chunk (tenant, session_id, from_pos, upto_pos, words)
  select :tenant, :id, from_pos, upto_pos, words from chunk where length(words) > 0
  on conflict (tenant, session_id, from_pos) do update
    set upto_pos = excluded.upto_pos, words = excluded.words),
dropped as (
  delete from holdfast.search_chunk
   where tenant = :tenant and session_id = :id
     and from_pos in (select from_pos from chunk where length(words) = 0))
select 1 from ready;

-- search_hits
-- Chunks that have all these words.
select session_id, from_pos, upto_pos from holdfast.search_chunk
 where words @@ :words::tsquery and tenant = :tenant limit :limit;

-- forks_of
-- The sessions that read the items of these.
select session_id from holdfast.session_past
 where tenant = :tenant and ancestor = any (:ids::text[]) limit :limit;

-- named_places
-- These sessions as far as they may be listed, from a cursor on, the last active first.
select s.id from holdfast.session s
 where s.tenant = :tenant and s.id = any (:ids::text[]) and s.state = 'live' and s.head > 0
   and (s.active_ms, s.id) < (:before_ms::bigint, :before_id::text)
 order by s.active_ms desc, s.id desc;

-- named_sessions
-- These sessions, the last active first.
select s.{session} from holdfast.session s
 where s.tenant = :tenant and s.id = any (:ids::text[])
 order by s.active_ms desc, s.id desc;
