-- The name that the operator gave a session's source (`NAME=REF`), by which the session finds its agents at another address.
-- Servers that do not know it leave it empty: their sessions are found by the address alone.

alter table @session add column source_name {name};
