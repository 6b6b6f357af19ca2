"""How the house is laid out, as rules that a test can check.

Every rule is a plain function from parsed modules to a list of complaints; no rule imports the
code it judges. `ROOMS` and `PURE_LIBRARIES` are the two tables to read: the first says which
room may lean on which, the second what the pure rooms may use.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = "holdfast"

MODULE_LINES_MAX = 800
FUNCTION_LINES_MAX = 100

BASE = frozenset({"environment", "errors", "ids", "limits", "printable"})
VALUES = BASE | {"core", "wire"}
SHELL = VALUES | {"aes_siv", "observe", "libraries", "version"}
PARTS = SHELL | {"models", "tools", "agents", "loop", "store", "sessions"}

ROOMS: Mapping[str, frozenset[str]] = {
    "environment": frozenset(),
    "errors": frozenset(),
    "limits": frozenset(),
    "libraries": frozenset(),
    "aes_siv": frozenset({"libraries"}),
    "version": frozenset(),
    "help_text": frozenset(),
    "printable": frozenset(),
    "ids": frozenset({"errors", "limits"}),
    "core": BASE,
    "wire": BASE | {"core"},
    "client": BASE | {"core", "wire"},
    "observe": BASE,
    "store": SHELL,
    "models": SHELL,
    "tools": SHELL,
    "agents": SHELL | {"models", "tools"},
    "loop": SHELL | {"models", "tools", "agents"},
    "sessions": SHELL | {"store.outcomes", "store.store", "store.rows"},
    "config": PARTS,
    "console": BASE,
    "server": PARTS | {"config", "console"},
    "peers": SHELL | {"store"},
    "integrations": SHELL | {"store.outcomes", "store.store", "sessions"},
    "cli": PARTS | {"client", "config", "console", "peers", "server", ROOT},
    "testing": PARTS,
    "__main__": frozenset({"cli", "help_text", "version"}),
    ROOT: PARTS | {"client", "config", "server"},
}
"""Which rooms each room may import, besides itself. `holdfast` is the package's own front door."""

PURE_ROOMS = BASE | {"core", "wire"}

PURE_LIBRARIES = frozenset(
    """
    __future__ abc base64 binascii bisect collections contextlib copy dataclasses datetime decimal
    difflib enum fractions functools graphlib hashlib heapq hmac html ipaddress itertools math
    msgspec numbers operator re string struct textwrap types typing typing_extensions unicodedata
    urllib.parse zlib
    """.split()
)
"""What computes values from values. Anything that is not here has a clock, a die or a file in it."""

IMPURE_CALLS = frozenset({"open", "print", "input", "breakpoint", "eval", "exec", "__import__"})
CLOCK_READS = frozenset({"now", "utcnow", "today"})
UNSAFE_LIBRARIES = frozenset({"pickle", "marshal", "shelve", "dill", "cloudpickle"})
PORTS = "holdfast.core.ports"
"""Describes what the shell does, waiting included, and does none of it."""

LAZY_MODULES = frozenset(
    {
        "holdfast.__main__",
        "holdfast.cli",
        "holdfast",
        "holdfast.store.store_url",
        "holdfast.tools.mcp.lazy_sdk",
        "holdfast.observe.trace_export",
        "holdfast.server.access.seals",
        "holdfast.server.http.websocket_upgrade",
    }
)
"""The places that load others late: `--help`, which is kept ready; the command table and the front door, whose names would otherwise bring a store
and an event loop along to every `holdfast --help`; whoever opens a store, which may need a driver that is not
installed; the MCP SDK, an extra that few agents need and that takes most of a second; WebSockets, which most
servers never speak; and a cipher, which few requests need."""


EAGER_MODULES = frozenset(
    {"holdfast.sessions.admission.steered_requests", "holdfast.wire.openai.chat.chunks"}
)
"""Their types are learnt at import: a small one, and those by which every chunk of most models is read."""

SUPERVISOR = "holdfast.observe.supervisor"
"""Starts what lives as long as the process."""

STARTS = frozenset(
    """
    create_task ensure_future run_coroutine_threadsafe Thread Timer start_new_thread ThreadPoolExecutor
    ProcessPoolExecutor
    """.split()
)
"""Calls that start a task or a thread."""

BRIEF: Mapping[str, str] = {
    "holdfast.agents.registry.Registry.refresh": "ends with the group that it is in",
    "holdfast.cli.acp.editor.Editor._take": "one request of an editor, which ends with its connection",
    "holdfast.cli.acp.prompts.Prompts._answered": "the answers to some calls, which their prompt waits for",
    "holdfast.cli.setup.agent_logins._show": "one browser, which a login does not wait for",
    "holdfast.cli.stdio.mcp.McpBridge._hear": "one request of a host, which waits for it",
    "holdfast.cli.talk.interrupts.stopping.on_interrupt": "one request, of a command",
    "holdfast.cli.tour.scenes.together": "two requests, of a command",
    "holdfast.loop.player._Playing._start": "one effect of a turn, which waits for it",
    "holdfast.server.http.exchange.Exchange.gone": "ends with its request",
    "holdfast.server.http.exchange.Exchange.unless_gone": "ends with its request",
    "holdfast.server.processes.server_process.HttpServer.reload": "one reload, which tells what it could not read",
    "holdfast.server.processes.server_process.HttpServer.shutdown": "the drain, which the server waits for",
    "holdfast.server.openai.responses_socket.ResponsesSockets._talk": "one request of a socket, which waits for it",
    "holdfast.server.http.websocket.WebSocket.messages": "ends with its socket",
    "holdfast.server.http.websocket._any_of": "waits of its caller, who ends them",
    "holdfast.sessions.manual_turns._opened": "a wait of its caller, who ends it",
    "holdfast.sessions.turns.owner.Owner.take_on": "one turn, which its owner sees through",
    "holdfast.sessions.turns.recorder.Recorder._start_draining": "one append, which its turn waits for",
    "holdfast.sessions.turns.received_answers.ReceivedAnswers.note": "one note, which closing waits for",
    "holdfast.sessions.stateless_turns.StatelessTurns.submit": "one turn, which draining waits for",
    "holdfast.sessions.turns.watch.paused": "a wait of its caller, who ends it",
    "holdfast.store.postgres.groups.StatementGroup._go_on": "one statement, whose callers wait for it",
    "holdfast.store.postgres.pool.Pool.give": "the end of one connection, which closing waits for",
    "holdfast.store.postgres.hints.PostgresHints.tell": "one statement, which may be lost",
    "holdfast.store.postgres.loop_engines.LoopEngines.engine": "does nothing until its loop ends",
    "holdfast.tools.mcp.connection.McpConnection._greet": "a wait of its caller, who ends it",
    "holdfast.tools.mcp.connection._ServerRun.__init__": "one life of a server that calls need; its failure is told to them",
    "holdfast.tools.mcp.connection._ServerRun.wait_end": "a wait of its caller, who ends it",
    "holdfast.tools.mcp.connection._ServerRun.wait_for": "a wait of its caller, who ends it",
    "holdfast.tools.process.RunningCommand.__init__": "ends with its command, which a call or a job waits for",
    "holdfast.tools.toolsets.background_jobs._Job.__init__": "one job, which its toolset ends",
    "holdfast.tools.threads.in_thread": "one function, whose caller waits for it",
}
"""Where else tasks and threads are started, and what they end with."""


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    name: str
    tree: ast.Module
    lines: int

    @property
    def room(self) -> str:
        return room_of(self.name)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All that is in it: each rule looks at all of it."""
        return tuple(ast.walk(self.tree))

    def at(self, node: ast.stmt | ast.expr | ast.ExceptHandler, complaint: str) -> str:
        return f"{self.name}:{node.lineno}: {complaint}"


@dataclass(frozen=True)
class Imported:
    """One module that another one imports, and where it does so."""

    name: str
    node: ast.stmt


def parse(name: str, source: str) -> Module:
    return Module(name, ast.parse(source), len(source.splitlines()))


def read_package(package: Path) -> dict[str, Module]:
    """Every module below `package`, by its dotted name."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = parse(name, path.read_text(encoding="utf-8"))
    return modules


def room_of(name: str) -> str:
    """The room a module of ours is in: `core` for `holdfast.core.turns.turn`."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else ROOT


def imports(module: Module, known: Iterable[str] = ()) -> Iterator[Imported]:
    """Everything that a module imports, wherever in it.

    `from a import b` means the module `a.b` if there is one among `known`, and `a` otherwise.
    """
    names = frozenset(known)
    for node in module.nodes:
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Imported(alias.name, node)
            case ast.ImportFrom():
                source = node.module or ""
                for alias in node.names:
                    inner = f"{source}.{alias.name}"
                    yield Imported(inner if inner in names else source, node)


def is_ours(name: str) -> bool:
    return name == ROOT or name.startswith(f"{ROOT}.")


# The rules that look at one module.


def room_rule(module: Module, known: Iterable[str] = ()) -> list[str]:
    """Imports go down only, and every room is on the map."""
    if module.room not in ROOMS:
        return [f"{module.name}:1: room '{module.room}' is not on the map in tests/architecture.py"]
    allowed = ROOMS[module.room]
    return [
        module.at(imported.node, f"{module.room} may not import {imported.name}")
        for imported in imports(module, known)
        if is_ours(imported.name)
        and room_of(imported.name) != module.room
        and not _allows(allowed, imported.name)
    ]


def _allows(allowed: frozenset[str], name: str) -> bool:
    """A room is allowed as a whole (`store`) or by one of its modules (`store.base`)."""
    if name == ROOT:
        return ROOT in allowed
    path = name.split(".")[1:]
    return any(".".join(path[:depth]) in allowed for depth in range(1, len(path) + 1))


def purity_rule(module: Module) -> list[str]:
    """Pure rooms compute: no clock, randomness, logging, threads or I/O."""
    if module.room not in PURE_ROOMS:
        return []
    complaints = [
        module.at(imported.node, f"{imported.name} is not pure")
        for imported in imports(module, {"urllib.parse"})
        if not is_ours(imported.name) and not _is_pure(imported.name)
    ]
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                complaints.append(module.at(node, f"{name}() is not pure"))
            case ast.Attribute(attr=name) if name in CLOCK_READS:
                complaints.append(module.at(node, f".{name} reads a clock"))
            case ast.AsyncFunctionDef() if module.name != PORTS:
                complaints.append(module.at(node, "nothing pure has to wait"))
    return complaints


def _is_pure(name: str) -> bool:
    return name in PURE_LIBRARIES or name.split(".")[0] in PURE_LIBRARIES


def relative_rule(module: Module) -> list[str]:
    """Imports are absolute, so that a line can be searched for and moved."""
    return [
        module.at(node, "relative import")
        for node in module.nodes
        if isinstance(node, ast.ImportFrom) and node.level
    ]


def lazy_rule(module: Module) -> list[str]:
    """Imports are at the top, where they can be seen; and no module makes its names up when asked."""
    if module.name in LAZY_MODULES:
        return []
    complaints = [
        module.at(inner, f"import inside {function.name}()")
        for function in _functions(module)
        for inner in ast.walk(function)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]
    return complaints + [
        module.at(function, "names that are loaded late")
        for function in _functions(module)
        if function.name == "__getattr__" and function.args.args[0].arg != "self"
    ]


def decoder_rule(module: Module) -> list[str]:
    """A decoder that is made at import learns its type at the first value, as `core.codec.Decoder` and `BodyDecoder` do."""
    if module.name in EAGER_MODULES:
        return []
    inside = {id(node) for function in _functions(module) for node in ast.walk(function)}
    return [
        module.at(node, "a decoder that learns its type at import")
        for node in module.nodes
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "msgspec.json.Decoder"
        and id(node) not in inside
    ]


def pickle_rule(module: Module) -> list[str]:
    """Nothing is deserialised by a library that runs what it reads."""
    return [
        module.at(imported.node, f"{imported.name} runs what it reads")
        for imported in imports(module)
        if imported.name.split(".")[0] in UNSAFE_LIBRARIES
    ]


def length_rule(module: Module) -> list[str]:
    """What does not fit in a head is two things."""
    complaints = []
    if module.lines > MODULE_LINES_MAX:
        complaints.append(f"{module.name}:1: {module.lines} lines, at most {MODULE_LINES_MAX}")
    for function in _functions(module):
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if lines > FUNCTION_LINES_MAX:
            complaint = f"{function.name}() has {lines} lines, at most {FUNCTION_LINES_MAX}"
            complaints.append(module.at(function, complaint))
    return complaints


def swallow_rule(module: Module) -> list[str]:
    """Who catches everything passes it on: raises again, or hands the error to somebody."""
    complaints = []
    for node in module.nodes:
        match node:
            case ast.ExceptHandler() if _is_broad(node.type) and not _passes_on(node):
                complaints.append(module.at(node, "catches everything and swallows it"))
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")):
                if any(_is_broad(argument) for argument in node.args):
                    complaints.append(module.at(node, "suppresses everything"))
    return complaints


def _is_broad(kind: ast.expr | None) -> bool:
    match kind:
        case None:
            return True
        case ast.Name(id=name):
            return name in {"Exception", "BaseException"}
        case ast.Tuple(elts=kinds):
            return any(_is_broad(each) for each in kinds)
        case _:
            return False


def _passes_on(handler: ast.ExceptHandler) -> bool:
    inner = [node for statement in handler.body for node in ast.walk(statement)]
    return any(
        isinstance(node, ast.Raise)
        or (isinstance(node, ast.Name) and handler.name is not None and node.id == handler.name)
        for node in inner
    )


def raise_rule(module: Module) -> list[str]:
    """An error that a frame holds is let go of when it is raised: `try: raise error` … `finally: del error`.

    Else the error holds the frame, by its traceback, and the frame the error: a cycle, with everything in the frame.
    """
    if module.room == "testing":
        return []
    return [
        module.at(node, f"{ast.unparse(node)}: the frame and the error hold each other")
        for function in _functions(module)
        for node in ast.walk(function)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Name | ast.Subscript | ast.BoolOp)
        and _names(node.exc) & _held(function) - _let_go(function, node)
    ]


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _held(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names of a frame. That of an `except` is let go of at the end of its block."""
    arguments = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    return arguments | {
        each.id
        for each in ast.walk(function)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


def _let_go(function: ast.AST, node: ast.Raise) -> set[str]:
    """What is deleted on the way out."""
    return {
        name
        for each in ast.walk(function)
        if isinstance(each, ast.Try) and any(inner is node for inner in ast.walk(each))
        for last in each.finalbody
        if isinstance(last, ast.Delete)
        for name in _names(last)
    }


def start_rule(module: Module) -> list[str]:
    """What lives as long as the process is started by the supervisor; who starts anything else says what ends it."""
    if module.name == SUPERVISOR or module.room == "testing":
        return []
    return [
        module.at(call, f"{place} starts a task or thread that nobody supervises")
        for place, call in starts(module)
        if place not in BRIEF
    ]


def starts(module: Module) -> Iterator[tuple[str, ast.Call]]:
    """Every call that starts a task or a thread, with the function that it is in."""

    def search(node: ast.AST, place: str) -> Iterator[tuple[str, ast.Call]]:
        for inner in ast.iter_child_nodes(node):
            match inner:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    yield from search(inner, f"{place}.{name}")
                    continue
                case ast.ClassDef(name=name):
                    yield from search(inner, f"{place}.{name}")
                    continue
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in STARTS:
                    yield place, inner
            yield from search(inner, place)

    return search(module.tree, module.name)


def untyped_rule(module: Module) -> list[str]:
    """Raw dictionaries end at the edge; in the core everything has a type."""
    if module.room != "core":
        return []
    return [
        module.at(node, f"{ast.unparse(node)} in the core")
        for node in module.nodes
        if isinstance(node, ast.Subscript) and _is_untyped_mapping(node)
    ]


def _is_untyped_mapping(node: ast.Subscript) -> bool:
    kind, arguments = ast.unparse(node.value), node.slice
    return (
        kind.split(".")[-1] in {"dict", "Dict", "Mapping", "MutableMapping"}
        and isinstance(arguments, ast.Tuple)
        and ast.unparse(arguments.elts[-1]).split(".")[-1] == "Any"
    )


def _functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


MODULE_RULES: tuple[Callable[[Module], list[str]], ...] = (
    purity_rule,
    relative_rule,
    lazy_rule,
    decoder_rule,
    pickle_rule,
    length_rule,
    swallow_rule,
    start_rule,
    raise_rule,
    untyped_rule,
)


# The rule that looks at all of them.


def cycle_rule(modules: Mapping[str, Module]) -> list[str]:
    """No module needs, in the end, itself."""
    graph = {
        name: {each.name for each in imports(module, modules) if is_ours(each.name)} - {name}
        for name, module in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [f"import cycle: {' → '.join(reversed(error.args[1]))}"]
    return []
