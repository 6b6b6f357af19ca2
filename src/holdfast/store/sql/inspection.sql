-- What `verify` looks at beside the sessions themselves: what leads to them, what is derived from them, and rows whose
-- owner does not exist. Read a page at a time.

-- keys_page
-- Some keys, and the state of the sessions that they mean.
select k.{session_key}, k.proof, s.state, s.proof
  from @session_key k left join @session s on s.tenant = k.tenant and s.id = k.session_id
 where (k.tenant, k.key) > (:tenant, :key) order by k.tenant, k.key limit :limit;

-- claims_page
-- Some idempotency rows, their turns, a discarded turn that was to continue each, and whether a steered one was heard.
select i.tenant, i.key, i.turn_id, i.state, i.expires_ms, i.steer, i.request_hash, i.proof, t.state, t.proof, t.ended_ms,
       (select max(c.turn_id) from @turn c
         where c.tenant = t.tenant and c.session_id = t.session_id and c.continues = t.turn_id
           and c.state = 'discarded' and c.proof is not null),
       (select g.consumed from @signal g where g.tenant = i.tenant and g.turn_id = i.turn_id and g.n = i.steer)
  from @idempotency i left join @turn t on t.tenant = i.tenant and t.turn_id = i.turn_id
 where (i.tenant, i.key) > (:tenant, :key) order by i.tenant, i.key limit :limit;

-- sessions_page
-- Some sessions, and whether their bytes are said to be gone and are not.
select s.tenant, s.id, s.settings, s.lineage,
       s.bytes_gone = {true} and (
          s.state = 'live'
          or exists (select 1 from @item where tenant = s.tenant and session_id = s.id)
          or exists (select 1 from @turn where tenant = s.tenant and session_id = s.id)
          or exists (select 1 from @search_chunk where tenant = s.tenant and session_id = s.id))
  from (select tenant, id, settings, lineage, bytes_gone, state from @session
         where (tenant, id) > (:tenant, :after) order by tenant, id limit :limit) s
 order by s.tenant, s.id;

-- attributes_between
-- The attributes by which lists find the sessions of a page.
select {session_attribute} from @session_attribute
 where (tenant, session_id) > (:tenant, :after) and (tenant, session_id) <= (:last_tenant, :last)
 order by tenant, session_id, name;

-- pasts_between
-- Which sessions of a page are known to read some others as their past.
select p.ancestor, p.session_id
  from {each ids} {then} @session_past p on p.tenant = :tenant and p.ancestor = ids.value
 where p.session_id >= :first and p.session_id <= :last;

-- owners_page
-- Some sessions or turns that rows of a table belong to, and whether they exist.
select o.tenant, o.{by},
       exists (select 1 from @{owners} x where x.tenant = o.tenant and x.{by_id} = o.{by})
  from (select distinct tenant, {by} from @{rows}
         where (tenant, {by}) > (:tenant, :owner) order by tenant, {by} limit :limit) o
 order by o.tenant, o.{by};

-- rows_page
-- Some rows of a table, as they are stored, with their proofs.
select {columns} from @{rows} where {after} order by {by} limit :limit;

-- memories_page
-- Some memories, and what the turns have changed that made them.
select m.{memory}, t.changes, t.ended_ms
  from @memory m left join @turn t on t.tenant = m.tenant and t.turn_id = m.turn_id
 where (m.tenant, m.agent, m.memory_id) > (:tenant::text, :agent::words, :memory_id::words)
 order by m.tenant, m.agent, m.memory_id limit :limit;
