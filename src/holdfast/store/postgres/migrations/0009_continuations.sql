-- Turns that go on with an unfinished one: which, and how many retries in a row have done so. A session says at which
-- version it can be continued, and how many retries may. Servers that do not know these columns leave them empty.

alter table holdfast.turn add column continues text collate "C";
alter table holdfast.turn add column links bigint;
alter table holdfast.session add column unfinished bigint;
alter table holdfast.session add column retries_left bigint;

-- Unfinished turns by what their requests are known by, for those that name no session.
create index turn_unfinished on holdfast.turn (tenant, request_hash)
  where state = 'committed' and ended_by <> 'completed';
