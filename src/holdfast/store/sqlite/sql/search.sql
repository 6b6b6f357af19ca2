-- Search: how far sessions are indexed, and where words occur.

-- sessions_behind
-- Some sessions that are not indexed up to their ends, and how they stand.
select tenant, id, state, length, meta_rev, indexed_length, indexed_rev,
       iif(title <> '', title, opening)
  from session indexed by session_to_index
 where indexed_length <> length or indexed_rev <> meta_rev limit :limit;

-- tenants_behind
-- Sessions of a tenant that are not indexed up to their ends: from where to where.
select id, indexed_length, length
  from session indexed by session_to_index
 where tenant = :tenant and id > '' and (indexed_length <> length or indexed_rev <> meta_rev)
 limit :limit;

-- behind
-- How a session stands now, unless nothing is left of it.
select tenant, id, state, length, meta_rev, indexed_length, indexed_rev,
       iif(title <> '', title, opening)
  from session where tenant = :tenant and id = :id and bytes_gone = 0;

-- mark_indexed
-- A session is indexed up to here.
update session set indexed_length = :length, indexed_rev = :rev where tenant = :tenant and id = :id;

-- messages_in
-- Items of a stretch that no sub-agent said, the last first.
select pos, body from item
 where tenant = :tenant and session_id = :session_id and pos >= :start and pos < :end and path = ''
 order by pos desc;

-- items_after
-- A session's own items from a position on, with their sizes.
select pos, length(body), iif(path = '', body, null) from item
 where tenant = :tenant and session_id = :session_id and pos >= :start order by pos limit :limit;

-- has_items
-- Whether a session has items of its own from a position on.
select exists (
  select 1 from item where tenant = :tenant and session_id = :session_id and pos >= :start);

-- insert_chunk
-- A stretch of a session that is about to be indexed.
insert into search_chunk (tenant, session_id, from_pos, upto_pos)
values (:tenant, :session_id, :start, :end) returning id;

-- insert_words
-- The words of a chunk.
insert into search_word (rowid, words) values (:id, :words);

-- chunk_at
-- The chunk that begins at a position.
select id from search_chunk
 where tenant = :tenant and session_id = :session_id and from_pos = :start;

-- delete_chunk
-- A chunk whose words are gone.
delete from search_chunk where id = :id;

-- delete_words
-- The words of a chunk.
delete from search_word where rowid = :id;

-- search_hits
-- Chunks that have all these words.
select c.session_id, c.from_pos, c.upto_pos
  from search_word cross join search_chunk c on c.id = search_word.rowid
 where search_word match :words and c.tenant = :tenant limit :limit;

-- forks_of
-- The sessions that read the items of these.
select p.session_id
  from json_each(:ids) holder
  cross join session_past p on p.tenant = :tenant and p.ancestor = holder.value
 limit :limit;

-- named_places
-- These sessions as far as they may be listed, from a cursor on, the last active first.
select s.id
  from json_each(:ids) named cross join session s on s.tenant = :tenant and s.id = named.value
 where s.state = 'live' and s.head > 0 and (s.active_ms, s.id) < (:before_ms, :before_id)
 order by s.active_ms desc, s.id desc;
