-- Turns that go on with an unfinished one: which, and how many retries in a row have done so. A session says at which
-- version it can be continued, and how many retries may. Servers that do not know these columns leave them empty.

alter table @turn add column continues {name};
alter table @turn add column links {number};
alter table @session add column unfinished {number};
alter table @session add column retries_left {number};

-- Unfinished turns by what their requests are known by, for those that name no session.
create index turn_unfinished on @turn (tenant, request_hash)
  where state = 'committed' and ended_by <> 'completed';
