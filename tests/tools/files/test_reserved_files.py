"""What a command runs, by its words; and what belongs to a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.tools.files.reserved_files import files_run_by


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("guard.sh", "rules.txt", "hooks/guard.py", "hooks/deny.txt", "run"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    (tmp_path / "run").chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "found", "as_guard"),
    [
        ("./guard.sh", {"guard.sh"}, set()),
        ("sh guard.sh rules.txt", {"guard.sh"}, {"rules.txt"}),
        ("A=1 B=./guard.sh sh -c 'exec $B'", {"guard.sh"}, set()),
        ("cat rules.txt | ./run", {"run"}, {"rules.txt"}),
        (
            "cd hooks && python3 guard.py --list=deny.txt",
            {"hooks/guard.py", "guard.py"},
            {"hooks/deny.txt"},
        ),
        ("bash -c 'cd hooks; python guard.py'", {"hooks/guard.py", "guard.py"}, set()),
        ("python3 -m hooks.guard", {"hooks/guard.py"}, set()),
        ("./later.sh", {"later.sh"}, set()),
        ("node tools/later.js", {"tools/later.js"}, set()),
        ("echo 'unbalanced", set(), set()),
        ("grep -r hooks .", set(), set()),
        ("cd hooks && ./later", {"hooks/later"}, set()),
    ],
)
def test_what_a_command_names_is_what_it_runs(
    home: Path, command: str, found: set[str], as_guard: set[str]
) -> None:
    for all_named, expected in ((False, found), (True, found | as_guard)):
        files = files_run_by([command], home, all_named=all_named)
        below = {str(Path(each).relative_to(home)) for each in files if each.startswith(f"{home}/")}
        assert expected <= below and not below & ({"rules.txt", "hooks/deny.txt"} - expected)


def test_a_word_is_no_module_unless_a_command_says_so(home: Path) -> None:
    (home / "main.py").write_text("")
    assert not files_run_by(["git push origin main"], home, all_named=True) & {f"{home}/main.py"}


def test_a_program_of_the_system_is_found_where_it_lies(home: Path) -> None:
    (found,) = files_run_by(["sh -c true"], home, all_named=True)
    assert found.endswith("/sh")


def test_a_file_that_the_output_goes_to_is_reserved(tmp_path: Path) -> None:
    """Whoever could write the log could write what it says."""
    code = "from holdfast.tools.files.reserved_files import of_process; print(*of_process().files)"
    path = tmp_path / "server.log"
    with path.open("wb") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert str(path) in path.read_text()
