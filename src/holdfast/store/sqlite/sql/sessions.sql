-- Sessions as a whole: turns, listing.

-- turns
-- A session's own turns, newest first: by the version that they made, or that they began from; those that wait come last.
with placed as (
  select *, case state when 'committed' then seq when 'queued' then 9223372036854775807 else base_head end as place,
         case state when 'committed' then 0 when 'discarded' then 1 else 2 end as rank,
         case state when 'queued' then began_ms else 0 end as came
    from turn where tenant = :tenant and session_id = :session_id)
select {turn}
  from placed
 where :before is null
    or (place, rank, came, turn_id) < (select place, rank, came, turn_id from placed where turn_id = :before)
 order by place desc, rank desc, came desc, turn_id desc limit :limit;

-- listed_sessions
-- Sessions by last activity, from a cursor on, as far as they fit the filter.
select {session}
  from session s
 where tenant = :tenant and state = 'live' and head > 0 and anonymous = :anonymous
   and (active_ms, id) < (:before_ms, :before_id)
   and (:agent is null or agent = :agent)
   and (:active_from_ms is null or active_ms >= :active_from_ms)
   and (:active_before_ms is null or active_ms < :active_before_ms)
   and (:busy is null or (open_turn is not null) = :busy)
   and (:key_prefix is null or exists (
         select 1 from session_key k
          where k.tenant = s.tenant and k.session_id = s.id
            and k.key >= :key_prefix and k.key < :key_prefix || char(127)))
   and not exists (
         select 1 from json_each(:attributes) wanted
          where not exists (
                select 1 from session_attribute a
                 where a.tenant = s.tenant and a.session_id = s.id
                   and a.name = wanted.value ->> 0 and a.value = wanted.value ->> 1))
 order by active_ms desc, id desc limit :limit;

-- keyed_sessions
-- Some sessions that a key with this beginning means.
select distinct session_id from session_key
 where tenant = :tenant and key >= :prefix and key < :prefix || char(127) limit :limit;

-- next_tenant
-- The tenant that comes after another, by jumping along indexes: one with sessions, memories or remembered approvals.
select tenant from (
  select min(tenant) as tenant from session where tenant > :after
  union all select min(tenant) from memory where tenant > :after
  union all select min(tenant) from tool_grant where tenant > :after)
 where tenant is not null order by tenant limit 1;

-- counts
-- What is there, in numbers.
select (select count(*) from session where state = 'live'),
       (select count(*) from session where open_turn is not null),
       (select count(*) from turn where state = 'queued'),
       (select count(*) from turn where state = 'committed'),
       (select count(*) from turn where state = 'discarded'),
       (select count(*) from item);

-- all_memories
-- Some memories of a tenant, by agent and id.
select {memory} from memory
 where tenant = :tenant and (agent, memory_id) > (:agent, :after)
 order by agent, memory_id limit :limit;
