"""The providers: one module for each wire that a model is asked over."""
