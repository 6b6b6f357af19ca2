"""The SQL of both databases: tables, statements, named queries, migrations."""
