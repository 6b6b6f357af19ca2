"""Hunt every mutant of a room, or those with these words in their names: python -m tests.mutants ROOM [words …]

Prints what noticed each of them, and ends with 1 if one survives, or if the source as it is does not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.mutants.catalogue import ROOMS, Mutant, mutants_of
from tests.mutants.hunt import hunt


def main(arguments: Sequence[str]) -> int:
    chosen = _chosen(arguments)
    width = max(len(each.name) for each in chosen)
    wrong = 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as hunters:
        for found in hunters.map(hunt, chosen):
            wrong += (found.noticed is None) != (not found.mutant.edits)
            told = found.noticed or "survives"
            print(f"{found.mutant.name:{width}}  {found.seconds:5.1f} s  {told}", flush=True)
    print(f"{len(chosen)} mutants, {wrong} not as they should be")
    return 1 if wrong else 0


def _chosen(arguments: Sequence[str]) -> list[Mutant]:
    """`--help` and `--list` end the program with 0, words that are in no name with 2."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("words", nargs="*", help="words of a name")
    parser.add_argument("--list", action="store_true", help="print the names, and do nothing else")
    asked = parser.parse_args(arguments)
    wanted = " ".join(asked.words)
    everything = mutants_of(asked.room)
    chosen = [each for each in everything if wanted.lower() in each.name.lower()]
    if not chosen:
        parser.error(f"none of {len(everything)} names has {wanted!r} in it; --list prints them")
    if asked.list:
        print(*(each.name for each in chosen), sep="\n")
        parser.exit()
    return chosen


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
