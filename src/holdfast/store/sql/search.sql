-- Search: how far sessions are indexed, which chunks have which words, and the items in them.

-- sessions_behind
-- Some sessions that are not indexed up to their ends. PostgreSQL's planner assumes that nearly all sessions are such,
-- and would scan the table for the first ones; in the order of the index, it uses the index.
select tenant, id, state, length, meta_rev, indexed_length, indexed_rev,
       case when title <> '' then title else opening end
  from @session {by}
 where (indexed_length <> length or indexed_rev <> meta_rev) and {which};

-- tenants_behind
-- A tenant's sessions that are not indexed up to their ends, and the positions that are missing.
select id, indexed_length, length
  from @session {indexed session_to_index}
 where tenant = :tenant and id > '' and (indexed_length <> length or indexed_rev <> meta_rev)
 order by id limit :limit;

-- items_after
-- A session's own items from a position on, with their sizes.
select pos, length(body), case when path = '' then body end from @item
 where tenant = :tenant and session_id = :session_id and pos >= :start order by pos limit :limit;

-- search_hits
-- Chunks that have all these words.
select c.session_id, c.from_pos, c.upto_pos from {found words} and c.tenant = :tenant limit :limit;

-- forks_of
-- The sessions that read the items of these.
select p.session_id from @session_past p
 where p.tenant = :tenant and p.ancestor {in ids} limit :limit;

-- folded_among
-- Those of the given sessions that are folded lines of a family.
select s.id, s.family from @session s
 where s.tenant = :tenant and s.id {in ids}
   and s.family is not null and s.anonymous = :yes and s.state = 'live' and s.head > 0;

-- listed_lines
-- The lines of these families that lists show.
select s.id, s.family from @session s {indexed session_by_family}
 where s.tenant = :tenant and s.family {in families}
   and s.anonymous = :no and s.state = 'live' and s.head > 0;

-- folded_lines
-- Some lines of a family that lists fold away, the newest first, from before an id on.
select s.{session} from @session s {indexed session_by_family}
 where s.tenant = :tenant and s.family = :family and s.id < :before
   and s.anonymous = :yes and s.state = 'live' and s.head > 0
 order by s.id desc limit :limit;

-- messages_in
-- The conversation's own items in some stretches (none of sub-agents), the last first, until their sizes add up to the
-- given bytes. Sizes are computed without reading the bodies.
select weighed.nth, i.pos, i.body
  from (select spans.nth, m.session_id, m.pos,
               sum(length(m.body)) over (order by spans.nth, m.pos desc) - length(m.body) as lighter
          from {rows spans session_id::text first::bigint upto::bigint}
          {then} @item m on m.tenant = :tenant and m.session_id = spans.session_id
           and m.pos >= spans.first and m.pos < spans.upto and m.path = '') weighed
  {then} @item i on i.tenant = :tenant and i.session_id = weighed.session_id and i.pos = weighed.pos
 where weighed.lighter < :bytes
 order by weighed.nth, i.pos desc;

-- indexed_upto
-- How far a live session is indexed, and how long it is.
select length, meta_rev, indexed_length, indexed_rev, case when title <> '' then title else opening end
  from @session where tenant = :tenant and id = :session_id and state = 'live';

-- chunks_of
-- All chunks of a session.
select session_id, from_pos, upto_pos from @search_chunk
 where tenant = :tenant and session_id = :session_id order by from_pos;

-- chunk_with
-- A chunk, if it has all these words.
select c.session_id, c.from_pos, c.upto_pos from {found words}
   and c.tenant = :tenant and c.session_id = :session_id and c.from_pos = :start;
