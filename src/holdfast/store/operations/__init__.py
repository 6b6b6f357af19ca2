"""The store's operations, each written once for all homes: what it reads, what it decides, what it writes.

`steps.py` defines the steps of an operation, `decisions.py` and `row_changes.py` hold the rules, and drivers execute
the steps.
"""
