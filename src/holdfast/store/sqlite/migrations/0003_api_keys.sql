-- API keys. A key is found before anybody knows whose it is, so its own id comes first here, not the tenant.

create table api_key (
  key_id text primary key,
  tenant text not null,
  name text not null,
  scopes blob not null,
  digest blob not null,
  expires_ms integer,
  revoked_ms integer
) strict, without rowid;
