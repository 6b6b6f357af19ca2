-- Lists: of a session's turns, of sessions, memories and tenants.

-- turns
-- A session's own turns, newest first: by the version that they made, or that they began from; queued turns come last.
with placed as (
  select t.*, case t.state when 'committed' then t.seq when 'queued' then 9223372036854775807 else t.base_head end as place,
         case t.state when 'committed' then 0 when 'discarded' then 1 else 2 end as rank,
         case t.state when 'queued' then t.began_ms else 0 end as came
    from @turn t where t.tenant = :tenant and t.session_id = :session_id)
select p.{turn} from placed p
 where :before::text is null
    or (p.place, p.rank, p.came, p.turn_id) < (select b.place, b.rank, b.came, b.turn_id from placed b where b.turn_id = :before)
 order by p.place desc, p.rank desc, p.came desc, p.turn_id desc limit :limit;

-- recent_turns
-- A tenant's turns in every state, the newest first, from before a turn on.
select t.{turn} from @turn t
 where t.tenant = :tenant and t.turn_id < :before::text
 order by t.turn_id desc limit :limit;

-- playing_turns
-- A tenant's open turns, the oldest first, each with the node that plays it.
select t.session_id, t.turn_id, s.lease_node
  from @session s {indexed session_held}
  {then} @turn t on t.tenant = s.tenant and t.session_id = s.id and t.turn_id = s.open_turn
 where t.state = 'open' and s.open_turn is not null and s.tenant = :tenant
 order by t.turn_id limit :limit;

-- asking_turns
-- The last turns of the given sessions, if they were played here and a call of theirs waits for an approval.
select t.{turn}
  from {each ids} {then} @session s on s.tenant = :tenant and s.id = ids.value
  join @turn t on t.tenant = s.tenant and t.session_id = s.id and t.seq = s.head
 where s.state = 'live' and s.open_turn is null
   and t.seq is not null and t.ended_by = 'completed' and t.lease_token > 0
   and exists (
         select 1 from @item i
          where i.tenant = s.tenant and i.session_id = s.id and i.pos >= t.start and i.pos < t."end"
            and i.path = '' and {instr}(i.body, :waiting) > 0);

-- unfinished_turns
-- The last turns of the given sessions, if they broke off and can be continued.
select t.{turn}
  from {each ids} {then} @session s on s.tenant = :tenant and s.id = ids.value
  join @turn t on t.tenant = s.tenant and t.session_id = s.id and t.seq = s.head
 where s.state = 'live' and s.unfinished = s.head and t.seq is not null;

-- discarded_turns
-- A tenant's turns that were discarded since a time, the newest first.
select t.{turn} from @turn t {indexed turn_discarded}
 where t.state = 'discarded' and t.ended_ms >= :since_ms::bigint and t.tenant = :tenant and t.ended_by {in ends}
 order by t.ended_ms desc, t.turn_id desc limit :limit;

-- listed_sessions
-- Sessions that fit the filter, by last activity, from a place on.
select s.{session}
  from @session s
 where s.tenant = :tenant and s.state = 'live' and s.head > 0 and s.anonymous = :anonymous
   and (s.active_ms, s.id) < (:before_ms::bigint, :before_id::text)
   and (:agent::words is null or s.agent = :agent)
   and (:active_from_ms::bigint is null or s.active_ms >= :active_from_ms)
   and (:active_before_ms::bigint is null or s.active_ms < :active_before_ms)
   and (:busy::boolean is null or (s.open_turn is not null) = :busy)
   and (:key_first::text is null or exists (
         select 1 from @session_key k
          where k.tenant = s.tenant and k.session_id = s.id and k.key >= :key_first and k.key < :key_end))
   and not exists (
         select 1 from {rows attributes name::words value::words}
          where not exists (
                select 1 from @session_attribute a
                 where a.tenant = s.tenant and a.session_id = s.id
                   and a.name = attributes.name and a.value = attributes.value))
 order by s.active_ms desc, s.id desc limit :limit;

-- keyed_sessions
-- The sessions of the keys that lie between two bounds. In the order of the keys, PostgreSQL finds them side by side.
select session_id from @session_key
 where tenant = :tenant and key >= :key_first and key < :key_end order by key limit :limit;

-- named_places
-- Those of the given sessions that may be listed, from a place on. It is unordered, so that SQLite can read it around a
-- damaged page; so is the next one.
select s.id, s.active_ms from {each ids} {then} @session s on s.tenant = :tenant and s.id = ids.value
 where s.state = 'live' and s.head > 0
   and (s.active_ms, s.id) < (:before_ms::bigint, :before_id::text);

-- named_sessions
-- The given sessions.
select s.{session} from {each ids} {then} @session s on s.tenant = :tenant and s.id = ids.value;

-- keys_of
-- The keys that name the given sessions.
select k.{session_key} from @session_key k {indexed session_key_by_session}
 where k.tenant = :tenant and k.session_id {in ids}
 order by k.key;

-- all_memories
-- Some memories of a tenant, by agent and id.
select m.{memory} from @memory m
 where m.tenant = :tenant and (m.agent, m.memory_id) > (:agent::words, :after::words)
 order by m.agent, m.memory_id limit :limit;

-- next_tenant
-- The tenant that comes after another, by jumping along indexes: one with sessions, memories or remembered approvals.
select tenant from (
  select min(tenant) as tenant from @session where tenant > :after
  union all select min(tenant) from @memory where tenant > :after
  union all select min(tenant) from @tool_grant where tenant > :after) found
 where tenant is not null order by tenant limit 1;

-- sessions_with_turns
-- The ids of a tenant's sessions, read from their turns.
select distinct session_id from @turn {indexed turn_by_session}
 where tenant = :tenant and session_id > :after order by session_id limit :limit;

-- sessions_with_items
-- The ids of a tenant's sessions, read from their items.
select distinct session_id from @item
 where tenant = :tenant and session_id > :after order by session_id limit :limit;

-- sessions_with_keys
-- The ids of a tenant's sessions, read from their keys.
select distinct session_id from @session_key {indexed session_key_by_session}
 where tenant = :tenant and session_id > :after order by session_id limit :limit;

-- sessions_with_past
-- The ids of a tenant's forks, read from what they are known to read.
select distinct session_id from @session_past
 where tenant = :tenant and session_id > :after order by session_id limit :limit;

-- next_tenant_with_turns
-- The tenant that comes after another and has turns.
select tenant from @turn {indexed turn_by_session} where tenant > :after order by tenant limit 1;

-- counts
-- Counts of the store's content.
select (select count(*) from @session where state = 'live'),
       (select count(*) from @session where open_turn is not null),
       (select count(*) from @turn where state = 'queued'),
       (select count(*) from @turn where state = 'committed'),
       (select count(*) from @turn where state = 'discarded'),
       (select count(*) from @item),
       {size};

-- family_turns
-- The turns of a family that have one of these digests, or that the same request has begun, the newest first.
select t.turn_id, t.session_id, t.state, t.seq, t.agent, t.request_hash, t.answer, t.prefix, t.answer_id, t.ended_by,
       s.head, s.source_key, s.entry_agent
  from (select t.turn_id from {each digests} {then} @turn t {indexed turn_by_answer}
            on t.tenant = :tenant and t.family = :family and t.answer = {bytes digests.value}
        union select t.turn_id from {each digests} {then} @turn t {indexed turn_by_prefix}
            on t.tenant = :tenant and t.family = :family and t.prefix = {bytes digests.value}
        union select t.turn_id from {each digests} {then} @turn t {indexed turn_by_answer_id}
            on t.tenant = :tenant and t.family = :family and t.answer_id = {bytes digests.value}
        union select t.turn_id from @turn t {indexed turn_by_request}
         where t.tenant = :tenant and t.family = :family and t.request_hash = :request_hash) found
  {then} @turn t on t.tenant = :tenant and t.turn_id = found.turn_id
  {then} @session s on s.tenant = t.tenant and s.id = t.session_id and s.state = 'live'
 order by t.turn_id desc limit :limit;

-- family_lines
-- The lines of a family that are not deleted, the last active first.
select s.{session} from @session s {indexed session_by_family}
 where s.tenant = :tenant and s.family = :family and s.state = 'live'
 order by s.active_ms desc, s.id desc limit :limit;
