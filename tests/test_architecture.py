"""The house keeps its shape; and every rule that says so can fail."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest

from tests import architecture
from tests.architecture import Module, parse
from tests.repository import ROOT

SOURCE = ROOT / "src" / "holdfast"
PAGE = ROOT / "ARCHITECTURE.md"

ROOM_MODULES_MAX = 15
"""With more modules than this a room is worth dividing by subject."""


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    """Ours, by name."""
    return architecture.read_package(SOURCE)


def test_imports_go_down_only(modules: dict[str, Module]) -> None:
    complaints = (architecture.room_rule(module, modules) for module in modules.values())
    assert list(chain.from_iterable(complaints)) == []


@pytest.mark.parametrize("rule", architecture.MODULE_RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_the(
    modules: dict[str, Module], rule: Callable[[Module], list[str]]
) -> None:
    assert [complaint for module in modules.values() for complaint in rule(module)] == []


def test_no_module_needs_itself(modules: dict[str, Module]) -> None:
    assert architecture.cycle_rule(modules) == []


# From here on the rules themselves are on trial.


KNOWN = frozenset(
    {
        "holdfast",
        "holdfast.limits",
        "holdfast.core",
        "holdfast.core.ports",
        "holdfast.loop",
        "holdfast.sessions",
        "holdfast.store",
        "holdfast.store.outcomes",
        "holdfast.store.sqlite",
    }
)


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("holdfast.core.turns.turn", "from holdfast.core.items import Item"),
        ("holdfast.core.turns.turn", "from holdfast import limits"),
        ("holdfast.wire.openai.chat.messages", "import holdfast.core.items"),
        ("holdfast.store.sqlite.engine.writer", "from holdfast.store.outcomes import Store"),
        ("holdfast.sessions.admission.lanes", "from holdfast.store.outcomes import Store"),
        ("holdfast.sessions.admission.lanes", "from holdfast.store import outcomes"),
        ("holdfast.sessions.admission.lanes", "from holdfast.core.ports import OpenTurn"),
        ("holdfast.loop.player", "from holdfast.agents import Agent"),
        ("holdfast.server.app", "from holdfast.store.sqlite import SqliteStore"),
        ("holdfast.cli.commands.db", "from holdfast import __version__"),
    ],
)
def test_a_room_may_lean_on_those_below(importer: str, line: str) -> None:
    assert architecture.room_rule(parse(importer, line), KNOWN) == []


@pytest.mark.parametrize(
    ("importer", "line"),
    [
        ("holdfast.core.turns.turn", "from holdfast.wire.openai.chat.messages import Chunk"),
        ("holdfast.core.turns.turn", "from holdfast.store import outcomes"),
        ("holdfast.core.turns.turn", "from holdfast import Turn"),
        ("holdfast.ids", "import holdfast.core"),
        ("holdfast.wire.openai.chat.messages", "import holdfast.observe"),
        ("holdfast.models.model", "from holdfast.tools.tool import Tool"),
        ("holdfast.loop.player", "from holdfast.sessions.turns.lease import Lease"),
        ("holdfast.loop.player", "from holdfast import sessions"),
        ("holdfast.sessions.admission.lanes", "from holdfast.loop import player"),
        ("holdfast.sessions.admission.lanes", "from holdfast.store.sqlite import SqliteStore"),
        ("holdfast.sessions.admission.lanes", "from holdfast.store import sqlite"),
        ("holdfast.sessions.admission.lanes", "from holdfast.store import MemoryStore"),
        ("holdfast.config", "from holdfast.server.app import app"),
        ("holdfast.server.app", "from holdfast.testing import ManualClock"),
        ("holdfast.server.app", "def app():\n    import holdfast.cli"),
        ("holdfast.attic", "import re"),
    ],
)
def test_an_import_that_goes_up_or_sideways_is_seen(importer: str, line: str) -> None:
    assert architecture.room_rule(parse(importer, line), KNOWN)


def test_a_cycle_is_seen_however_long_it_is() -> None:
    sources = {
        "holdfast.core.a": "from holdfast.core.b import B",
        "holdfast.core.b": "from holdfast.core import c",
        "holdfast.core.c": "import holdfast.core.a",
    }
    modules = {name: parse(name, source) for name, source in sources.items()}
    [complaint] = architecture.cycle_rule(modules)
    assert all(name in complaint for name in sources)

    modules["holdfast.core.c"] = parse("holdfast.core.c", "import re")
    assert architecture.cycle_rule(modules) == []


@pytest.mark.parametrize(
    "source",
    [
        "import hashlib, msgspec, re",
        "from collections.abc import Iterator",
        "from urllib.parse import quote",
        "from urllib import parse",
        "from datetime import datetime\nthen = datetime.fromtimestamp(0)",
        "from holdfast.core.items import Item",
    ],
)
@pytest.mark.parametrize("room", ["core", "wire"])
def test_values_from_values_are_pure(room: str, source: str) -> None:
    assert architecture.purity_rule(parse(f"holdfast.{room}.sample", source)) == []


@pytest.mark.parametrize(
    "source",
    [
        *(
            f"import {library}"
            for library in (
                "asyncio io json logging os os.path pathlib random secrets socket sqlite3"
                " subprocess sys tempfile threading time urllib.request uuid apsw click"
            ).split()
        ),
        "from os import path",
        "from urllib import request",
        "def f():\n    import time",
        "from datetime import datetime\nat = datetime.now()",
        "from datetime import date\nread = date.today",
        "text = open('notes').read()",
        "print('here')",
    ],
)
@pytest.mark.parametrize("room", ["core", "wire"])
def test_a_clock_a_die_or_a_file_in_a_pure_room_is_seen(room: str, source: str) -> None:
    assert architecture.purity_rule(parse(f"holdfast.{room}.sample", source))
    assert architecture.purity_rule(parse("holdfast.server.sample", source)) == []


def test_waiting_belongs_to_the_shell_and_ports_only_describe_it() -> None:
    waiting = "async def wait(): ..."
    assert architecture.purity_rule(parse("holdfast.wire.sse", waiting))
    assert architecture.purity_rule(parse("holdfast.core.turns.turn", waiting))
    assert architecture.purity_rule(parse("holdfast.core.ports", waiting)) == []


LONG_FUNCTION = "def f():\n" + "    x = 1\n" * architecture.FUNCTION_LINES_MAX
FAIR_FUNCTION = "def f():\n" + "    x = 1\n" * (architecture.FUNCTION_LINES_MAX - 1)
LONG_MODULE = "x = 1\n" * (architecture.MODULE_LINES_MAX + 1)
FAIR_MODULE = "x = 1\n" * architecture.MODULE_LINES_MAX
GUARDED = "try:\n    f()\nexcept {}"


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (architecture.relative_rule, "from . import x", "from holdfast.core import x"),
        (architecture.lazy_rule, "def f():\n    import re", "import re"),
        (architecture.lazy_rule, "async def f():\n    from re import sub", "if 1:\n    import re"),
        (
            architecture.decoder_rule,
            "import msgspec\nread = msgspec.json.Decoder(int).decode",
            "def f():\n    return msgspec.json.Decoder(int)",
        ),
        (architecture.pickle_rule, "import pickle", "import msgspec"),
        (architecture.pickle_rule, "from marshal import loads", "from msgspec import json"),
        (architecture.length_rule, LONG_FUNCTION, FAIR_FUNCTION),
        (architecture.length_rule, LONG_MODULE, FAIR_MODULE),
        (
            architecture.swallow_rule,
            GUARDED.format(":\n    pass"),
            GUARDED.format("OSError:\n    pass"),
        ),
        (
            architecture.swallow_rule,
            GUARDED.format("Exception:\n    log()"),
            GUARDED.format("Exception:\n    log()\n    raise"),
        ),
        (
            architecture.swallow_rule,
            GUARDED.format("BaseException as error:\n    pass"),
            GUARDED.format("BaseException as error:\n    future.set_exception(error)"),
        ),
        (
            architecture.swallow_rule,
            GUARDED.format("(OSError, Exception):\n    pass"),
            GUARDED.format("(OSError, ValueError):\n    pass"),
        ),
        (
            architecture.swallow_rule,
            "with contextlib.suppress(Exception): f()",
            "with contextlib.suppress(OSError): f()",
        ),
        (
            architecture.raise_rule,
            "def f():\n    error = made()\n    raise error",
            "def f():\n    error = made()\n    try:\n        raise error\n    finally:\n        del error",
        ),
        (
            architecture.raise_rule,
            "def f(failures):\n    raise failures[0] or other()",
            "def f():\n    try:\n        g()\n    except E as error:\n        raise made() from error",
        ),
        (
            architecture.start_rule,
            "def f():\n    asyncio.create_task(sweep())",
            "supervisor.keep('sweeper', sweep)",
        ),
        (
            architecture.start_rule,
            "class A:\n    def f(self):\n        Thread(target=main).start()",
            "start_thread('writer', main)",
        ),
        (architecture.untyped_rule, "x: dict[str, Any]", "x: dict[str, int]"),
        (architecture.untyped_rule, "x: list[Mapping[str, typing.Any]]", "x: list[str]"),
    ],
)
def test_each_rule_tells_bad_from_good(
    rule: Callable[[Module], list[str]], bad: str, good: str
) -> None:
    assert rule(parse("holdfast.core.sample", bad))
    assert rule(parse("holdfast.core.sample", good)) == []


def test_what_may_be_started_without_a_supervisor_is_started(modules: dict[str, Module]) -> None:
    """A line that is left over would let the next task of that name in."""
    started = {place for module in modules.values() for place, _ in architecture.starts(module)}
    assert set(architecture.BRIEF) <= started


def test_every_rule_is_on_trial_above_and_at_work() -> None:
    rules = {value for name, value in vars(architecture).items() if name.endswith("_rule")}
    assert rules == {*architecture.MODULE_RULES, architecture.room_rule, architecture.cycle_rule}


@pytest.mark.parametrize(
    "name", ["holdfast.cli", "holdfast", "holdfast.store.store_url", "holdfast.tools.mcp.lazy_sdk"]
)
def test_the_command_table_the_front_door_and_two_extras_alone_may_import_late(name: str) -> None:
    for late in ("def f():\n    import holdfast.server", "def __getattr__(name): ..."):
        assert architecture.lazy_rule(parse(name, late)) == []
        assert architecture.lazy_rule(parse("holdfast.cli.commands.db", late))
    assert (
        architecture.lazy_rule(
            parse("holdfast.cli.commands.db", "class A:\n def __getattr__(self, x): ...")
        )
        == []
    )


def test_a_package_is_read_whole(tmp_path: Path) -> None:
    package = tmp_path / "holdfast"
    (package / "core").mkdir(parents=True)
    for name in ("__init__.py", "ids.py", "core/__init__.py", "core/turn.py"):
        (package / name).write_text("")
    names = {"holdfast", "holdfast.ids", "holdfast.core", "holdfast.core.turn"}
    assert set(architecture.read_package(package)) == names


def test_the_map_names_every_room_and_every_module() -> None:
    """ARCHITECTURE.md is where a newcomer looks for a file."""
    rows = re.findall(
        r"^\| `([\w/]+)/` \|.*\|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    named = {(SOURCE.parent if room == "holdfast" else SOURCE) / room: cell for room, cell in rows}
    rooms = {each.parent for each in SOURCE.rglob("*.py")}
    assert set(named) == rooms, "each room has one row"
    for room, cell in named.items():
        modules = [each.stem for each in room.glob("*.py") if each.stem != "__init__"]
        assert re.findall(r"`(\w+)`", cell) == sorted(modules), f"the modules of {room}"
    assert len(rows) == len(rooms)


def test_no_room_has_more_modules_than_a_glance_can_hold() -> None:
    rooms = Counter(each.parent for each in SOURCE.rglob("*.py") if each.stem != "__init__")
    assert {room: count for room, count in rooms.items() if count > ROOM_MODULES_MAX} == {}


def test_a_public_type_has_a_name_of_its_own(modules: dict[str, Module]) -> None:
    """One word means one thing in the whole tree."""
    names = Counter(
        each.name
        for module in modules.values()
        for each in module.tree.body
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []
