"""What a hook's end means, and what it is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.tools.hooks import Hook, Hooks, Verdict, judged, run_hook
from holdfast.tools.process import Exit

SAID = [
    (Exit(output=b"", code=0), Verdict()),
    (Exit(output=b"all is well", code=0), Verdict()),
    (Exit(output=b"{}", code=0), Verdict()),
    (Exit(output=b'{"hook_specific_output": {"permission_decision": "allow"}}', code=0), Verdict()),
    (Exit(output=b'{"hook_specific_output": {"permission_decision": "ask"}}', code=0), Verdict(asks=True)),
    (Exit(output=b'{"hook_specific_output": {"updated_input": {"a": 1} }}', code=0), Verdict(arguments='{"a": 1}')),
    (Exit(output=b'{"hook_specific_output": {"updated_input": null}}', code=0), Verdict()),
    (Exit(output=b"", errors=b"not today\n", code=2), Verdict(blocks="not today")),
    (Exit(output=b"not today\n", code=2), Verdict(blocks="not today")),
    (Exit(output=b"", code=2), Verdict(blocks="it says no")),
    (Exit(output=b'{"continue": false, "stop_reason": "enough"}', code=0), Verdict(blocks="enough")),
    (Exit(output=b'{"decision": "block", "reason": "no"}', code=0), Verdict(blocks="no")),
    (
        Exit(
            output=b'{"hook_specific_output": {"permission_decision": "deny", "permission_decision_reason": "no"}}',
            code=0,
        ),
        Verdict(blocks="no"),
    ),
    (Exit(output=b"", errors=b"oops", code=1), Verdict(trouble="ended with exit code 1: oops")),
    (Exit(output=b"", code=0, killed_by=9), Verdict(trouble="ended with signal 9")),
    (Exit(output=b"", why_stopped="did not finish within 1 s"), Verdict(trouble="did not finish within 1 s")),
]  # fmt: skip


@pytest.mark.parametrize(("ended", "verdict"), SAID)
def test_what_a_hooks_end_means(ended: Exit, verdict: Verdict) -> None:
    assert judged(ended) == verdict


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'{"hook_specific_output": {"updated_input": [1]}}', "into something that is no object"),
        (b'{"hook_specific_output": {"updated_input": "a"}}', "into something that is no object"),
        (
            b'{"hook_specific_output": {"updated_input": {"a": "%s"}}}' % (b"a" * 300_000),
            "into more than",
        ),
        (b'{"hook_specific_output": {"permission_decision": "perhaps"}}', "not known here"),
        (b'{"continue": "no"}', "cannot be read"),
        (b'{"continue": false', "cannot be read"),
        (b'{"reason": "\xff"}', "cannot be read"),
    ],
)
def test_what_we_cannot_do_is_trouble_and_never_silence(answer: bytes, words: str) -> None:
    """A guard that is not understood must not look like one that agrees."""
    verdict = judged(Exit(output=answer, code=0))
    assert verdict.blocks is None
    assert words in verdict.trouble


def test_a_long_refusal_is_cut() -> None:
    blocks = judged(Exit(output=b"x" * 100_000, code=2)).blocks
    assert blocks is not None and len(blocks) == limits.hook_words_max


def test_a_matcher_is_for_the_whole_name() -> None:
    hooks = Hooks(pre_tool_use=(Hook(command="a", matcher="shell|edit_.*"), Hook(command="b")))
    told = {
        tool: "".join(hook.command for hook in hooks.of("pre_tool_use", tool=tool))
        for tool in ("shell", "shell2", "edit_file", "Shell")
    }
    assert told == {"shell": "ab", "shell2": "b", "edit_file": "ab", "Shell": "b"}


async def test_it_reads_what_happened_and_sees_little_else(tmp_path: Path) -> None:
    hooks = Hooks(directory=tmp_path, environment={"PATH": "/usr/bin:/bin"})
    hook = Hook(command="cat > told.json; env | cut -d= -f1 | sort > names; echo noise >&2")
    verdict = await run_hook(hooks, hook, "session_start", {"session_id": "conv_1"}, mark="m1")
    assert verdict == Verdict()
    assert json.loads((tmp_path / "told.json").read_text()) == {
        "session_id": "conv_1",
        "hook_event_name": "session_start",
        "cwd": str(tmp_path),
    }
    names = set((tmp_path / "names").read_text().split())
    assert names <= {"PATH", "HOLDFAST_CALL_KEY", "PWD", "OLDPWD", "SHLVL", "_"}


async def test_one_that_does_not_read_and_one_that_is_slow(tmp_path: Path) -> None:
    hooks = Hooks(directory=tmp_path, environment={"PATH": "/usr/bin:/bin"})
    large = {"tool_response": "x" * 1_000_000}
    assert (
        await run_hook(hooks, Hook(command="true"), "on_user_input", large, mark="m") == Verdict()
    )
    slow = Hook(command="sleep 60", timeout_s=0.05)
    verdict = await run_hook(hooks, slow, "on_user_input", {}, mark="m2")
    assert verdict.trouble == "did not finish within 0.05 s"


async def test_one_that_cannot_be_started() -> None:
    hooks = Hooks(directory=Path("/nowhere"), environment={})
    verdict = await run_hook(hooks, Hook(command="true"), "on_user_input", {}, mark="m")
    assert verdict.trouble.startswith("could not be started")
