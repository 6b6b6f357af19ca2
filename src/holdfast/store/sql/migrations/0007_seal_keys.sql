-- Keys that seal what clients keep for us. They are the store's, and not one tenant's.

create table @seal_key (
  key_id {name} primary key,
  secret {blob} not null
){rowless};
