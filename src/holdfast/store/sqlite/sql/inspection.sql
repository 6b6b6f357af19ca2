-- What only SQLite can show: derived rows, and rows whose owner does not exist. Read a page at a time.

-- keys_page
-- Some keys, and the state of the sessions that they mean.
select k.tenant, k.key, k.session_id, s.state
  from (select tenant, key, session_id from session_key
         where (tenant, key) > (:tenant, :after) order by tenant, key limit :limit) k
  left join session s on s.tenant = k.tenant and s.id = k.session_id
 order by k.tenant, k.key;

-- claims_page
-- Some idempotency rows, and the state of their turns.
select i.tenant, i.key, i.turn_id, i.state, t.state
  from (select tenant, key, turn_id, state from idempotency
         where (tenant, key) > (:tenant, :after) order by tenant, key limit :limit) i
  left join turn t on t.tenant = i.tenant and t.turn_id = i.turn_id
 order by i.tenant, i.key;

-- derived_page
-- Some sessions, with what is kept beside them for filters and for retention.
select s.tenant, s.id, s.settings,
       (select json_group_array(json_array(a.name, a.value)) from (
          select name, value from session_attribute
           where tenant = s.tenant and session_id = s.id order by name) a),
       iif(json_valid(cast(s.lineage as text)), (
          select count(*) from json_each(cast(s.lineage as text)) g
           where not exists (
                 select 1 from session_past p
                  where p.tenant = s.tenant and p.ancestor = g.value ->> 'session_id'
                    and p.session_id = s.id)), 0),
       s.bytes_gone and (
          s.state = 'live'
          or exists (select 1 from item where tenant = s.tenant and session_id = s.id)
          or exists (select 1 from turn where tenant = s.tenant and session_id = s.id)
          or exists (select 1 from search_chunk where tenant = s.tenant and session_id = s.id))
  from session s
 where (s.tenant, s.id) > (:tenant, :after) order by s.tenant, s.id limit :limit;

-- turn_owners
-- Some sessions that turns belong to, and whether they exist.
select o.tenant, o.session_id, s.id is not null
  from (select distinct tenant, session_id from turn
         where (tenant, session_id) > (:tenant, :after) order by tenant, session_id limit :limit) o
  left join session s on s.tenant = o.tenant and s.id = o.session_id
 order by o.tenant, o.session_id;

-- item_owners
-- Some sessions that items belong to, and whether they exist.
select o.tenant, o.session_id, s.id is not null
  from (select distinct tenant, session_id from item
         where (tenant, session_id) > (:tenant, :after) order by tenant, session_id limit :limit) o
  left join session s on s.tenant = o.tenant and s.id = o.session_id
 order by o.tenant, o.session_id;

-- state_owners
-- Some sessions that state belongs to, and whether they exist.
select o.tenant, o.session_id, s.id is not null
  from (select distinct tenant, session_id from state
         where (tenant, session_id) > (:tenant, :after) order by tenant, session_id limit :limit) o
  left join session s on s.tenant = o.tenant and s.id = o.session_id
 order by o.tenant, o.session_id;

-- annotation_owners
-- Some sessions that annotations belong to, and whether they exist.
select o.tenant, o.session_id, s.id is not null
  from (select distinct tenant, session_id from annotation
         where (tenant, session_id) > (:tenant, :after) order by tenant, session_id limit :limit) o
  left join session s on s.tenant = o.tenant and s.id = o.session_id
 order by o.tenant, o.session_id;

-- search_owners
-- Some sessions that the search index has words of, and whether they exist.
select o.tenant, o.session_id, s.id is not null
  from (select distinct tenant, session_id from search_chunk
         where (tenant, session_id) > (:tenant, :after) order by tenant, session_id limit :limit) o
  left join session s on s.tenant = o.tenant and s.id = o.session_id
 order by o.tenant, o.session_id;

-- journal_owners
-- Some turns that journals belong to, and whether they exist.
select o.tenant, o.turn_id, t.turn_id is not null
  from (select distinct tenant, turn_id from journal
         where (tenant, turn_id) > (:tenant, :after) order by tenant, turn_id limit :limit) o
  left join turn t on t.tenant = o.tenant and t.turn_id = o.turn_id
 order by o.tenant, o.turn_id;

-- signal_owners
-- Some turns that signals belong to, and whether they exist.
select o.tenant, o.turn_id, t.turn_id is not null
  from (select distinct tenant, turn_id from signal
         where (tenant, turn_id) > (:tenant, :after) order by tenant, turn_id limit :limit) o
  left join turn t on t.tenant = o.tenant and t.turn_id = o.turn_id
 order by o.tenant, o.turn_id;

-- schema
-- What the file has, as it was made; what SQLite makes for itself left out.
select type, name, sql from sqlite_schema where name not like 'sqlite\_%' escape '\' order by type, name;
