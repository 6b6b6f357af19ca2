-- The first tables. `store/rows.py` says what each row means, docs/reference/store.md how they hang together.
-- Tables with large values keep their rowid: rows then go to the end of the table, whoever writes them,
-- so that a batch of many sessions fills the same pages.

create table node (
  slot integer primary key autoincrement,
  node_id text not null unique,
  ttl_ms integer not null,
  since_ms integer not null,
  expires_ms integer not null
) strict;

create table session (
  tenant text not null,
  id text not null,
  head integer not null,
  length integer not null,
  link blob not null,
  lease_token integer not null,
  lease_nonce text not null,
  lease_node text,
  open_turn text,
  source_key text not null,
  entry_agent text not null,
  agent text not null,
  lineage blob not null,
  settings blob not null,
  meta_rev integer not null,
  summary_rev integer not null,
  title text not null,
  opening text not null,
  state text not null check (state in ('live', 'deleted')),
  anonymous integer not null,
  created_ms integer not null,
  active_ms integer not null,
  bytes_gone integer not null default 0,
  primary key (tenant, id)
) strict, without rowid;

create index session_listed on session (tenant, anonymous, active_ms, id)
  where state = 'live' and head > 0;
create index session_held on session (lease_node, tenant, id) where open_turn is not null;
create index session_to_clear on session (tenant, id) where state = 'deleted' and bytes_gone = 0;
create index session_anonymous on session (active_ms) where anonymous = 1 and state = 'live';

create table session_key (
  tenant text not null,
  key text not null,
  session_id text not null,
  generation integer not null,
  primary key (tenant, key)
) strict, without rowid;

create index session_key_by_session on session_key (tenant, session_id, key);

create table session_attribute (
  tenant text not null,
  session_id text not null,
  name text not null,
  value text not null,
  primary key (tenant, session_id, name)
) strict, without rowid;

-- Which sessions read another one's items: a deleted session's bytes stay as long as a live one does.
create table session_past (
  tenant text not null,
  ancestor text not null,
  session_id text not null,
  primary key (tenant, ancestor, session_id)
) strict, without rowid;

create table turn (
  tenant text not null,
  turn_id text not null,
  session_id text not null,
  base_head integer not null,
  state text not null check (state in ('queued', 'open', 'committed', 'discarded')),
  seq integer,
  ended_by text,
  detail text not null,
  attempt integer not null,
  retry_of text,
  client_attempt integer not null,
  lease_token integer not null,
  agent text not null,
  source_digest text not null,
  request_hash blob not null,
  replayable integer not null,
  start integer not null,
  "end" integer not null,
  rev integer not null,
  changes blob not null,
  link blob not null,
  usage blob not null,
  acked integer not null,
  began_ms integer not null,
  ended_ms integer not null,
  unique (tenant, turn_id)
) strict;

create index turn_by_session on turn (tenant, session_id, turn_id);
create unique index turn_by_seq on turn (tenant, session_id, seq) where seq is not null;
create index turn_discarded on turn (ended_ms) where state = 'discarded';
create index turn_replayable on turn (ended_ms) where replayable = 1;

create table journal (
  tenant text not null,
  turn_id text not null,
  n integer not null,
  token integer not null,
  records blob not null,
  unique (tenant, turn_id, n)
) strict;

create table item (
  tenant text not null,
  session_id text not null,
  pos integer not null,
  turn_id text not null,
  path text not null,
  body blob not null,
  unique (tenant, session_id, pos)
) strict;

create table state (
  tenant text not null,
  session_id text not null,
  name text not null,
  seq integer not null,
  value text not null,
  unique (tenant, session_id, seq, name)
) strict;

create table memory (
  tenant text not null,
  agent text not null,
  memory_id text not null,
  text text not null,
  turn_id text not null,
  at_ms integer not null,
  unique (tenant, agent, memory_id)
) strict;

create table annotation (
  tenant text not null,
  session_id text not null,
  rev integer not null,
  item text,
  patch blob not null,
  at_ms integer not null,
  unique (tenant, session_id, rev)
) strict;

create table blob (
  tenant text not null,
  session_id text not null,
  digest text not null,
  bytes blob not null,
  unique (tenant, session_id, digest)
) strict;

create table idempotency (
  tenant text not null,
  key text not null,
  request_hash blob not null,
  turn_id text not null,
  state text not null check (state in ('running', 'done', 'failed')),
  expires_ms integer not null,
  primary key (tenant, key)
) strict, without rowid;

create index idempotency_by_turn on idempotency (tenant, turn_id);
create index idempotency_to_prune on idempotency (expires_ms) where state <> 'running';

create table signal (
  tenant text not null,
  turn_id text not null,
  n integer not null,
  kind text not null check (kind in ('cancel', 'interrupt', 'steer')),
  payload blob not null,
  consumed integer not null,
  at_ms integer not null,
  primary key (tenant, turn_id, n)
) strict, without rowid;
