"""The providers: one module for each wire."""
