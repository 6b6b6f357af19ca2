"""How a turn ends, and what becomes of it."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest

from holdfast.core.items import EndedBy
from holdfast.core.policy import (
    Choice,
    Policy,
    Verdict,
    allowed,
    decide,
    parse_policy,
    resolve_policy,
)
from holdfast.errors import InvalidPolicy

ENDS: tuple[EndedBy, ...] = get_args(EndedBy)
PLAIN = resolve_policy(promised_return=False)
PROMISED = resolve_policy(promised_return=True)

# ── reading ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", Policy()),
        (" , ", Policy()),
        ("cancel=keep", Policy(cancel="keep")),
        (
            "cancel = discard,disconnect=finish , crash=resume",
            Policy(cancel="discard", disconnect="finish", crash="resume"),
        ),
    ],
)
def test_a_policy_is_read_from_a_header(text: str, policy: Policy) -> None:
    assert parse_policy(text) == policy


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cancel", "'cancel': name an end: cancel, disconnect, .*did you mean 'cancel'"),
        ("cancle=keep", "did you mean 'cancel'"),
        ("weather=keep", "name an end: cancel, disconnect, deadline, error, limit, crash$"),
        ("cancel=finish", "cancel can be: keep, discard, auto$"),
        ("disconnect=finnish", "disconnect can be: .*did you mean 'finish'"),
        ("cancel=keep,cancel=keep", "'cancel' is given twice"),
        ("crash=finish", "crash can be: keep, discard, auto, resume"),
        ("=keep", "name an end"),
    ],
)
def test_what_is_not_a_policy_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(InvalidPolicy, match=why):
        parse_policy(text)


def test_every_allowed_pair_can_be_said() -> None:
    for end, choices in allowed.items():
        for choice in choices:
            assert getattr(parse_policy(f"{end}={choice}"), end) == choice


# ── layers ───────────────────────────────────────────────────────────────────────────────────


def test_the_layer_nearest_to_the_request_wins() -> None:
    server = Policy(cancel="discard", limit="discard")
    request = Policy(cancel="auto")
    resolved = resolve_policy(server, Policy(), request, promised_return=False)
    assert (resolved.cancel, resolved.limit, resolved.deadline) == ("auto", "discard", "auto")


def test_a_client_that_will_come_back_has_its_turn_finished_and_resumed() -> None:
    assert (PLAIN.disconnect, PLAIN.crash) == ("auto", "auto")
    assert (PROMISED.disconnect, PROMISED.crash) == ("finish", "resume")


def test_what_a_layer_says_wins_over_a_promised_return() -> None:
    resolved = resolve_policy(Policy(disconnect="discard"), promised_return=True)
    assert (resolved.disconnect, resolved.crash) == ("discard", "resume")


# ── deciding ─────────────────────────────────────────────────────────────────────────────────

DEFAULTS: dict[EndedBy, tuple[Verdict, Verdict]] = {
    # by                 not acted  acted
    "completed": ("keep", "keep"),
    "cancelled": ("keep", "keep"),
    "disconnected": ("discard", "keep"),
    "deadline": ("discard", "keep"),
    "model_error": ("discard", "keep"),
    "tool_error": ("discard", "keep"),
    "limit": ("keep", "keep"),
    "crash": ("discard", "keep"),
    "superseded": ("discard", "discard"),
    "shutdown": ("discard", "keep"),
    "deleted": ("discard", "discard"),
}


@pytest.mark.parametrize("by", ENDS)
def test_without_a_word_from_anybody_this_becomes_of_a_turn(by: EndedBy) -> None:
    verdicts = tuple(decide(PLAIN, by, acted=acted) for acted in (False, True))
    assert verdicts == DEFAULTS[by]


def test_a_promised_return_changes_disconnects_crashes_and_shutdowns_only() -> None:
    changed = {
        by: decide(PROMISED, by, acted=acted)
        for by, acted in product(ENDS, (False, True))
        if decide(PROMISED, by, acted=acted) != decide(PLAIN, by, acted=acted)
    }
    assert changed == {"disconnected": "finish", "crash": "resume", "shutdown": "resume"}


@pytest.mark.parametrize(("end", "by"), [("cancel", "cancelled"), ("error", "tool_error")])
@pytest.mark.parametrize("acted", [False, True])
def test_auto_keeps_what_has_acted_and_nothing_else(end: str, by: EndedBy, acted: bool) -> None:
    choice: Choice = "auto"
    policy = resolve_policy(Policy(**{end: choice}), promised_return=False)
    assert decide(policy, by, acted=acted) == ("keep" if acted else "discard")


def test_a_policy_that_was_not_resolved_decides_nothing() -> None:
    with pytest.raises(AssertionError, match="says nothing about cancelled"):
        decide(Policy(), "cancelled", acted=False)
