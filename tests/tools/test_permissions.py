"""deny wins over ask, ask over allow; what changes things needs a rule; only the operator allows.

Rules about arguments are checked against parsed arguments: what allows is read to the letter, what forbids widely.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.items import Permissions
from holdfast.tools.permissions import (
    NarrowedPermissions,
    Permission,
    Safety,
    parsed_arguments,
    permission_for,
    read_rule,
)
from holdfast.tools.tool import Json, ToolSpec

READS = ToolSpec(name="read_file", description="", parameters="{}", read_only=True)
WRITES = ToolSpec(name="write_file", description="", parameters="{}")

NONE = Permissions()


def allow(*patterns: str) -> Permissions:
    return Permissions(allow=patterns)


def ask(*patterns: str) -> Permissions:
    return Permissions(ask=patterns)


def deny(*patterns: str) -> Permissions:
    return Permissions(deny=patterns)


@pytest.mark.parametrize(
    ("tool", "rules", "said"),
    [
        (READS, NONE, "allow"),
        (WRITES, NONE, "deny"),
        (WRITES, allow("write_file"), "allow"),
        (WRITES, allow("write_*"), "allow"),
        (WRITES, allow("*"), "allow"),
        (WRITES, allow("write_fil?"), "allow"),
        (WRITES, allow("[rw]*"), "allow"),
        (WRITES, allow("write"), "deny"),
        (WRITES, allow("xwrite_file", "write_filex"), "deny"),
        (WRITES, allow(""), "deny"),
        (WRITES, allow("write_file:path=/tmp/*"), "deny"),
        (WRITES, ask("write_*"), "ask"),
        (READS, ask("read_*"), "ask"),
        (WRITES, Permissions(allow=("*",), ask=("write_file",)), "ask"),
        (WRITES, Permissions(allow=("*",), ask=("*",), deny=("write_file",)), "deny"),
        (READS, deny("*"), "deny"),
        # a rule that allows is read to the letter, one that protects whatever the case
        (WRITES, allow("Write_File"), "deny"),
        (WRITES, Permissions(allow=("*",), deny=("Write_File",)), "deny"),
        (WRITES, Permissions(allow=("*",), deny=("WRITE_*",)), "deny"),
        (WRITES, Permissions(allow=("*",), ask=("WRITE_?ILE",)), "ask"),
        (READS, deny("READ_*"), "deny"),
        (READS, deny("[A-z]ead_file"), "deny"),
    ],
)
def test_what_the_operators_rules_say(tool: ToolSpec, rules: Permissions, said: Permission) -> None:
    assert permission_for(tool, rules, arguments={}) == said


@pytest.mark.parametrize(
    ("operator", "narrowing", "said"),
    [
        (allow("*"), NarrowedPermissions(), "allow"),
        (allow("*"), NarrowedPermissions(ask=("write_*",)), "ask"),
        (allow("*"), NarrowedPermissions(deny=("WRITE_*",)), "deny"),
        (ask("*"), NarrowedPermissions(deny=("write_file",)), "deny"),
        (NONE, NarrowedPermissions(ask=("write_file",)), "deny"),
        (deny("*"), NarrowedPermissions(ask=("write_file",)), "deny"),
    ],
)
def test_everything_else_narrows(
    operator: Permissions, narrowing: NarrowedPermissions, said: Permission
) -> None:
    """A question opens nothing: what the operator did not allow cannot be approved."""
    assert permission_for(WRITES, operator, narrowing, arguments={}) == said


PATTERNS = st.lists(
    st.sampled_from(["*", "write_file", "Write_*", "read_file", "?ead_*", "x"]), max_size=3
).map(tuple)
RULES = st.builds(Permissions, allow=PATTERNS, ask=PATTERNS, deny=PATTERNS, granted=PATTERNS)
ORDER: tuple[Permission, ...] = ("deny", "ask", "allow")


@given(st.sampled_from([READS, WRITES]), RULES, st.lists(RULES, max_size=3))
def test_no_settings_say_more_than_the_operator(
    tool: ToolSpec, operator: Permissions, settings: list[Permissions]
) -> None:
    narrowed = permission_for(tool, operator, *map(NarrowedPermissions.of, settings), arguments={})
    assert ORDER.index(narrowed) <= ORDER.index(permission_for(tool, operator, arguments={}))


# ── rules about arguments ──

SHELL = ToolSpec(name="shell", description="", parameters="{}")
GIT = allow("shell:cmd=git *")


def said_of(rules: Permissions, tool: ToolSpec = SHELL, **arguments: Json) -> Permission:
    return permission_for(tool, rules, arguments=arguments)


def test_a_rule_is_a_name_and_conditions() -> None:
    rule = read_rule("shell:cmd=git push origin a:b:cwd=/srv/*")
    assert (rule.name, rule.conditions) == (
        "shell",
        (("cmd", "git push origin a:b"), ("cwd", "/srv/*")),
    )
    assert read_rule("fetch:urls=https://example.org/*").conditions == (
        ("urls", "https://example.org/*"),
    )
    assert read_rule("mcp:github:*").name == "mcp:github:*"


def test_a_command_that_fits_may_run_and_no_other() -> None:
    assert said_of(GIT, cmd="git status") == "allow"
    for cmd in ("rm -rf /", "gitk", "Git status", " git status", "", "sudo git status"):
        assert said_of(GIT, cmd=cmd) == "deny", cmd
    assert said_of(GIT) == "deny"
    assert said_of(GIT, cmd=None) == "deny"
    assert said_of(GIT, cmd={"git ": 1}) == "deny"


JOINTS = [
    ";", "&&", "&", "||", "|", "|&", "$(", "`", "\n", "\r", "\r\n", ">", ">>", "<", "<(", ">(", "<<<", "${", "$((", "$'", '$"', "$[",
    "\0", "\x0b", "\x0c", "\x1b", "\x7f", "\x85", "\u2028", "\u2029",
]  # fmt: skip


@pytest.mark.parametrize("joint", JOINTS)
@pytest.mark.parametrize("form", ["git a{}rm -rf /", "git a {} rm", "git {}", "git 'a{}b'"])
def test_what_may_be_more_than_one_command_is_allowed_by_no_rule_about_it(
    joint: str, form: str
) -> None:
    command = form.format(joint)
    assert said_of(GIT, cmd=command) == "deny"
    assert said_of(allow("shell:cmd=*"), cmd=command) == "deny"
    assert said_of(allow("shell"), cmd=command) == "allow", "the operator allows all commands"


@given(st.text(max_size=20), st.sampled_from(JOINTS), st.text(max_size=20))
def test_no_text_around_a_joint_hides_it(before: str, joint: str, after: str) -> None:
    assert said_of(GIT, cmd=f"git {before}{joint}{after}") == "deny"


def test_all_conditions_have_to_hold() -> None:
    rules = allow("shell:cmd=ls*:cwd=.")
    assert said_of(rules, cmd="ls -l", cwd=".") == "allow"
    assert said_of(rules, cmd="ls -l", cwd="/") == "deny"
    assert said_of(rules, cmd="ls -l") == "deny"


def test_a_path_that_climbs_is_allowed_by_no_rule_about_it() -> None:
    rules = allow("write_file:path=/notes/*")
    assert said_of(rules, WRITES, path="/notes/a..b.md") == "allow"
    for path in ("/notes/../etc/passwd", "/notes/..", "/notes/a/../../etc/x", "/notes/..\\x"):
        assert said_of(rules, WRITES, path=path) == "deny", path


def test_of_a_list_every_entry_has_to_fit_what_allows_and_one_what_forbids() -> None:
    rules = Permissions(allow=("write_file:to=a*",), deny=("write_file:to=*secret*",))
    assert said_of(rules, WRITES, to=["a1", "a2"]) == "allow"
    assert said_of(rules, WRITES, to=["a1", "b"]) == "deny"
    assert said_of(rules, WRITES, to=[]) == "deny"
    assert said_of(rules, WRITES, to=["a1", "a Secret"]) == "deny"


def test_numbers_are_read_as_they_are_written() -> None:
    assert said_of(allow("write_file:line=1?"), WRITES, line=12) == "allow"
    assert said_of(allow("write_file:again=true"), WRITES, again=True) == "allow"


@pytest.mark.parametrize(
    "cmd",
    ["rm -rf /", "RM -rf /", "  rm -rf /", "ls; rm -rf /", "ls && rm x", "(rm x)", "echo `rm x`", "a=$(rm x)", "ls\nrm x"],
)  # fmt: skip
def test_what_forbids_a_command_finds_it_among_others(cmd: str) -> None:
    assert said_of(Permissions(allow=("*",), deny=("shell:cmd=rm*",)), cmd=cmd) == "deny"
    assert said_of(Permissions(allow=("*",), ask=("shell:cmd=rm*",)), cmd=cmd) == "ask"


@pytest.mark.parametrize(
    "cmd",
    ["rm\t-rf x", "rm  -rf x", "a=1 rm x", "sudo -n rm x", "/bin/rm x", "./rm x", "\\rm x", "r''m x", "'rm' x", '"rm" x', "env A=b rm x",
     "xargs rm x", "sh -c 'rm x'", "/bin/bash -ec 'cd /; rm x'", "if true; then rm x; fi", "! rm x", "time rm x", "{ rm x; }", "(a; (rm x))",
     "command rm x", "nice -n 5 rm x", "exec rm x", "while rm x; do :; done", "echo x | sudo rm x", "timeout 5 rm x",
     # behind options of what runs it, and behind other programs that do
     "sudo -u root rm x", "env -u A rm x", "env - rm x", "xargs -a f rm x", "find . | xargs rm", "exec -a a rm x", "eval 'rm x'",
     "find . -exec rm {} +", "find . -name '*.c' -execdir /bin/rm {} \\;", "su root -c 'rm x'", "busybox rm x", "strace -f rm x",
     "watch rm x", "script -qc 'rm x' f", "flock f rm x", "parallel rm ::: x", "ssh host rm x", "docker exec -it a rm x",
     "poetry run rm x", "git -c core.pager='rm x' log", "git -c alias.a='!rm x' a", "tar --to-command='rm x' -xf f", "trap 'rm x' EXIT",
     "A='a b' rm x", "A=\"$(a)\" rm x", "python3 -c 'import os; os.system(\"rm x\")'", "awk 'BEGIN{system(\"rm x\")}'",
     # around redirections, in functions, cases and other processes
     "> f rm x", "2>/dev/null rm x", "<f rm x", "cat <(rm x)", "f() { rm x; }; f", "case a in a) rm x;; esac",
     # in words that the shell makes
     "rm\\\n x", "$'rm' x", "$'\\x72m' x", "$'\\162m' x", "$'\\u0072m' x", "rm${IFS}x", "rm$IFS$9x", "{rm,x}", "r{m,m} x",
     "a=rm; $a x", "a=m; r${a} x", "$a x", "sudo $a x", "$(echo rm) x", "`echo rm` x", "r$@m x", "/bin/r? x", "/bin/[r]m x", "r* x"],
)  # fmt: skip
def test_what_forbids_a_command_finds_it_in_other_dress(cmd: str) -> None:
    assert said_of(Permissions(allow=("*",), deny=("shell:cmd=rm *",)), cmd=cmd) == "deny"


@pytest.mark.parametrize(
    "cmd",
    ["git commit -m 'rm x'", "echo rm x", "rmdir x", "ls rm x", "a=1", "git rm x", "docker rm x", "echo $a", "$HOME/bin/a x", "ls *",
     "for a in *; do echo $a; done", "a=$(ls); echo $a", "grep -r rm ."],
)  # fmt: skip
def test_a_word_of_another_command_is_no_command(cmd: str) -> None:
    assert said_of(Permissions(allow=("*",), deny=("shell:cmd=rm *",)), cmd=cmd) == "allow"


@pytest.mark.parametrize(
    "cmd", ["sudo " * 4_000, "sudo " + "x " * 10_000, "a=$a " * 4_000, "{a," * 6_000, "a" * 40_000]
)
def test_a_long_command_costs_no_more_than_its_length(cmd: str) -> None:
    rules = Permissions(allow=("*",), deny=("shell:cmd=rm *",))
    began = time.process_time()
    assert said_of(rules, cmd=cmd) == "allow"
    assert time.process_time() - began < 10, "with work for each pair of words it takes minutes"


@pytest.mark.parametrize(
    "cmd",
    ["cat ..", "cat ../x", "cat a ../x", 'cat ".."/x', "cat .'.'/x", "cat .\\./x", "cat --in=../x"],
)
def test_a_command_with_a_path_that_climbs_is_allowed_by_no_rule_about_it(cmd: str) -> None:
    assert said_of(allow("shell:cmd=cat *"), cmd=cmd) == "deny"


@pytest.mark.parametrize("cmd", ["go test ./...", "git log a..b", "git log a...b"])
def test_a_range_is_no_path_that_climbs(cmd: str) -> None:
    assert said_of(allow("shell:cmd=g*"), cmd=cmd) == "allow"


def test_what_forbids_a_path_reads_it_in_its_plain_form() -> None:
    rules = Permissions(allow=("*",), deny=("write_file:path=/etc/*",))
    assert said_of(rules, WRITES, path="/notes/../etc/passwd") == "deny"
    assert said_of(rules, WRITES, path="/notes/me") == "allow"


def test_a_rule_about_arguments_that_allows_is_more_than_a_question_about_the_tool() -> None:
    rules = Permissions(allow=("shell:cmd=git *",), ask=("shell",))
    assert said_of(rules, cmd="git status") == "allow"
    assert said_of(rules, cmd="rm x") == "ask"
    both = Permissions(allow=("shell:cmd=git *",), ask=("shell:cmd=git push*",))
    assert said_of(both, cmd="git push") == "ask"
    session = NarrowedPermissions(ask=("shell",))
    assert permission_for(SHELL, rules, session, arguments={"cmd": "git status"}) == "ask"


def test_arguments_that_are_no_object_fit_no_condition() -> None:
    for text in ("", "[]", "{", '"git a"', "1"):
        assert parsed_arguments(text) == {}
    assert parsed_arguments('{"cmd":"git a"}') == {"cmd": "git a"}


# ── what no rule names ──


@pytest.mark.parametrize(
    ("safety", "reads", "writes"),
    [
        ("strict", "ask", "ask"),
        ("balanced", "allow", "ask"),
        ("restricted", "allow", "deny"),
        ("autonomous", "allow", "allow"),
    ],
)
def test_the_operator_chooses_what_becomes_of_the_rest(
    safety: Safety, reads: Permission, writes: Permission
) -> None:
    assert permission_for(READS, arguments={}, safety=safety) == reads
    assert permission_for(WRITES, arguments={}, safety=safety) == writes
    assert permission_for(WRITES, allow("*"), arguments={}, safety=safety) == "allow"
    assert permission_for(WRITES, deny("*"), arguments={}, safety=safety) == "deny"
    assert permission_for(WRITES, ask("*"), arguments={}, safety=safety) == "ask"
