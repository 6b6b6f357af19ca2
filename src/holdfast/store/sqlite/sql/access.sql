-- API keys: who may come in.

-- put_api_key
-- A new key; one that is there stays as it is.
insert into api_key ({api_key})
values ({:api_key})
on conflict do nothing;

-- api_key
-- A key by its id.
select {api_key} from api_key where key_id = :key_id;

-- api_keys
-- Some keys, the oldest first, of one tenant or of all.
select {api_key} from api_key
 where key_id > :after and (:tenant is null or tenant = :tenant)
 order by key_id limit :limit;

-- revoke_api_key
-- Take a key back; one that was taken back before keeps its time.
update api_key set revoked_ms = coalesce(revoked_ms, :now_ms) where key_id = :key_id;

-- put_seal_key
-- A new key that seals; one that is there stays as it is.
insert into seal_key ({seal_key}) values ({:seal_key}) on conflict do nothing;

-- seal_keys
-- All keys that seal, the oldest first.
select {seal_key} from seal_key order by key_id;

-- remove_seal_key
-- A key that opens nothing any more.
delete from seal_key where key_id = :key_id;

-- put_grant
-- A remembered approval; one that is there stays as it is.
insert into tool_grant ({tool_grant})
values ({:tool_grant})
on conflict do nothing;

-- grant
-- A remembered approval by its id.
select {tool_grant}
  from tool_grant where tenant = :tenant and grant_id = :grant_id;

-- grants
-- Some remembered approvals of a tenant, the oldest first.
select {tool_grant}
  from tool_grant
 where tenant = :tenant and grant_id > :after
   and (:source_key is null or source_key = :source_key) and (:agent is null or agent = :agent)
   and (not :live or revoked_ms is null)
 order by grant_id limit :limit;

-- revoke_grant
-- Take a remembered approval back; one that was taken back before keeps its time.
update tool_grant set revoked_ms = coalesce(revoked_ms, :now_ms)
 where tenant = :tenant and grant_id = :grant_id;
