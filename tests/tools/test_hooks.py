"""What a hook's end means, and what it is given."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.tools.hooks import Hook, Hooks, Verdict, judged, run_hook
from holdfast.tools.process import Exit

SAID = [
    (Exit(output=b"", code=0), Verdict()),
    (Exit(output=b"all is well", code=0), Verdict()),
    (Exit(output=b"{}", code=0), Verdict()),
    (Exit(output=b'{"hook_specific_output": {"permission_decision": "allow"}}', code=0), Verdict()),
    (Exit(output=b'{"hook_specific_output": {"permission_decision": "ask"}}', code=0), Verdict(asks=True)),
    (Exit(output=b'{"hook_specific_output": {"updated_input": {"a": 1} }}', code=0), Verdict(arguments='{"a":1}')),
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


CLAUDE = b'{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "%s"%s}}'
NO = [
    b'{"decision": "block"}',
    b'{"decision": "deny"}',
    b'{"decision": "Deny", "reason": null}',
    b'{"Decision": "BLOCK"}',
    b'{"continue": false}',
    b'{"continue": false, "stopReason": "", "suppressOutput": true, "systemMessage": "stopped"}',
    CLAUDE % (b"deny", b""),
    CLAUDE % (b"Deny", b', "permissionDecisionReason": "no", "additionalContext": "see the wiki"'),
    CLAUDE % (b"deny", b', "updatedInput": {"a": 1}'),
    b'{"permissionDecision": "deny"}',
    b'{"decision": "approve", "hook_specific_output": {"permission_decision": "deny"}}',
    b'{"decision": "block", "hookSpecificOutput": {"permissionDecision": "allow"}}',
    b'\xef\xbb\xbf{"decision": "block"}',
    b'[INFO] loading rules\nchecked 3 rules\n{"decision": "block"}\n',
    b'loading\n{\n  "decision": "deny"\n}',
]


@pytest.mark.parametrize("answer", NO)
def test_a_no_is_a_no_in_every_dialect(answer: bytes) -> None:
    verdict = judged(Exit(output=answer, code=0))
    assert verdict.blocks is not None
    assert (verdict.arguments, verdict.asks, verdict.trouble) == (None, False, "")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (b'{"decision": "approve", "reason": "fine"}', Verdict()),
        (b'{"decision": "allow"}', Verdict()),
        (b'{"continue": true, "suppressOutput": false}', Verdict()),
        (b'{"suppress_output": true, "system_message": "hello"}', Verdict()),
        (CLAUDE % (b"allow", b', "permissionDecisionReason": "fine"'), Verdict()),
        (CLAUDE % (b"ask", b""), Verdict(asks=True)),
        (CLAUDE % (b"allow", b', "updatedInput": {"a": 1}'), Verdict(arguments='{"a":1}')),
        (b'{"hookSpecificOutput": null, "decision": null}', Verdict()),
        (b"\xef\xbb\xbf", Verdict()),
        (b"[INFO] nothing to see\nNo issues found.\n", Verdict()),
        (b"looked\n{}", Verdict()),
    ],
)
def test_what_agrees_in_every_dialect(answer: bytes, verdict: Verdict) -> None:
    assert judged(Exit(output=answer, code=0)) == verdict


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'{"hook_specific_output": {"updated_input": [1]}}', "has to be a JSON object"),
        (b'{"hook_specific_output": {"updated_input": "a"}}', "has to be a JSON object"),
        (
            b'{"hook_specific_output": {"updated_input": {"a": "%s"}}}' % (b"a" * 300_000),
            "into more than",
        ),
        (
            b'{"hook_specific_output": {"permission_decision": "perhaps"}}',
            "may be block, deny, ask",
        ),
        (b'{"decision": "nope"}', "may be block, deny, ask"),
        (b'{"decision": ["deny"]}', "has to be a text"),
        (b'{"decison": "block"}', "is 'decision' meant?"),
        (
            b'{"hook_specific_output": {"permissionDecisoin": "deny"}}',
            "is 'permissiondecision' meant?",
        ),
        (b'{"ok": false}', "'ok' is not known"),
        (b'{"updatedToolOutput": "x"}', "is not known"),
        (b'{"continue": "no"}', "has to be a boolean"),
        (b'{"continue": 0}', "has to be a boolean"),
        (b'{"continue": false', "no JSON"),
        (b'{"reason": "\xff"}', "not UTF-8"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b'{"decision": "approve", "decision": "block"}', "is there twice"),
        (b'{"decision": "approve", "Decision": "block"}', "is there twice"),
        (b'{"decision": "approve"}\n{"decision": "block"}', "comes after"),
        (b'{"decision": "approve"} but no', "comes after"),
        (b'[{"decision": "block"}]', "could be an answer"),
        (b'[\n{"decision": "block"}\n]', "could be an answer"),
        (b'["deny"]', "could be an answer"),
        (b"[]", "could be an answer"),
        (b'"deny"', "could be an answer"),
        (b"deny", "could be an answer"),
        (b"Denied: not on a Friday", "could be an answer"),
        (b"\x1b[31mDENIED\x1b[0m: rm", "could be an answer"),
        (b"\x1b[31m{\x1b[0m} and no", "comes after"),
        (b"[guard] 12:00:01 ERROR denied by rule 7", "could be an answer"),
        (b"This command is not allowed here.", "could be an answer"),
        ("❌ Refused".encode(), "could be an answer"),
        ("{}".encode("utf-16-le"), "not UTF-8"),
        ("deny".encode("utf-16-be"), "not UTF-8"),
        (b"false", "could be an answer"),
        (b"decision: block", "could be an answer"),
        (b'guard: {"decision": "block"}', "could be an answer"),
        (b'guard: {"decision": "block"}\n{}', "could be an answer"),
        (b'{"hook_specific_output": {"updated_input": {"a": NaN}}}', "NaN is no number"),
        (b'{"a":' * 100_000, "no JSON"),
    ],
)
def test_what_is_not_understood_is_a_no_that_says_so(answer: bytes, words: str) -> None:
    """A guard that is not understood must not look like one that agrees."""
    verdict = judged(Exit(output=answer, code=0))
    assert verdict.blocks is not None and words in verdict.blocks and words in verdict.trouble
    assert "it answered: " in verdict.blocks and "exit code 2" in verdict.blocks
    assert verdict.arguments is None and not verdict.asks


def test_an_answer_that_was_cut_is_not_understood() -> None:
    assert judged(Exit(output=b"a log, more of it", left_out=9, code=0)).blocks is not None


@given(st.recursive(
    st.none() | st.booleans() | st.text(max_size=8) | st.sampled_from(["deny", "allow", "block", "ask"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["decision", "continue", "hookSpecificOutput", "permissionDecision", "x"])
        | st.text(max_size=4),
        inner,
        max_size=3,
    ),
    max_leaves=6,
))  # fmt: skip
def test_no_answer_that_has_a_no_anywhere_is_a_yes(answer: object) -> None:
    """Whatever is made of these words: if one of them refuses, where it would count or not, the call is not run."""
    output = json.dumps(answer)
    verdict = judged(Exit(output=output.encode(), code=0))
    decides = re.search(r'"(?:deny|block)"', output) and isinstance(answer, dict | list)
    if decides and not re.search(r'"(?:deny|block)":', output):
        assert verdict.blocks is not None


def test_a_long_refusal_is_cut() -> None:
    blocks = judged(Exit(output=b"x" * 100_000, code=2)).blocks
    assert blocks is not None and len(blocks) == limits.hook_words_max


def test_a_matcher_is_for_the_whole_name() -> None:
    hooks = Hooks(
        every={"pre_tool_use": (Hook(command="a", matcher="shell|edit_.*"), Hook(command="b"))}
    )
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
    assert names <= {"PATH", "HOLDFAST_CALL_KEY", "PWD", "OLDPWD", "SHLVL", "_", "HOME", "TMPDIR"}


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
