"""The repository is complete in itself: it names no machine, no package index, no loose version."""

from __future__ import annotations

import ast
import hashlib
import re
import tomllib

import pytest
import yaml

from tests import repository

LOCKS = ["requirements.txt", "requirements-dev.txt"]
PEERS = sorted(
    f"bench/peers/{lock.name}" for lock in (repository.ROOT / "bench" / "peers").glob("*.txt")
)
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""The hash of the licence as the Apache Software Foundation publishes it."""

# Written in pieces, because this file is searched too.
HOMES = re.compile(r"(?<![\w.:/-])/(?:" + "home|Users|root|work|private|mnt|srv" + r")/\w")
REGISTRIES = re.compile(
    r"\b(?:"
    + "|".join(["py" + "pi", "python" + "hosted", "registry" + r"\.npmjs", "npm" + "js"])
    + r")\.(?:org|com|io)\b",
    re.IGNORECASE,
)
INDEX_LINES = re.compile(r"--(?:extra-)?index-" + r"url[ =]\S|--find-" + r"links[ =]\S")


def strays(text: str) -> list[str]:
    """What in a text belongs to one machine or one package index."""
    checkout = [str(repository.ROOT)] if str(repository.ROOT) in text else []
    patterns = (HOMES, REGISTRIES, INDEX_LINES)
    return checkout + [match[0] for pattern in patterns for match in pattern.finditer(text)]


def unhashed(lock: str) -> list[str]:
    """The requirements of a lock that are not pinned to a version and at least one hash."""
    entries = re.split(r"\n(?=\S)", lock.strip())
    return [
        entry.split()[0]
        for entry in entries
        if not re.match(r"[\w.\[\]-]+==\S+", entry) or "--hash=sha256:" not in entry
    ]


def pinned(lock: str) -> dict[str, str]:
    """The version of each requirement in a lock."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))


def read(name: str) -> str:
    return (repository.ROOT / name).read_text(encoding="utf-8")


def test_no_file_names_a_machine_or_a_package_index() -> None:
    texts = {
        path: path.read_bytes().decode("utf-8", errors="replace") for path in repository.files()
    }
    assert {path: found for path, text in texts.items() if (found := strays(text))} == {}


@pytest.mark.parametrize("name", [*LOCKS, *PEERS])
def test_every_requirement_is_pinned_by_hash(name: str) -> None:
    lock = read(name)
    assert unhashed(lock) == []
    assert "://" not in lock


def test_both_locks_agree_and_hold_what_the_project_asks_for() -> None:
    runtime, dev = (pinned(read(name)) for name in LOCKS)
    assert runtime.items() <= dev.items()

    project = tomllib.loads(read("pyproject.toml"))
    assert _names(project["project"]["dependencies"]) <= runtime.keys()
    assert _names(project["dependency-groups"]["dev"]) <= dev.keys()


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", requirement)[0] for requirement in requirements}


def test_the_licence_is_apache_2() -> None:
    assert hashlib.sha256(read("LICENSE").encode()).hexdigest() == APACHE_2
    assert tomllib.loads(read("pyproject.toml"))["project"]["license"] == "Apache-2.0"


# From here on the checks themselves are on trial.


@pytest.mark.parametrize(
    "text",
    [
        "see /ho" + "me/ada/notes",
        "cd /wo" + "rk/tree",
        str(repository.ROOT),
        "https://py" + "pi.org/simple",
        "https://files.python" + "hosted.org/packages",
        "--index-" + "url https://example.org/simple",
        "--extra-index-" + "url=https://example.org",
        "--find-" + "links wheels",
    ],
)
def test_a_stray_is_seen(text: str) -> None:
    assert strays(f"first line\n{text}\n")


@pytest.mark.parametrize("text", ["GET /v1/models", "src/home/x", "/path/to/python", "work/home"])
def test_what_only_looks_like_one_is_not(text: str) -> None:
    assert strays(text) == []


def test_a_requirement_without_version_or_hash_is_seen() -> None:
    good = "a==1 ; python_version < '3.12' \\\n    --hash=sha256:00\n"
    assert unhashed(good) == []
    assert unhashed(good + "b==2\n" + good) == ["b==2"]
    assert unhashed("c>=1 \\\n    --hash=sha256:00\n") == ["c>=1"]


def test_no_message_names_a_file_of_the_source_tree() -> None:
    """An operator of an installed server has `--help` and the documentation, and no `docs/` to open."""
    named = [
        f"{path.relative_to(repository.ROOT)}: {each}"
        for path in sorted((repository.ROOT / "src").rglob("*.py"))
        for each in told(path.read_text())
        if re.search(r"(?<![\w./])docs/", each)
    ]
    assert named == []


def told(source: str) -> list[str]:
    """The texts in a module that are not documentation of it."""
    tree = ast.parse(source)
    alone = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    return [
        each.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in alone
    ]


def test_documentation_is_told_from_messages() -> None:
    source = 'def f():\n    """docs/a.md"""\n    raise E("see docs/b.md" f"{x} docs/c.md")\n'
    assert told(source) == ["see docs/b.md", " docs/c.md"]


def test_a_forge_runs_what_is_run_here() -> None:
    """The workflow has no steps of its own that could drift away from ours."""
    workflow = yaml.safe_load(
        (repository.ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    )
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    ran = [step["run"] for step in steps if "run" in step]
    home = "${{ github.server_url }}/${{ github.repository }}"
    assert ran == [".ci/run", f'make release ARGS="--home {home}"']
    targets = re.findall(
        r"^([a-z-]+):", (repository.ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert "release" in targets and (repository.ROOT / ".ci/run").stat().st_mode & 0o100
