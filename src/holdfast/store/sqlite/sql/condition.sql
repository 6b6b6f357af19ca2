-- How the store is, for whoever looks after it.

-- holders
-- Who holds each open turn.
select lease_node from session where open_turn is not null;
