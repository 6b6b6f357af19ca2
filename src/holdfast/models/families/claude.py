"""Claude's families, newest first.

1. Thinking by a budget of tokens came with 3.7 and ended with 4.5; from 4.6 on the model decides how much it thinks,
   and takes an effort. Newer families think unless they are told not to, and the newest cannot be told.
2. What a model thinks counts as output. So a budget is asked for on top of the length of the answer.
3. The thoughts of a `bound` family hold only for the exact instructions, tools and messages that they came after;
   see `wire/anthropic/thoughts.py`.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Literal, TypeAlias

from holdfast.models.families.family import Family, VendorPage, find_family, read_page

ThinkingKind: TypeAlias = Literal["none", "budget", "adaptive"]
ThinkingOff: TypeAlias = Literal["omit", "disabled", "between_tools", "never"]
"""How thinking is switched off: by not asking for it, by one of two words, or not at all."""
Forced: TypeAlias = Literal["unthinking", "never"]
"""Whether a model can be made to call a tool: while it does not think, or never."""

LOW_TO_HIGH = ("low", "medium", "high")


EVERY_EFFORT = (*LOW_TO_HIGH, "xhigh", "max")


class ClaudeFamily(Family, kw_only=True):
    """A row. The defaults are what most of the families take."""

    window: int = 200_000
    output_max: int = 128_000
    thinking: ThinkingKind = "adaptive"
    thinks_unasked: bool = False
    """It thinks if a request says nothing about thinking."""
    off: ThinkingOff = "omit"
    hides_thoughts: bool = False
    """It sends empty thoughts unless a request asks for a summary of them."""
    forced: Forced = "unthinking"
    efforts: tuple[str, ...] = EVERY_EFFORT
    sampling: bool = False
    """It takes `temperature` and `top_p`."""
    schema: bool = True
    """It answers by a schema."""
    prefill: bool = False
    """It goes on with an answer that a request ends with."""
    bound: bool = False
    interleaved: bool = False
    """A header lets it think between calls; later families always do."""
    length_counts_thoughts: bool = True


def _page(path: str) -> VendorPage:
    return read_page(f"https://platform.claude.com/docs/en/{path}")


TROUBLES = _page("build-with-claude/thinking-troubleshooting")
PREFIXES = _page("build-with-claude/preserved-thinking/prefix-checks")
MIGRATION = _page("about-claude/models/migration-guide")
EXTENDED = _page("build-with-claude/extended-thinking")
FABLE_5_2 = _page("models/fable-5-2/whats-new-fable-5-2")
FABLE_5 = _page("models/fable-5/introducing-claude-fable-5-and-claude-mythos-5")
OPUS_5_5 = _page("models/opus-5-5/whats-new-opus-5-5")
OPUS_5 = _page("models/opus-5/overview")
SONNET_5_5 = _page("models/sonnet-5-5/whats-new-sonnet-5-5")
HAIKU_5_5 = _page("models/haiku-5-5/whats-new-haiku-5-5")
GATEWAY = read_page("https://docs.apiyi.com/en/live/2026-11/claude-thinking-guide-refresh")
"""A gateway's notes of 2026-11-09 on the vendor's pages."""
HERMES = read_page(
    "https://github.com/NousResearch/hermes-agent/blob/main/agent/anthropic_adapter.py"
)
"""Another client's table, which names the vendor's documentation as its source."""

_COUNTS = (HAIKU_5_5, "length_counts_thoughts")
_THINKS = (TROUBLES, "thinking thinks_unasked off")
_FORCED = (EXTENDED, "forced")
_BOUND = (PREFIXES, "bound")
_TAKES = (HERMES, "efforts sampling")

# What the families of one generation have in common.
_unasked = partial(ClaudeFamily, window=1_000_000, thinks_unasked=True, hides_thoughts=True)
_unstoppable = partial(_unasked, off="never", forced="never", bound=True)
_efforted = partial(ClaudeFamily, efforts=(*LOW_TO_HIGH, "max"), sampling=True)
_early = partial(ClaudeFamily, schema=False, efforts=(), sampling=True, prefill=True)
_budgeted = partial(_early, thinking="budget", output_max=64_000)
_OF_BUDGETED = (
    _THINKS,
    (EXTENDED, "forced interleaved length_counts_thoughts"),
    _BOUND,
    (MIGRATION, "prefill"),
    (HERMES, "output_max efforts sampling"),
)
_OF_EFFORTED = (
    _THINKS,
    _FORCED,
    _BOUND,
    (MIGRATION, "prefill interleaved"),
    (HERMES, "output_max efforts sampling"),
    _COUNTS,
)
_OF_UNTHINKING = ((HERMES, "output_max thinking efforts sampling"), _BOUND)

FAMILIES: tuple[ClaudeFamily, ...] = (
    _unstoppable(
        names=("claude-fable-5-2", "claude-mythos-5-2"),
        sources=(
            (FABLE_5_2, "window output_max thinking thinks_unasked off bound"),
            (OPUS_5_5, "forced"),
            _TAKES,
            _COUNTS,
        ),
    ),
    _unstoppable(
        names=("claude-fable-5-1", "claude-mythos-5-1"),
        sources=(
            (OPUS_5, "window output_max thinking thinks_unasked"),
            (OPUS_5_5, "off forced"),
            _BOUND,
            _TAKES,
            _COUNTS,
        ),
    ),
    _unstoppable(
        names=("claude-opus-5-5",),
        sources=(
            (OPUS_5, "window output_max"),
            (OPUS_5_5, "thinking thinks_unasked off hides_thoughts forced"),
            _BOUND,
            _TAKES,
            _COUNTS,
        ),
    ),
    _unstoppable(
        names=("claude-sonnet-5-5",),
        off="between_tools",
        sources=(
            (OPUS_5, "window output_max"),
            (SONNET_5_5, "thinking thinks_unasked off hides_thoughts forced"),
            _BOUND,
            _TAKES,
            _COUNTS,
        ),
    ),
    _unasked(
        names=("claude-haiku-5-5",),
        off="disabled",
        bound=True,
        sources=(
            (HAIKU_5_5, "window output_max thinking hides_thoughts sampling prefill"),
            (GATEWAY, "thinks_unasked off"),
            _FORCED,
            _BOUND,
            (HERMES, "efforts"),
            _COUNTS,
        ),
    ),
    _unasked(
        names=("claude-opus-5", "claude-sonnet-5"),
        off="disabled",
        sources=((OPUS_5, "window output_max"), _THINKS, _FORCED, _BOUND, _TAKES, _COUNTS),
    ),
    _unasked(
        names=("claude-fable-5", "claude-mythos-5", "claude-mythos-preview"),
        off="never",
        forced="never",
        sources=((FABLE_5, "window output_max"), _THINKS, _BOUND, _TAKES, _COUNTS),
    ),
    ClaudeFamily(
        names=("claude-opus-4-8", "claude-opus-4-7"),
        hides_thoughts=True,
        sources=(
            *(_THINKS, _FORCED, _BOUND),
            (HERMES, "output_max efforts sampling"),
            _COUNTS,
        ),
    ),
    _efforted(names=("claude-opus-4-6",), sources=_OF_EFFORTED),
    _efforted(names=("claude-sonnet-4-6",), output_max=64_000, sources=_OF_EFFORTED),
    _budgeted(
        names=("claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"),
        schema=True,
        interleaved=True,
        sources=_OF_BUDGETED,
    ),
    _budgeted(
        names=("claude-opus-4", "claude-opus-4-0", "claude-opus-4-1", "claude-4-opus"),
        output_max=32_000,
        interleaved=True,
        sources=_OF_BUDGETED,
    ),
    _budgeted(
        names=("claude-sonnet-4", "claude-sonnet-4-0", "claude-4-sonnet"),
        interleaved=True,
        sources=_OF_BUDGETED,
    ),
    _budgeted(
        names=("claude-3-7-sonnet",),
        sources=(_THINKS, (EXTENDED, "forced interleaved length_counts_thoughts"), _BOUND, _TAKES),
    ),
    _early(
        names=("claude-3-5-sonnet", "claude-3-5-haiku"),
        output_max=8_192,
        thinking="none",
        sources=_OF_UNTHINKING,
    ),
    _early(
        names=(
            *("claude-3-opus", "claude-3-sonnet", "claude-3-haiku"),
            *("claude-2-1", "claude-2-0", "claude-1-3", "claude-instant-1-2", "claude-instant-1-1"),
        ),
        output_max=4_096,
        thinking="none",
        sources=_OF_UNTHINKING,
    ),
)

NEWEST = FAMILIES[0]

COMPATIBLE = ClaudeFamily(names=("",), output_max=32_000, off="disabled", prefill=True)
"""Models that are not Claude's, on servers that speak Anthropic's API: nothing is known of them."""


@lru_cache  # every request of a turn asks
def claude_family(model: str) -> ClaudeFamily | None:
    """The row of a model; None for a Claude that is newer than the table: it takes what `NEWEST` takes.

    Names on other platforms count, too: `anthropic.claude-opus-4-5-20251101-v1:0`, `claude-opus-4.5`.
    """
    name = model.lower().replace(".", "-")
    at = name.find("claude-")
    return COMPATIBLE if at < 0 else find_family(FAMILIES, name[at:])
