"""Facts that are added to an agent's instruction: about the machine, and from prompt files beside its own file.

They are read together with the agent file, and its digest covers them: a resumed turn gets the same facts, or is
known to be played with another version.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Collection
from itertools import islice
from pathlib import Path

from holdfast import limits
from holdfast.agents.file.document import UnreadableDocument, read_document
from holdfast.tools.files.rooted_paths import PathRefused, RootedDirectories
from holdfast.tools.toolsets.skills import Skill


class NoPrompt(Exception):
    """A prompt file cannot be used; the message says why. `absent`: there is none."""

    def __init__(self, words: str, *, absent: bool = False) -> None:
        super().__init__(words)
        self.absent = absent


SKILL_PLACES = (".agents/skills", ".claude/skills", "skills")
"""Where skills lie beside an agent file: a folder each, with a SKILL.md in it."""

_FRONT = re.compile(r"---\r?\n(.*?)\r?\n---\r?\n(.*)", re.DOTALL)
_ENTRY = re.compile(r"^(name|description|context|model):[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def local_skills(directory: Path) -> tuple[Skill, ...]:
    """The skills beside an agent file, by name. Raises NoPrompt for one that cannot be read."""
    found: dict[str, Skill] = {}
    for place in SKILL_PLACES:
        for path in sorted((directory / place).glob("*/SKILL.md"))[: limits.prompt_files_max]:
            text = prompt_file(directory, str(path.relative_to(directory)))
            front = _FRONT.match(text)
            if front is None:
                raise NoPrompt(
                    f"{path.parent.name}/SKILL.md does not begin with its name and description"
                )
            said = _front_matter(front[1])
            name = said.get("name") or path.parent.name
            is_apart = said.get("context") == "fork"
            skill = Skill(
                name=name,
                description=said.get("description", ""),
                instructions=front[2].strip(),
                is_apart=is_apart,
                model=said.get("model", "") if is_apart else "",
            )
            found.setdefault(name, skill)
    return tuple(found.values())


def _front_matter(text: str) -> dict[str, str]:
    """What a skill says of itself, in YAML; or line by line, since many write a colon into a plain description."""
    try:
        value = read_document(text.encode()).value
    except UnreadableDocument:
        return {name: value.strip("\"'") for name, value in _ENTRY.findall(text)}
    said = value if isinstance(value, dict) else {}
    return {name: " ".join(each.split()) for name, each in said.items() if isinstance(each, str)}


def environment_info(directory: Path) -> str:
    """The working directory and the system, in a few lines."""
    in_git = any((each / ".git").exists() for each in (directory, *directory.parents))
    return "\n".join(
        (
            "Your environment:",
            f"Working directory: {directory}",
            f"In a git repository: {'yes' if in_git else 'no'}",
            f"Operating system: {platform.system()}",
            f"Architecture: {platform.machine()}",
        )
    )


def prompt_files_below(directory: Path, names: Collection[str], depth: int) -> str:
    """The paths of files of these names below a directory, for the agent to read itself; empty if there are none.
    Hidden directories, and what is linked, are left out."""
    found: list[str] = []
    level = [directory]
    for _ in range(depth):
        inner = (each for folder in level for each in _folders(folder))
        level = list(islice(inner, limits.prompt_folders_max))
        found += [
            str(path.relative_to(directory))
            for folder in level
            for name in names
            if (path := folder / name).is_file()
        ]
    if not found:
        return ""
    return "\n- ".join(("Files for parts of this directory; read those that matter:", *found[:100]))


def _folders(directory: Path) -> list[Path]:
    try:
        inner = sorted(os.scandir(directory), key=lambda each: each.name)
    except OSError:
        return []
    return [
        Path(each.path)
        for each in inner
        if each.is_dir(follow_symlinks=False) and not each.name.startswith(".")
    ]


def prompt_file(directory: Path, name: str) -> str:
    """The text of a file in this directory or below it. Raises NoPrompt."""
    try:
        data = RootedDirectories(directory).read(name)
        if len(data) > limits.prompt_file_bytes_max:
            raise NoPrompt(f"it has {len(data)} bytes, at most {limits.prompt_file_bytes_max}")
        return data.decode("utf-8-sig").strip()
    except PathRefused as error:
        raise NoPrompt(str(error)) from error
    except UnicodeDecodeError as error:
        raise NoPrompt("it is not UTF-8 text") from error
    except OSError as error:
        words = os.strerror(error.errno) if error.errno else str(error)
        absent = isinstance(error, FileNotFoundError)
        raise NoPrompt(f"it cannot be read: {words}", absent=absent) from error
