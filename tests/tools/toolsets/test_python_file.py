"""Functions of a Python file as tools: what is offered, and what a broken file does."""

from __future__ import annotations

import py_compile
from pathlib import Path

import pytest

from holdfast.tools.tool import absence_of, instruction_of
from holdfast.tools.toolsets.python_file import PythonToolset

TWO = '''
from __future__ import annotations
from dataclasses import dataclass
from holdfast import tool

@dataclass
class Wine:
    name: str

@tool(read_only=True)
def pour(glasses: int) -> str:
    """Pour wine."""
    return Wine("Riesling").name * glasses

def taste(wine: str) -> str:
    """Taste it."""
    return wine
'''


async def names(toolset: PythonToolset) -> list[str]:
    return [each.spec.name for each in await toolset.tools()]


async def test_decorated_functions_are_offered_or_those_that_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "tools.py"
    path.write_text(TWO)
    assert await names(PythonToolset(path)) == ["pour"]
    assert await names(PythonToolset(path, ("taste", "pour"))) == ["taste", "pour"]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def (", "SyntaxError"),
        ("raise RuntimeError('no wine')", "RuntimeError: no wine"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("x = 1", "no function in it has @tool"),
        ("import neighbour", "No module named 'neighbour'"),
    ],
)
async def test_a_file_that_cannot_be_loaded_says_why_and_is_tried_again(
    tmp_path: Path, source: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tools.py"
    path.write_text(source)
    (tmp_path / "neighbour.py").write_text("")
    toolset = PythonToolset(path)
    assert await names(toolset) == []
    assert why in absence_of(toolset) and why in instruction_of(toolset)
    path.write_text(TWO)
    assert await names(toolset) == ["pour"]
    assert absence_of(toolset) == ""
    failed, back = [each.getMessage() for each in caplog.records]
    assert failed.startswith("tools of tools.py: it fails: ") and why in failed
    assert back == "tools of tools.py: it works again, after 1 failure"


async def test_a_function_that_is_not_there_is_told_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tools.py"
    path.write_text(TWO)
    toolset = PythonToolset(path, ("drink",))
    assert await names(toolset) == []
    assert "it has no function 'drink'" in absence_of(toolset)


async def test_a_compiled_copy_beside_the_file_is_not_run(tmp_path: Path) -> None:
    """A tool may have written it."""
    path, other = tmp_path / "tools.py", tmp_path / "other.py"
    path.write_text(TWO)
    other.write_text(TWO.replace("def pour", "def poison"))
    py_compile.compile(str(other), cfile=str(tmp_path / "__pycache__" / "tools.cpython-311.pyc"))
    py_compile.compile(str(other), cfile=str(tmp_path / "tools.pyc"))
    assert await names(PythonToolset(path)) == ["pour"]
