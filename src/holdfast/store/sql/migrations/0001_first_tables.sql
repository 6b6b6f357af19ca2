-- The first tables. `store/rows.py` says what each row means, docs/reference/store.md how they hang together.
sqlite| -- Tables with large values keep their rowid: rows then go to the end of the table, whoever writes them,
sqlite| -- so that a batch of many sessions fills the same pages.
postgres| --
postgres| -- Names of ours and of clients (ids, keys, tenants, states) are text that sorts by bytes, as in every home.
postgres| -- What people and models say is UTF-8 in bytea: PostgreSQL's text cannot hold U+0000, and they may say it.
postgres| --
postgres| -- `session.stamp` grows with every write to a session, its open turn, that turn's journal or its signals. Whoever
postgres| -- writes names the stamp that it has read: so a decision holds when it is written, and no lock outlives a statement.

create table @node (
sqlite|   slot integer primary key autoincrement,
sqlite|   node_id text not null unique,
postgres|   node_id text collate "C" primary key,
  ttl_ms {number} not null,
  since_ms {number} not null,
sqlite|   expires_ms integer not null
sqlite| ) strict;
postgres|   expires_ms bigint not null,
postgres|   slot bigint not null default 0
postgres| ) with (fillfactor = 50);

postgres| -- Room in the pages, and neither leases nor stamps in an index: most updates of a session then stay in its page
postgres| -- and touch no index (HOT). Who holds what is found by way of the open turns.
create table @session (
  tenant {name} not null,
  id {name} not null,
  head {number} not null,
  length {number} not null,
  link {blob} not null,
  lease_token {number} not null,
  lease_nonce text not null,
  lease_node {name},
  open_turn {name},
  source_key {words} not null,
  entry_agent {words} not null,
  agent {words} not null,
  lineage {blob} not null,
  settings {blob} not null,
  meta_rev {number} not null,
  summary_rev {number} not null,
  title {words} not null,
  opening {words} not null,
  state {name} not null check (state in ('live', 'deleted')),
  anonymous {truth} not null,
  created_ms {number} not null,
  active_ms {number} not null,
postgres|   stamp bigint not null default 1,
  bytes_gone {truth} not null default {false},
  primary key (tenant, id)
sqlite| ) strict, without rowid;
postgres| ) with (fillfactor = 70);

create index session_listed on @session (tenant, anonymous, active_ms, id)
  where state = 'live' and head > 0;
sqlite| create index session_held on session (lease_node, tenant, id) where open_turn is not null;
sqlite| create index session_to_clear on session (tenant, id) where state = 'deleted' and bytes_gone = 0;
sqlite| create index session_anonymous on session (active_ms) where anonymous = 1 and state = 'live';
postgres| create index session_to_clear on holdfast.session (tenant, id) where state = 'deleted' and not bytes_gone;
postgres| create index session_anonymous on holdfast.session (active_ms) where anonymous and state = 'live';

create table @session_key (
  tenant {name} not null,
  key {name} not null,
  session_id {name} not null,
  generation {number} not null,
  primary key (tenant, key)
){rowless};

create index session_key_by_session on @session_key (tenant, session_id, key);

create table @session_attribute (
  tenant {name} not null,
  session_id {name} not null,
  name {words} not null,
  value {words} not null,
  primary key (tenant, session_id, name)
){rowless};

-- Which sessions read another one's items: a deleted session's bytes stay as long as a live one does.
create table @session_past (
  tenant {name} not null,
  ancestor {name} not null,
  session_id {name} not null,
  primary key (tenant, ancestor, session_id)
){rowless};

create table @turn (
  tenant {name} not null,
  turn_id {name} not null,
  session_id {name} not null,
  base_head {number} not null,
  state {name} not null check (state in ('queued', 'open', 'committed', 'discarded')),
  seq {number},
  ended_by {name},
  detail {words} not null,
  attempt {number} not null,
  retry_of {name},
  client_attempt {number} not null,
  lease_token {number} not null,
  agent {words} not null,
  source_digest {words} not null,
  request_hash {blob} not null,
  replayable {truth} not null,
  start {number} not null,
  "end" {number} not null,
  rev {number} not null,
  changes {blob} not null,
  link {blob} not null,
  usage {blob} not null,
  acked {truth} not null,
  began_ms {number} not null,
  ended_ms {number} not null,
  {unique} (tenant, turn_id)
sqlite| ) strict;
postgres| ) with (fillfactor = 80);

create index turn_by_session on @turn (tenant, session_id, turn_id);
create unique index turn_by_seq on @turn (tenant, session_id, seq) where seq is not null;
postgres| create index turn_open on holdfast.turn (turn_id) where state = 'open';
create index turn_discarded on @turn (ended_ms) where state = 'discarded';
sqlite| create index turn_replayable on turn (ended_ms) where replayable = 1;
postgres| create index turn_replayable on holdfast.turn (ended_ms) where replayable;

create table @journal (
  tenant {name} not null,
  turn_id {name} not null,
  n {number} not null,
  token {number} not null,
  records {blob} not null,
  {unique} (tenant, turn_id, n)
){strict};

create table @item (
  tenant {name} not null,
  session_id {name} not null,
  pos {number} not null,
  turn_id {name} not null,
  path {name} not null,
  body {blob} not null,
  {unique} (tenant, session_id, pos)
){strict};

create table @state (
  tenant {name} not null,
  session_id {name} not null,
  name {words} not null,
  seq {number} not null,
  value {words} not null,
  {unique} (tenant, session_id, seq, name)
){strict};

create table @memory (
  tenant {name} not null,
  agent {words} not null,
  memory_id {words} not null,
  text {words} not null,
  turn_id {name} not null,
  at_ms {number} not null,
  {unique} (tenant, agent, memory_id)
){strict};

create table @annotation (
  tenant {name} not null,
  session_id {name} not null,
  rev {number} not null,
  item {name},
  patch {blob} not null,
  at_ms {number} not null,
  {unique} (tenant, session_id, rev)
){strict};

create table @blob (
  tenant {name} not null,
  session_id {name} not null,
  digest {name} not null,
  bytes {blob} not null,
  {unique} (tenant, session_id, digest)
){strict};

postgres| create index blob_by_session on holdfast.blob (session_id);
postgres|
create table @idempotency (
  tenant {name} not null,
  key {name} not null,
  request_hash {blob} not null,
  turn_id {name} not null,
  state {name} not null check (state in ('running', 'done', 'failed')),
  expires_ms {number} not null,
  primary key (tenant, key)
){rowless};

create index idempotency_by_turn on @idempotency (tenant, turn_id);
create index idempotency_to_prune on @idempotency (expires_ms) where state <> 'running';

create table @signal (
  tenant {name} not null,
  turn_id {name} not null,
  n {number} not null,
  kind {name} not null check (kind in ('cancel', 'interrupt', 'steer')),
  payload {blob} not null,
  consumed {truth} not null,
  at_ms {number} not null,
  primary key (tenant, turn_id, n)
){rowless};

postgres| create index signal_waiting on holdfast.signal (tenant, turn_id) where not consumed;
