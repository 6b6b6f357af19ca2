"""The threads under the SQLite home: one writer, some readers, and the jobs that they are handed."""
