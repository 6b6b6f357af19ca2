"""The PostgreSQL home of the store: one database, any number of processes on any number of machines."""
