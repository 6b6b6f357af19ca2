-- Keys of requests that were steered into the turn of another: by which of its signals.

alter table @idempotency add column steer {number};
