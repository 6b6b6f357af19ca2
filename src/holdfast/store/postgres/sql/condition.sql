-- How the database is, for whoever looks after it.

-- server
-- Its version, its clock, its size, and how it hands on what it commits.
select current_setting('server_version'), (extract(epoch from clock_timestamp()) * 1000)::bigint,
       pg_database_size(current_database()), current_setting('synchronous_commit'),
       current_setting('synchronous_standby_names'), pg_is_in_recovery(),
       (select count(*) from pg_stat_replication),
       (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum'));

-- holders
-- Who holds each open turn.
select lease_node from holdfast.session where open_turn is not null;
