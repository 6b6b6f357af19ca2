-- Search. Which words occur in which stretch of a session's items; what they say in which order is read from the
-- items. store/search/matches.py says what a word is, store/operations/search.py how this is kept.

-- How far a session is indexed. One that its row has gone past is in `session_to_index` until it is brought
-- forward; that entry is all that a commit pays for search. Beginning a turn does not touch it.
alter table holdfast.session add column indexed_length bigint not null default 0;
alter table holdfast.session add column indexed_rev bigint not null default 0;

create index session_to_index on holdfast.session (tenant, id)
  where indexed_length <> length or indexed_rev <> meta_rev;

-- Positions `from_pos` to before `upto_pos`; the name of a session is the chunk from -1 to -1. The words are folded
-- and stand behind a tag that is their tenant's; they have no positions and no configuration.
create table holdfast.search_chunk (
  tenant text collate "C" not null,
  session_id text collate "C" not null,
  from_pos bigint not null,
  upto_pos bigint not null,
  words tsvector not null,
  primary key (tenant, session_id, from_pos)
);

-- Whoever indexes can wait, whoever searches should not look through a list of what is still to be sorted in.
create index search_chunk_words on holdfast.search_chunk using gin (words) with (fastupdate = off);
