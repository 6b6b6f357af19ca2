"""What each family of models takes: one row a family, with the source of each fact."""
