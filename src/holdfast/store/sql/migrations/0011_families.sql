-- Families of lines: the sessions that one name stands for, for clients that own their history. A session says which
-- family it belongs to, a turn by which digests a request of that family finds it, a name how its line came by it. Servers
-- that do not know these columns leave them empty.

alter table @session add column family {name};
alter table @session_key add column standing {name};
alter table @turn add column family {name};
alter table @turn add column answer {blob};
alter table @turn add column prefix {blob};
alter table @turn add column answer_id {blob};

-- The part of a request that names the conversation, for clients of this API key that can send no header.
alter table @api_key add column conversation_from {name};

create index session_by_family on @session (tenant, family, id) where family is not null;
create index turn_by_answer on @turn (tenant, family, answer) where family is not null and answer is not null;
create index turn_by_prefix on @turn (tenant, family, prefix) where family is not null and prefix is not null;
create index turn_by_answer_id on @turn (tenant, family, answer_id)
  where family is not null and answer_id is not null;
create index turn_by_request on @turn (tenant, family, request_hash) where family is not null;

-- Anonymous lines that expire. Lines of a family do not: they live as long as the line that its name means.
sqlite| create index session_expiring on session (active_ms) where anonymous = 1 and state = 'live' and family is null;
postgres| create index session_expiring on holdfast.session (active_ms)
postgres|   where anonymous and state = 'live' and family is null;
