"""docker-agent's format, field by field, and what becomes of each here. `python -m tests.agents.field_table` writes the
table into docs/reference/agent-file.md.

The list is our own: names of kinds and fields, of all versions up to 15.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias, get_args

from holdfast.agents.file import shapes
from holdfast.agents.file.dispositions import CANNOT_MATTER, REFUSED, TOOLSETS_REFUSED
from holdfast.agents.file.shape_base import Shape
from holdfast.agents.file.toolsets import toolset_shapes as toolsets
from tests import repository

PAGE = repository.ROOT / "docs/reference/agent-file.md"
BEGIN = "<!-- the table below is made by `make reference` -->\n"

Fate: TypeAlias = Literal["run", "refused", "cannot matter"]

TOOLSETS = """
    a2a api background_agents background_jobs fetch filesystem git lsp mcp mcp_catalog memory model_picker open_url openapi
    plan rag scheduler script session_context session_plan shell tasks think todo user_prompt webhook
""".split()

FIELDS: Mapping[str, str] = {
    "a file": """
        agents budget budgets commands env evaluators flavors mcps metadata models permissions providers rag runtime skills
        toolsets version
    """,
    "`runtime`": "network_allowlist safety sandbox",
    "`metadata`": "author description license readme tags version",
    "`permissions`": "allow ask deny",
    "`budget`, `budgets`": "max_cost max_time max_tokens",
    "an agent": """
        add_date add_description_parameter add_environment_info add_prompt_files
        add_prompt_files_depth budgets cache code_mode_tools commands
        compaction_model compaction_threshold description fallback force_handoff handoffs harness hooks instruction
        inject_memories instruction_file max_consecutive_tool_calls max_iterations max_old_tool_call_tokens max_tool_result_tokens model
        name num_history_items plan_persona rag readonly redact_secrets routing safety session_compaction skills
        structured_output sub_agents tool_choice toolsets use_commands use_skills use_toolsets welcome_message
    """,
    "`skills`": "allowed_tools context description instructions model name toolsets",
    "`structured_output`": "description mode name schema strict",
    "a command": "agent description instruction url",
    "`fallback`": "cooldown models retries",
    "`hooks`": """
        after_compaction after_llm_call before_compaction before_llm_call notification on_agent_switch on_error
        on_max_iterations on_session_resume on_tool_approval_decision on_user_input permission_request post_tool_use
        pre_compact pre_tool_use session_end session_start stop subagent_stop tool_guard tool_input_transform
        tool_response_transform turn_end turn_start
        user_followup_submit user_prompt_submit user_steering_messages_submit worktree_create
    """,
    "a matcher of hooks": "hooks matcher preempt_yolo",
    "a hook": "args command env model name on_error prompt schema strict_output timeout type working_dir",
    "a model": """
        auth base_url bypass_models_gateway capabilities compaction_model compaction_threshold cost description env
        first_available frequency_penalty max_tokens model output_capabilities parallel_tool_calls presence_penalty provider provider_opts
        routing task_budget temperature thinking_budget title_model token_key top_p track_usage
    """,
    "`capabilities`": "audio image pdf video",
    "`task_budget`": "total type",
    "`routing`": "examples model",
    "`cost`": "cache_read cache_write input output",
    "a provider": """
        api_type auth base_url compaction_model frequency_penalty max_tokens parallel_tool_calls presence_penalty provider
        provider_opts task_budget temperature thinking_budget token_key top_p track_usage unload_api
    """,
    "`mcps`": "args command config defer env instruction lifecycle name ref remote tools version working_dir",
    "`remote`": "headers oauth transport_type url",
    "`oauth`": "callbackPort callbackRedirectURL clientId clientSecret scopes",
    "`lifecycle`": "backoff call_timeout max_restarts profile required restart startup_timeout",
    "a command of `script`": "args cmd description env required working_dir",
    "`api_config`": "args endpoint headers instruction method name output_schema required",
    "every toolset": "defer instruction model readonly tools toon",
    "toolset `script`": "env shell",
    "toolset `shell`": "env safer sandbox sudo_askpass",
    "toolset `background_jobs`": "env recall",
    "`post_edit`": "cmd path",
    "`webhook_config`": "chat_id headers provider url",
    "toolset `filesystem`": "allow_list deny_list ignore_vcs post_edit",
    "toolset `fetch`": """
        allow_private_ips allowed_domains blocked_domains escape_html headers timeout
    """,
    "toolset `think`": "shared",
    "toolset `todo`": "shared",
    "toolset `memory`": "path",
    "toolset `tasks`": "path",
    "toolset `model_picker`": "models",
    "toolset `a2a`": "allow_private_ips headers name timeout url",
    "toolset `webhook`": "timeout webhook_config",
    "toolset `open_url`": "name url",
    "toolset `mcp`": """
        allow_private_ips args command config env env_file lifecycle name ref
        remote version working_dir
    """,
    "toolset `openapi`": "allow_private_ips headers timeout url",
    "toolset `api`": "allow_private_ips api_config timeout",
}

SHAPES: Mapping[str, type[Shape]] = {
    "a file": shapes.FileShape,
    "`runtime`": shapes.RuntimeShape,
    "`metadata`": shapes.MetadataShape,
    "`permissions`": shapes.PermissionsShape,
    "an agent": shapes.AgentShape,
    "`skills`": shapes.InlineSkillShape,
    "`structured_output`": shapes.StructuredOutputShape,
    "a command": shapes.CommandShape,
    "`fallback`": shapes.FallbackShape,
    "`hooks`": shapes.HooksShape,
    "a matcher of hooks": shapes.HookMatcherShape,
    "a hook": shapes.HookShape,
    "a model": shapes.ModelShape,
    "`capabilities`": shapes.CapabilitiesShape,
    "`cost`": shapes.CostShape,
    "`budget`, `budgets`": shapes.BudgetShape,
    "`routing`": shapes.RoutingRuleShape,
    "`task_budget`": shapes.TaskBudgetShape,
    "`post_edit`": toolsets.PostEditShape,
    "`webhook_config`": toolsets.WebhookConfigShape,
    "a provider": shapes.ProviderShape,
    "`mcps`": toolsets.McpShape,
    "`remote`": toolsets.RemoteShape,
    "`oauth`": toolsets.OauthShape,
    "`lifecycle`": toolsets.LifecycleShape,
    "a command of `script`": toolsets.ScriptShape,
    "`api_config`": toolsets.ApiConfigShape,
    "every toolset": toolsets.ThinkToolsetShape,
    **{f"toolset `{each.__struct_config__.tag}`": each for each in get_args(toolsets.AnyToolset)},
}

BELOW: Mapping[str, tuple[str, str, str]] = {
    "`harness`": ("an agent", "harness", "agent effort model thinking type"),
    "`cache`": ("an agent", "cache", "case_sensitive enabled path trim_spaces"),
    "`auth`": ("a model", "auth", "type workload_identity_federation"),
    "`workload_identity_federation`": (
        "a model", "auth", "federation_rule_id identity_token organization_id service_account_id",
    ),
    "`identity_token`": ("a model", "auth", "command env file headers response_field url"),
    "`backoff`": ("`lifecycle`", "backoff", "initial jitter max multiplier"),
}  # fmt: skip
"""Kinds that only occur in a field that is not run: they share its fate."""

OF_REFUSED_TOOLSETS: Mapping[str, tuple[str, str]] = {
    "toolset `lsp`": ("lsp", "args command env file_types lifecycle version working_dir"),
    "toolset `mcp_catalog`": ("mcp_catalog", "allowed_servers blocked_servers"),
    "toolset `rag`, `rag_config`": (
        "rag",
        """
        docs name rag_config ref respect_vcs results strategies tool ast_context b chat_model chunking database
        embedding_batch_size embedding_model k1 limit max_embedding_concurrency max_indexing_concurrency
        semantic_prompt similarity_metric threshold type vector_dimensions code_aware overlap
        respect_word_boundaries size deduplicate fusion include_score reranking return_full_content k strategy
        weights criteria model top_k
        """,
    ),
}


def fate(kind: str, field: str) -> tuple[Fate, str]:
    """What becomes of a field, and why. Raises KeyError for a field that nobody decided about."""
    shape = SHAPES[kind]
    if field == shape.__struct_config__.tag_field or field in shape.__struct_fields__:
        return "run", ""
    if words := REFUSED.get(shape, {}).get(field):
        return "refused", words
    return "cannot matter", CANNOT_MATTER[shape][field]


def rows() -> Iterator[tuple[str, str, Fate, str]]:
    """Every field: the kind that it is in, its name, its fate, and why."""
    for kind, names in FIELDS.items():
        for field in sorted(names.split()):
            yield kind, field, *fate(kind, field)
    for kind, (where, parent, names) in BELOW.items():
        told, words = fate(where, parent)
        for field in names.split():
            yield kind, field, told, words
    for kind, (tag, names) in OF_REFUSED_TOOLSETS.items():
        for field in sorted(names.split()):
            yield kind, field, "refused", TOOLSETS_REFUSED[tag]
    for tag in TOOLSETS:
        if tag in TOOLSETS_REFUSED:
            yield "a toolset", f"type: {tag}", "refused", TOOLSETS_REFUSED[tag]
        else:
            yield "a toolset", f"type: {tag}", "run", ""


def table() -> str:
    """One row for all fields of a kind with one fate for one reason."""
    grouped: dict[tuple[str, Fate, str], list[str]] = {}
    for kind, field, told, words in rows():
        grouped.setdefault((kind, told, words), []).append(field)
    lines = ["| in | fields | here | because |", "|---|---|---|---|"]
    for (kind, told, words), fields in grouped.items():
        names = ", ".join(f"`{each}`" for each in fields)
        lines.append(f"| {kind} | {names} | {told} | {words.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    head, found, _ = page.partition(BEGIN)
    assert found, f"{PAGE} has no place for the table"
    PAGE.write_text(head + BEGIN + "\n" + table(), encoding="utf-8")


if __name__ == "__main__":
    main()
