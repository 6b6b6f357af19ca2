"""Bytes made of other bytes, without looking at what they do: where there is no fuzzer, and for a first look."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.fuzz.targets import Target


def mutations(target: Target, seed: int) -> Iterator[bytes]:
    """The seeds of a target as they are, and then changed, for ever; the same ones for the same seed."""
    yield from target.seeds
    random = Random(seed)
    while True:
        data = bytearray(random.choice(target.seeds))
        for _ in range(random.randint(1, 6)):
            _change(data, target, random)
        yield bytes(data[: target.size_max])


def _change(data: bytearray, target: Target, random: Random) -> None:
    at = random.randrange(len(data) + 1)
    match random.randrange(4):
        case 0 if data:
            data[at % len(data)] = random.randrange(256)
        case 1 if target.words:
            data[at:at] = random.choice(target.words).encode()
        case 2:
            del data[at : at + random.randint(1, 20)]
        case _:
            other = random.choice(target.seeds)
            start = random.randrange(len(other) + 1)
            data[at:at] = other[start : start + random.randint(1, 40)]
