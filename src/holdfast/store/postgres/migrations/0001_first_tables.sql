-- The first tables. `store/rows.py` says what each row means, docs/reference/store.md how they hang together.
--
-- Names of ours and of clients (ids, keys, tenants, states) are text that sorts by bytes, as in every home.
-- What people and models say is UTF-8 in bytea: PostgreSQL's text cannot hold U+0000, and they may say it.
--
-- `session.stamp` grows with every write to a session, its open turn, that turn's journal or its signals. Whoever
-- writes names the stamp that it has read: so a decision holds when it is written, and no lock outlives a statement.

create table holdfast.node (
  node_id text collate "C" primary key,
  ttl_ms bigint not null,
  since_ms bigint not null,
  expires_ms bigint not null,
  slot bigint not null default 0
) with (fillfactor = 50);

-- Room in the pages, and neither leases nor stamps in an index: most updates of a session then stay in its page
-- and touch no index (HOT). Who holds what is found by way of the open turns.
create table holdfast.session (
  tenant text collate "C" not null,
  id text collate "C" not null,
  head bigint not null,
  length bigint not null,
  link bytea not null,
  lease_token bigint not null,
  lease_nonce text not null,
  lease_node text collate "C",
  open_turn text collate "C",
  source_key bytea not null,
  entry_agent bytea not null,
  agent bytea not null,
  lineage bytea not null,
  settings bytea not null,
  meta_rev bigint not null,
  summary_rev bigint not null,
  title bytea not null,
  opening bytea not null,
  state text collate "C" not null check (state in ('live', 'deleted')),
  anonymous boolean not null,
  created_ms bigint not null,
  active_ms bigint not null,
  stamp bigint not null default 1,
  bytes_gone boolean not null default false,
  primary key (tenant, id)
) with (fillfactor = 70);

create index session_listed on holdfast.session (tenant, anonymous, active_ms, id)
  where state = 'live' and head > 0;
create index session_to_clear on holdfast.session (tenant, id) where state = 'deleted' and not bytes_gone;
create index session_anonymous on holdfast.session (active_ms) where anonymous and state = 'live';

create table holdfast.session_key (
  tenant text collate "C" not null,
  key text collate "C" not null,
  session_id text collate "C" not null,
  generation bigint not null,
  primary key (tenant, key)
);

create index session_key_by_session on holdfast.session_key (tenant, session_id, key);

create table holdfast.session_attribute (
  tenant text collate "C" not null,
  session_id text collate "C" not null,
  name bytea not null,
  value bytea not null,
  primary key (tenant, session_id, name)
);

-- Which sessions read another one's items: a deleted session's bytes stay as long as a live one does.
create table holdfast.session_past (
  tenant text collate "C" not null,
  ancestor text collate "C" not null,
  session_id text collate "C" not null,
  primary key (tenant, ancestor, session_id)
);

create table holdfast.turn (
  tenant text collate "C" not null,
  turn_id text collate "C" not null,
  session_id text collate "C" not null,
  base_head bigint not null,
  state text collate "C" not null check (state in ('queued', 'open', 'committed', 'discarded')),
  seq bigint,
  ended_by text collate "C",
  detail bytea not null,
  attempt bigint not null,
  retry_of text collate "C",
  client_attempt bigint not null,
  lease_token bigint not null,
  agent bytea not null,
  source_digest bytea not null,
  request_hash bytea not null,
  replayable boolean not null,
  start bigint not null,
  "end" bigint not null,
  rev bigint not null,
  changes bytea not null,
  link bytea not null,
  usage bytea not null,
  acked boolean not null,
  began_ms bigint not null,
  ended_ms bigint not null,
  primary key (tenant, turn_id)
) with (fillfactor = 80);

create index turn_by_session on holdfast.turn (tenant, session_id, turn_id);
create unique index turn_by_seq on holdfast.turn (tenant, session_id, seq) where seq is not null;
create index turn_open on holdfast.turn (turn_id) where state = 'open';
create index turn_discarded on holdfast.turn (ended_ms) where state = 'discarded';
create index turn_replayable on holdfast.turn (ended_ms) where replayable;

create table holdfast.journal (
  tenant text collate "C" not null,
  turn_id text collate "C" not null,
  n bigint not null,
  token bigint not null,
  records bytea not null,
  primary key (tenant, turn_id, n)
);

create table holdfast.item (
  tenant text collate "C" not null,
  session_id text collate "C" not null,
  pos bigint not null,
  turn_id text collate "C" not null,
  path text collate "C" not null,
  body bytea not null,
  primary key (tenant, session_id, pos)
);

create table holdfast.state (
  tenant text collate "C" not null,
  session_id text collate "C" not null,
  name bytea not null,
  seq bigint not null,
  value bytea not null,
  primary key (tenant, session_id, seq, name)
);

create table holdfast.memory (
  tenant text collate "C" not null,
  agent bytea not null,
  memory_id bytea not null,
  text bytea not null,
  turn_id text collate "C" not null,
  at_ms bigint not null,
  primary key (tenant, agent, memory_id)
);

create table holdfast.annotation (
  tenant text collate "C" not null,
  session_id text collate "C" not null,
  rev bigint not null,
  item text collate "C",
  patch bytea not null,
  at_ms bigint not null,
  primary key (tenant, session_id, rev)
);

create table holdfast.blob (
  tenant text collate "C" not null,
  session_id text collate "C" not null,
  digest text collate "C" not null,
  bytes bytea not null,
  primary key (tenant, session_id, digest)
);

create index blob_by_session on holdfast.blob (session_id);

create table holdfast.idempotency (
  tenant text collate "C" not null,
  key text collate "C" not null,
  request_hash bytea not null,
  turn_id text collate "C" not null,
  state text collate "C" not null check (state in ('running', 'done', 'failed')),
  expires_ms bigint not null,
  primary key (tenant, key)
);

create index idempotency_by_turn on holdfast.idempotency (tenant, turn_id);
create index idempotency_to_prune on holdfast.idempotency (expires_ms) where state <> 'running';

create table holdfast.signal (
  tenant text collate "C" not null,
  turn_id text collate "C" not null,
  n bigint not null,
  kind text collate "C" not null check (kind in ('cancel', 'interrupt', 'steer')),
  payload bytea not null,
  consumed boolean not null,
  at_ms bigint not null,
  primary key (tenant, turn_id, n)
);

create index signal_waiting on holdfast.signal (tenant, turn_id) where not consumed;
