"""The contract: what every home of the store keeps, sentence by sentence of what `Store` and its methods say.

Each test runs against each home in `tests/store/homes.py`. A home is right if it passes, and only then may the
memory store stand in for it.
"""
