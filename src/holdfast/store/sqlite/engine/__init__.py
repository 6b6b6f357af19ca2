"""The threads of the SQLite home: one writer, some readers, and the queues of their jobs."""
