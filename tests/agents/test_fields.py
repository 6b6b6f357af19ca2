"""Every field that docker-agent's format has is run, or named as not run. Nothing is left out in silence."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import get_args

import pytest

from holdfast.agents.file import shapes
from holdfast.agents.file.shapes import GONE, NOT_RUN, TOOLSETS_NOT_RUN, AnyToolset, Shape
from tests import repository
from tests.agents.file.test_agent_file import in_agent, in_model, read

PAGE = repository.ROOT / "docs/reference/agent-file.md"

TOOLSETS = "a2a api background_agents fetch filesystem lsp mcp memory model_picker openapi rag script shell tasks think todo user_prompt".split()
TOOLSET_FIELDS = (
    "api_config args command config defer env file_types headers ignore_vcs instruction model models name path "
    "post_edit rag_config ref remote shared shell timeout tools toon type url version"
)

FIELDS: Mapping[type[Shape], str] = {
    shapes.FileShape: "agents mcps metadata models permissions providers rag version",
    shapes.AgentShape: (
        "add_date add_description_parameter add_environment_info add_prompt_files code_mode_tools commands "
        "description fallback handoffs hooks instruction max_consecutive_tool_calls max_iterations "
        "max_old_tool_call_tokens model num_history_items rag skills structured_output sub_agents toolsets "
        "welcome_message"
    ),
    shapes.CommandShape: "description instruction",
    shapes.StructuredOutputShape: "description name schema strict",
    shapes.FallbackShape: "cooldown models retries",
    shapes.HooksShape: "notification on_user_input post_tool_use pre_tool_use session_end session_start stop",
    shapes.HookMatcherShape: "hooks matcher",
    shapes.HookShape: "command timeout type",
    shapes.ModelShape: (
        "base_url frequency_penalty headers max_tokens model parallel_tool_calls presence_penalty provider "
        "provider_opts routing temperature thinking_budget token_key top_p track_usage"
    ),
    shapes.ProviderShape: "api_type base_url headers token_key",
    shapes.MetadataShape: "author description license readme version",
    shapes.PermissionsShape: "allow ask deny",
    shapes.McpShape: "args command config defer env instruction name ref remote tools version",
    shapes.RemoteShape: "headers transport_type url",
    shapes.ScriptShape: "args cmd description env required working_dir",
    **dict.fromkeys(get_args(AnyToolset), TOOLSET_FIELDS),
}
"""Our own list of what the format has, in versions 5 to 7; what lies below a field that is not run is not in it."""


def kind(of: type[Shape]) -> str:
    return of.__name__.removesuffix("Shape")


@pytest.mark.parametrize("of", FIELDS, ids=kind)
def test_every_field_is_run_or_named(of: type[Shape]) -> None:
    fields = set(FIELDS[of].split()) - {of.__struct_config__.tag_field}
    assert fields <= {*of.__struct_fields__, *NOT_RUN.get(of, ())}


def test_what_is_named_is_in_the_format() -> None:
    for of, fields in NOT_RUN.items():
        assert fields <= set(FIELDS[of].split()), kind(of)


def test_every_toolset_is_run_or_named() -> None:
    run = {str(each.__struct_config__.tag) for each in get_args(AnyToolset)}
    assert run | TOOLSETS_NOT_RUN == set(TOOLSETS)
    assert not run & TOOLSETS_NOT_RUN


NAMED = [(of, field) for of in NOT_RUN for field in sorted(NOT_RUN[of])]


@pytest.mark.parametrize(("of", "field"), NAMED, ids=lambda each: getattr(each, "__name__", each))
def test_what_is_not_run_is_told_with_its_name(of: type[Shape], field: str) -> None:
    told = [each.what for each in read(_file_with(of, field)).warnings]
    assert [each for each in told if f"{field}: is docker-agent's, and not run here yet" in each]


def _file_with(of: type[Shape], field: str) -> str:
    """A file that is fine but for this field."""
    if of is shapes.FileShape:
        return f"{field}: {{}}\n" + in_agent("")
    if of is shapes.AgentShape:
        return in_agent(f"{field}: 1")
    if of is shapes.HooksShape:
        return in_agent(f"hooks: {{{field}: []}}")
    if of is shapes.ModelShape:
        return in_model(f"{field}: []")
    if of is shapes.McpShape:
        return f"mcps: {{m: {{command: a, {field}: 1}}}}\n" + in_agent("")
    needed = {"script": "shell: {a: {cmd: b}}, ", "mcp": "command: a, ", "openapi": "url: a.yaml, "}
    tag = str(of.__struct_config__.tag)
    return in_agent(f"toolsets: [{{type: {tag}, {needed.get(tag, '')}{field}: 1}}]")


def test_what_is_refused_is_neither_run_nor_left_out() -> None:
    for of, fields in GONE.items():
        assert not fields.keys() & {*of.__struct_fields__, *NOT_RUN.get(of, ())}


# ── the page ──


def test_the_reference_says_which_are_which() -> None:
    assert _table() in PAGE.read_text(encoding="utf-8"), f"the page should have:\n\n{_table()}"


def _table() -> str:
    """Kind by kind: what is run, what is named as not run, what is ours."""
    lines = ["| in | run | not run | ours |", "|---|---|---|---|"]
    for of, text in FIELDS.items():
        known, run = set(text.split()), set(of.__struct_fields__)
        of_toolset = of in get_args(AnyToolset)
        missing = set() if of_toolset else NOT_RUN.get(of, frozenset())
        lines.append(
            f"| {_name(of)} | {_listed(run & known)} | {_listed(missing)} | {_listed(run - known)} |"
        )
    return "\n".join(lines)


def _name(of: type[Shape]) -> str:
    tag = of.__struct_config__.tag
    return f"toolset `{tag}`" if isinstance(tag, str) else NAMES[of]


NAMES: Mapping[type[Shape], str] = {
    shapes.FileShape: "a file",
    shapes.AgentShape: "an agent",
    shapes.CommandShape: "`commands`",
    shapes.StructuredOutputShape: "`structured_output`",
    shapes.FallbackShape: "`fallback`",
    shapes.HooksShape: "`hooks`",
    shapes.HookMatcherShape: "a matcher of hooks",
    shapes.HookShape: "a hook",
    shapes.ModelShape: "a model",
    shapes.ProviderShape: "a provider",
    shapes.MetadataShape: "`metadata`",
    shapes.PermissionsShape: "`permissions`",
    shapes.McpShape: "`mcps`",
    shapes.RemoteShape: "`remote`",
    shapes.ScriptShape: "a command of `script`",
}


def _listed(fields: Set[str]) -> str:
    return ", ".join(f"`{each}`" for each in sorted(fields))
