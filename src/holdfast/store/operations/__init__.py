"""What a store does, each operation once, for every home: what it looks at, what it decides, what it writes.

`steps.py` says what an operation is made of, `decisions.py` and `shapes.py` hold the rules, and drivers take the steps.
"""
