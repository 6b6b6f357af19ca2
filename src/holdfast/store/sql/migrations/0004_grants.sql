-- Remembered approvals: what a person has allowed an agent for good.

create table @tool_grant (
  tenant {name} not null,
  grant_id {name} not null,
  source_key {words} not null,
  agent {words} not null,
  tool {words} not null,
  fingerprint {name} not null,
  arguments {words},
  call {name} not null,
  made_by {name},
  revoked_ms {number},
  primary key (tenant, grant_id)
){rowless};
