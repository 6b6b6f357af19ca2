-- Keys of requests that were steered into the turn of another: by which of its signals.

alter table holdfast.idempotency add column steer bigint;
