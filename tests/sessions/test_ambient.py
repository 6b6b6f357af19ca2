"""Chance: what the machine lends to a node."""

from __future__ import annotations

import subprocess
import sys

from holdfast.sessions.ambient import machine_bits


def test_bits_are_as_many_as_were_asked_for() -> None:
    for bits in (1, 64, 80):
        drawn = [machine_bits(bits) for _ in range(200)]
        assert max(drawn).bit_length() <= bits
        assert max(drawn) >> (bits - 1), "the highest bit is as random as the others"


def test_no_two_draws_are_the_same() -> None:
    """More of them than are fetched at a time."""
    assert len({machine_bits(80) for _ in range(1000)}) == 1000


FORKS = """
import os
from holdfast.sessions.ambient import _fetched, machine_bits
machine_bits(80)
assert _fetched, "some are in store"
child = os.fork()
if child:
    os.waitpid(child, 0)
print(*(machine_bits(80) for _ in range(20)))
"""


def test_a_forked_child_draws_nothing_that_its_parent_draws() -> None:
    """In a process of its own, which has no threads."""
    said = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, check=True).stdout
    one, other = (set(line.split()) for line in said.splitlines())
    assert len(one | other) == 40
