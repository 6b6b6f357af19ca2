-- API keys. A key is found before anybody knows whose it is, so its own id comes first here, not the tenant.

create table @api_key (
  key_id {name} primary key,
  tenant {name} not null,
  name {words} not null,
  scopes {blob} not null,
  digest {blob} not null,
  expires_ms {number},
  revoked_ms {number}
){rowless};
