"""Hunt every mutant: python -m tests.store.mutants [words of a name]

Prints what caught each of them, and ends with 1 if one survives, or if the source as it is does not.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.choosing import choose
from tests.store.mutants.catalogue import ENGINE, INTERLEAVINGS, MODEL, MUTANTS, Mutant
from tests.store.mutants.hunting import Hunt, hunt

UNTOUCHED = Mutant(name="(nothing is changed)", edits=(), tests=(MODEL, INTERLEAVINGS, *ENGINE))


def main(words: list[str]) -> int:
    everything = (UNTOUCHED, *MUTANTS)
    chosen = choose(everything, words, program="python -m tests.store.mutants", about=__doc__)
    width = max(len(each.name) for each in chosen)
    wrong = 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as hunters:
        for found in hunters.map(hunt, chosen):
            as_it_should = (found.caught_by is None) == (found.mutant == UNTOUCHED.name)
            wrong += not as_it_should
            _print(f"{found.mutant:{width}}  {found.seconds:5.1f} s  {_told(found)}")
    _print(f"{len(chosen)} mutants, {wrong} not as they should be")
    return 1 if wrong else 0


def _told(found: Hunt) -> str:
    if found.caught_by is None:
        return "passes" if found.mutant == UNTOUCHED.name else "SURVIVED"
    return found.caught_by.removeprefix("tests/store/")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
