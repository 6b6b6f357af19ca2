-- Search. Which words occur in which stretch of a session's items; what they say in which order is read
-- from the items. store/search/matches.py says what a word is, store/operations/search.py how this is kept.

-- How far a session is indexed. One that its row has gone past is in `session_to_index` until it is brought
-- forward; that entry is all that a commit pays for search.
alter table session add column indexed_length integer not null default 0;
alter table session add column indexed_rev integer not null default 0;

create index session_to_index on session (tenant, id)
  where indexed_length <> length or indexed_rev <> meta_rev;

-- Positions `from_pos` to before `upto_pos`; the name of a session is the chunk from -1 to -1.
create table search_chunk (
  id integer primary key,
  tenant text not null,
  session_id text not null,
  from_pos integer not null,
  upto_pos integer not null,
  unique (tenant, session_id, from_pos)
) strict;

-- The words of each chunk, each once, behind a tag that is their tenant's; rowids are those of the chunks.
-- Words come folded and apart by spaces. The tokenizer `ascii` takes them as they are.
create virtual table search_word using fts5 (
  words, tokenize = 'ascii', content = '', contentless_delete = 1, detail = none
);
