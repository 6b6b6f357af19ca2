-- Keys that seal what clients keep for us. They are the store's, and not one tenant's.

create table holdfast.seal_key (
  key_id text collate "C" primary key,
  secret bytea not null
);
