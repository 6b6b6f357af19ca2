-- Remembered approvals: what a person has allowed an agent for good.

create table holdfast.tool_grant (
  tenant text collate "C" not null,
  grant_id text collate "C" not null,
  source_key bytea not null,
  agent bytea not null,
  tool bytea not null,
  fingerprint text collate "C" not null,
  arguments bytea,
  call text collate "C" not null,
  made_by text collate "C",
  revoked_ms bigint,
  primary key (tenant, grant_id)
);
