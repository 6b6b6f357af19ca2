"""The skills of an agent file: written in it, or in directories beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.agents.file.document import Where
from holdfast.agents.file.models import UNTRUSTED
from holdfast.agents.file.shape_checks import suggest
from holdfast.agents.file.shapes import AgentShape, InlineSkillShape, Skills
from holdfast.agents.file.toolsets.file_context import FileContext
from holdfast.agents.surroundings import NoPrompt, local_skills
from holdfast.tools.toolsets.skills import Skill


class FileSkills:
    """The skills of one file, some of them shared by its agents."""

    def __init__(self, context: FileContext, shared: Mapping[str, Skills]) -> None:
        self._found = context.found
        self._directory = context.directory
        self._trusted = context.trusted
        self._shared = shared

    def of_agent(self, shape: AgentShape, where: Where) -> tuple[Skill, ...]:
        """An agent's skills: its own, and those of the groups that it uses, where it has none of that name."""
        found: dict[str, Skill] = {}
        groups: list[tuple[Skills, Where]] = [(shape.skills, (*where, "skills"))]
        for n, name in enumerate(shape.use_skills):
            if name in self._shared:
                groups.append((self._shared[name], ("skills", name)))
            else:
                words = f"no such group of skills; {suggest(name, self._shared)}"
                self._found.wrong((*where, "use_skills", n), words)
        for group, at in groups:
            for skill in self._skills_of(group, at):
                found.setdefault(skill.name, skill)
        return tuple(found.values())

    def _skills_of(self, group: Skills, at: Where) -> Iterator[Skill]:
        said = ("local",) if group is True else group or ()
        yield from (
            Skill(
                name=each.name,
                description=each.description,
                instructions=each.instructions,
                is_apart=each.context == "fork",
                model=each.model,
                allowed_tools=each.allowed_tools,
            )
            for each in said
            if isinstance(each, InlineSkillShape)
        )
        named = [each for each in said if isinstance(each, str)]
        if not named:
            return
        if not self._trusted:
            self._found.wrong(at, UNTRUSTED.format(what="read from this machine"))
            return
        elsewhere = [each for each in named if "://" in each]
        for each in elsewhere:
            words = (
                f"refused: {each} is not fetched, so its skills are missing; put them beside the file: "
                ".agents/skills/NAME/SKILL.md"
            )
            self._found.warn(at, words)
        named = [each for each in named if each not in elsewhere]
        if not named:
            return
        try:
            here = local_skills(self._directory)
        except NoPrompt as error:
            self._found.missing(at, str(error))
            return
        only = [each for each in named if each != "local"]
        for name in (each for each in only if each not in {skill.name for skill in here}):
            words = f"there is no such skill beside the file; {suggest(name, (each.name for each in here))}"
            self._found.warn(at, words)
        yield from (each for each in here if each.name in only or not only)
