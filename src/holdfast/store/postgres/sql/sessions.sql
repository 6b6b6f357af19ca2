-- Sessions as a whole: turns, listing.

-- all_memories
-- Some memories of a tenant, by agent and id.
select m.{memory} from holdfast.memory m
 where m.tenant = :tenant and (m.agent, m.memory_id) > (:agent::bytea, :after::bytea)
 order by m.agent, m.memory_id limit :limit;

-- session_keys
-- The keys that mean these sessions.
select k.{session_key} from holdfast.session_key k
 where k.tenant = :tenant and k.session_id = any (:session_ids::text[]) order by k.key;

-- turns
-- A session's own turns, newest first: by the version that they made, or that they began from; those that wait come last.
with placed as (
  select t.*, case t.state when 'committed' then t.seq when 'queued' then 9223372036854775807 else t.base_head end as place,
         case t.state when 'committed' then 0 when 'discarded' then 1 else 2 end as rank,
         case t.state when 'queued' then t.began_ms else 0 end as came
    from holdfast.turn t where t.tenant = :tenant and t.session_id = :session_id)
select p.{turn} from placed p
 where :before::text is null
    or (p.place, p.rank, p.came, p.turn_id) < (select b.place, b.rank, b.came, b.turn_id from placed b where b.turn_id = :before)
 order by p.place desc, p.rank desc, p.came desc, p.turn_id desc limit :limit;

-- listed_sessions
-- Sessions by last activity, from a cursor on, as far as they fit the filter.
select s.{session}
  from holdfast.session s
 where s.tenant = :tenant and s.state = 'live' and s.head > 0 and s.anonymous = :anonymous
   and (s.active_ms, s.id) < (:before_ms::bigint, :before_id::text)
   and (:agent::bytea is null or s.agent = :agent)
   and (:active_from_ms::bigint is null or s.active_ms >= :active_from_ms)
   and (:active_before_ms::bigint is null or s.active_ms < :active_before_ms)
   and (:busy::boolean is null or (s.open_turn is not null) = :busy)
   and (:key_prefix::text is null or exists (
         select 1 from holdfast.session_key k
          where k.tenant = s.tenant and k.session_id = s.id
            and k.key >= :key_prefix and k.key < :key_prefix || chr(127)))
   and not exists (
         select 1 from unnest(:names::bytea[], :values::bytea[]) as wanted (name, value)
          where not exists (
                select 1 from holdfast.session_attribute a
                 where a.tenant = s.tenant and a.session_id = s.id
                   and a.name = wanted.name and a.value = wanted.value))
 order by s.active_ms desc, s.id desc limit :limit;

-- keyed_sessions
-- The sessions that some keys with this beginning mean. In their order, the planner finds them side by side.
select session_id from holdfast.session_key
 where tenant = :tenant and key >= :prefix and key < :prefix || chr(127) order by key limit :limit;

-- next_tenant
-- The tenant that comes after another, by jumping along indexes: one with sessions, memories or remembered approvals.
select tenant from (
  select min(tenant) as tenant from holdfast.session where tenant > :after
  union all select min(tenant) from holdfast.memory where tenant > :after
  union all select min(tenant) from holdfast.tool_grant where tenant > :after) found
 where tenant is not null order by tenant limit 1;

-- counts
-- What is there, in numbers.
select (select count(*) from holdfast.session where state = 'live'),
       (select count(*) from holdfast.session where open_turn is not null),
       (select count(*) from holdfast.turn where state = 'queued'),
       (select count(*) from holdfast.turn where state = 'committed'),
       (select count(*) from holdfast.turn where state = 'discarded'),
       (select count(*) from holdfast.item),
       (select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c
          join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'holdfast' and c.relkind = 'r');
