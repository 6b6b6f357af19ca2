-- Turns that wait for their session: the first of one session, and all of them, without going through the others.

create index turn_queued on @turn (tenant, session_id, began_ms, turn_id) where state = 'queued';
