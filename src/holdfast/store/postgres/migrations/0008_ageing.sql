-- What was seen of the clock (`store/expiry.py`), and since when retention knows of a blob: null for one that it has not
-- met yet, 0 for one that an item names. A store that has nothing in it begins with the clock as it is.

create table holdfast.horizon (
  one integer primary key check (one = 1),
  seen_ms bigint not null,
  ran_ms bigint not null,
  leaps bytea not null
);

insert into holdfast.horizon (one, seen_ms, ran_ms, leaps)
select 1, (extract(epoch from clock_timestamp()) * 1000)::bigint, 0, '[]'::bytea
 where not exists (select from holdfast.session);

alter table holdfast.blob add column noticed_ms bigint;
create index blob_to_judge on holdfast.blob (noticed_ms);
