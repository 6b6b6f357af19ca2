-- What was seen of the clock (`store/expiry.py`), and since when retention knows of a blob: null for one that it has not
-- met yet, 0 for one that an item names. A store that has nothing in it begins with the clock as it is.

create table horizon (
  one integer primary key check (one = 1),
  seen_ms integer not null,
  ran_ms integer not null,
  leaps blob not null
) strict;

insert into horizon (one, seen_ms, ran_ms, leaps)
select 1, unixepoch() * 1000, 0, cast('[]' as blob) where not exists (select 1 from session);

alter table blob add column noticed_ms integer;
create index blob_to_judge on blob (noticed_ms);
