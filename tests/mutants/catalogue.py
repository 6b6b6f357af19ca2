"""Ways to break the source, each of which some test has to notice: one file for each room, beside this one.

    append does not look at the fence
    store/operations/turns.py
    -    session = decisions.demand_fence(fence, found.session)
    +    session = found.session
    * tests/store/contract/test_fences.py
    * telling

A block is a name, the edits and, behind `*`, the tests that have to notice; a mutant without any is hunted by seeds of
the simulation. An edit is written as a diff: its words stand in their file exactly once, and may be a part of a line;
where nothing but `-` is there, whole lines go. `telling` is for the few that every run of the tests tries, at
least one of each way to notice; `thorough` for those that `make torture-claims` adds.
Lines that begin with `#` are for readers.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from tests.repository import ROOT

SOURCE = ROOT / "src" / "holdfast"
ROOMS = ("store", "sessions")


class Edit(Struct, frozen=True):
    file: str
    """Inside src/holdfast."""
    old: str
    new: str

    @property
    def fits(self) -> bool:
        return (SOURCE / self.file).read_text(encoding="utf-8").count(self.old) == 1


class Mutant(Struct, frozen=True):
    name: str
    edits: tuple[Edit, ...] = ()
    """None for the source as it is, which all tests have to pass."""
    tests: tuple[str, ...] = ()
    telling: bool = False
    thorough: bool = False

    @property
    def misfits(self) -> list[str]:
        """The edits whose words are not in the source, or not just once."""
        return [f"{each.file}: {each.old!r}" for each in self.edits if not each.fits]


def mutants_of(room: str) -> tuple[Mutant, ...]:
    text = (Path(__file__).parent / f"{room}.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    blocks = "\n".join(lines).split("\n\n")
    return tuple(_mutant(block.strip("\n").split("\n")) for block in blocks if block.strip())


def _mutant(block: list[str]) -> Mutant:
    name, *lines = block
    notes = [line[2:] for line in lines if line.startswith("* ")]
    edits: list[tuple[str, list[str], list[str]]] = []
    for line in lines:
        match line[:1]:
            case "*":
                pass
            case "-":
                edits[-1][1].append(line[1:])
            case "+":
                edits[-1][2].append(line[1:])
            case " ":
                edits[-1][1].append(line[1:])
                edits[-1][2].append(line[1:])
            case _:
                edits.append((line, [], []))
    return Mutant(
        name,
        tuple(_edit(*each) for each in edits),
        tuple(each for each in notes if each not in ("telling", "thorough")),
        "telling" in notes,
        "thorough" in notes,
    )


def _edit(file: str, old: list[str], new: list[str]) -> Edit:
    end = "" if new else "\n"
    return Edit(file, "\n".join(old) + end, "\n".join(new))
