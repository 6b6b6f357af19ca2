-- Proofs of rows (`store/verification/proofs.py`): checksums by which `verify` notices a row that is not what was written. Servers that
-- do not know these columns leave them empty, and so are they in rows that are older.

alter table @session add column proof {number};
alter table @session add column agent_proof {number};
alter table @session_key add column proof {number};
alter table @turn add column proof {number};
alter table @turn add column end_proof {number};
alter table @idempotency add column proof {number};
alter table @signal add column proof {number};
alter table @journal add column proof {number};
alter table @annotation add column proof {number};
alter table @memory add column proof {number};
alter table @api_key add column proof {number};
alter table @seal_key add column proof {number};
alter table @tool_grant add column proof {number};
