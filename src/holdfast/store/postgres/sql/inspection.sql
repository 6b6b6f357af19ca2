-- What only this home can show: derived rows, and rows whose owner does not exist. Read a page at a time.

-- keys_page
-- Some keys, and the state of the sessions that they mean.
select k.tenant, k.key, k.session_id, s.state
  from (select tenant, key, session_id from holdfast.session_key
         where (tenant, key) > (:tenant, :after) order by tenant, key limit :limit) k
  left join holdfast.session s on s.tenant = k.tenant and s.id = k.session_id
 order by k.tenant, k.key;

-- claims_page
-- Some idempotency rows, and the state of their turns.
select i.tenant, i.key, i.turn_id, i.state, t.state
  from (select tenant, key, turn_id, state from holdfast.idempotency
         where (tenant, key) > (:tenant, :after) order by tenant, key limit :limit) i
  left join holdfast.turn t on t.tenant = i.tenant and t.turn_id = i.turn_id
 order by i.tenant, i.key;

-- derived_page
-- Some sessions, with what is kept beside them for filters and for retention.
select s.tenant, s.id, s.settings, s.lineage,
       array(select a.name from holdfast.session_attribute a
              where a.tenant = s.tenant and a.session_id = s.id order by a.name),
       array(select a.value from holdfast.session_attribute a
              where a.tenant = s.tenant and a.session_id = s.id order by a.name),
       array(select p.ancestor from holdfast.session_past p
              where p.tenant = s.tenant and p.session_id = s.id),
       s.bytes_gone and (
          s.state = 'live'
          or exists (select 1 from holdfast.item where tenant = s.tenant and session_id = s.id)
          or exists (select 1 from holdfast.turn where tenant = s.tenant and session_id = s.id)
          or exists (select 1 from holdfast.search_chunk where tenant = s.tenant and session_id = s.id))
  from (select * from holdfast.session
         where (tenant, id) > (:tenant, :after) order by tenant, id limit :limit) s
 order by s.tenant, s.id;

-- turn_owners
-- Some sessions that turns belong to, and whether they exist.
select o.tenant, o.session_id, s.id is not null
  from (select distinct tenant, session_id from holdfast.turn
         where (tenant, session_id) > (:tenant, :after) order by tenant, session_id limit :limit) o
  left join holdfast.session s on s.tenant = o.tenant and s.id = o.session_id
 order by o.tenant, o.session_id;

-- item_owners
-- Some sessions that items belong to, and whether they exist.
select o.tenant, o.session_id, s.id is not null
  from (select distinct tenant, session_id from holdfast.item
         where (tenant, session_id) > (:tenant, :after) order by tenant, session_id limit :limit) o
  left join holdfast.session s on s.tenant = o.tenant and s.id = o.session_id
 order by o.tenant, o.session_id;

-- state_owners
-- Some sessions that state belongs to, and whether they exist.
select o.tenant, o.session_id, s.id is not null
  from (select distinct tenant, session_id from holdfast.state
         where (tenant, session_id) > (:tenant, :after) order by tenant, session_id limit :limit) o
  left join holdfast.session s on s.tenant = o.tenant and s.id = o.session_id
 order by o.tenant, o.session_id;

-- search_owners
-- Some sessions that the search index has words of, and whether they exist.
select o.tenant, o.session_id, s.id is not null
  from (select distinct tenant, session_id from holdfast.search_chunk
         where (tenant, session_id) > (:tenant, :after) order by tenant, session_id limit :limit) o
  left join holdfast.session s on s.tenant = o.tenant and s.id = o.session_id
 order by o.tenant, o.session_id;

-- annotation_owners
-- Some sessions that annotations belong to, and whether they exist.
select o.tenant, o.session_id, s.id is not null
  from (select distinct tenant, session_id from holdfast.annotation
         where (tenant, session_id) > (:tenant, :after) order by tenant, session_id limit :limit) o
  left join holdfast.session s on s.tenant = o.tenant and s.id = o.session_id
 order by o.tenant, o.session_id;

-- journal_owners
-- Some turns that journals belong to, and whether they exist.
select o.tenant, o.turn_id, t.turn_id is not null
  from (select distinct tenant, turn_id from holdfast.journal
         where (tenant, turn_id) > (:tenant, :after) order by tenant, turn_id limit :limit) o
  left join holdfast.turn t on t.tenant = o.tenant and t.turn_id = o.turn_id
 order by o.tenant, o.turn_id;

-- signal_owners
-- Some turns that signals belong to, and whether they exist.
select o.tenant, o.turn_id, t.turn_id is not null
  from (select distinct tenant, turn_id from holdfast.signal
         where (tenant, turn_id) > (:tenant, :after) order by tenant, turn_id limit :limit) o
  left join holdfast.turn t on t.tenant = o.tenant and t.turn_id = o.turn_id
 order by o.tenant, o.turn_id;
