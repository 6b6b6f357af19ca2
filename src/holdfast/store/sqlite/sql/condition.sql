-- How the store is, for whoever looks after it.

-- all_nodes
-- Every process that is not forgotten.
select slot, node_id, since_ms from node;

-- holders
-- Who holds each open turn.
select lease_node from session where open_turn is not null;
