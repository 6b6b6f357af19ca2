-- Remembered approvals: what a person has allowed an agent for good.

create table tool_grant (
  tenant text not null,
  grant_id text not null,
  source_key text not null,
  agent text not null,
  tool text not null,
  fingerprint text not null,
  arguments text,
  call text not null,
  made_by text,
  revoked_ms integer,
  primary key (tenant, grant_id)
) strict, without rowid;
