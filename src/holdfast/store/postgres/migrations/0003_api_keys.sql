-- API keys. A key is found before anybody knows whose it is, so its own id comes first here, not the tenant.

create table holdfast.api_key (
  key_id text collate "C" primary key,
  tenant text collate "C" not null,
  name bytea not null,
  scopes bytea not null,
  digest bytea not null,
  expires_ms bigint,
  revoked_ms bigint
);
