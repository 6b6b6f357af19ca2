"""Who is measured: how a system is started before the upstream, and how a turn is asked of it.

    bare        a proxy of the same parts, one synced row per turn and no promises (`serving/bare.py`)
    Holdfast    as `holdfast serve` starts it, on SQLite: every turn a transaction
    LiteLLM     its proxy, which stores nothing; in an environment of its own
    and everybody of `systems/` who can be asked by one request, as it is set up for the scenarios

To add one, describe it there; or here: a name, a command, and the function that makes its requests
(`serving/requests.py`).
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from _figures import BARE, OURS
from msgspec import Struct
from serving.requests import Asking, words
from systems import environments
from systems.base import INSTRUCTIONS, TOOL, TOOL_ABOUT, Asked, NotOffered, Place, System
from systems.roster import SYSTEMS, named

BENCH = Path(__file__).parents[1]

MODELS = ("flat1000", "flat200", "paced", "short", "idle")
"""What the upstream can be asked for; see `serving/upstream.py`."""


Past = Literal["kept", "sent again", "out of reach"]
"""What becomes of a conversation: the server keeps it; its client sends it again; or it takes more than one request."""


class Command(Struct, frozen=True):
    """How a server is started."""

    argv: Sequence[str]
    environment: Mapping[str, str] = {}


class Subject(Struct, frozen=True):
    """A system that can be measured."""

    name: str
    command: Callable[[int, int, Path], Command]
    """From its own port, the upstream's, and a folder of its own on a real disk."""
    version: Callable[[], str]
    environment: str = ""
    """The lock in `peers/` that it is installed from; none for what is here anyway."""
    request: str = "serving.requests:chat"
    past: Past = "kept"

    @property
    def is_here(self) -> bool:
        return environments.is_built(self.environment)


# ── the bare proxy ───────────────────────────────────────────────────────────────────────────


def _bare(port: int, upstream: int, folder: Path) -> Command:
    script = str(BENCH / "serving" / "bare.py")
    return Command([sys.executable, script, str(port), str(upstream), str(folder / "bare.db")])


def bare_turns() -> Subject:
    """The bare proxy with our T1 and T2: it answers JSON turns, and takes part in nothing else."""
    return Subject("bare proxy with turns", _bare_turns, lambda: "", past="sent again")


def _bare_turns(port: int, upstream: int, folder: Path) -> Command:
    script = str(BENCH / "serving" / "bare_turns.py")
    arguments = [str(port), str(upstream), str(folder / "bare-turns.db")]
    return Command([sys.executable, script, *arguments], {"PYTHONPATH": str(BENCH)})


# ── Holdfast ─────────────────────────────────────────────────────────────────────────────────

AGENTS = """
models:
  {name}: {{provider: bench, model: {name}}}
providers:
  bench: {{base_url: "http://127.0.0.1:{port}/v1"}}
agents:
  {name}:
    model: {name}
    instruction: {instructions}
    toolsets:
      - type: script
        shell:
          {tool}:
            cmd: "true"
            description: {about}
            args:
              amount: {{type: integer}}
permissions:
  allow: [{tool}]
"""
"""As in the scenarios: the peers have these instructions and this tool, too. Nobody calls it here."""


def holdfast_on(store: str) -> Subject:
    """Holdfast on this store, which others may use as well."""
    return Subject(OURS, partial(_holdfast, store=store), lambda: "")


def _holdfast(port: int, upstream: int, folder: Path, *, store: str = "") -> Command:
    files = [folder / f"{name}.yaml" for name in MODELS]
    for name, file in zip(MODELS, files, strict=True):
        agent = AGENTS.format(
            name=name, port=upstream, instructions=INSTRUCTIONS, tool=TOOL, about=TOOL_ABOUT
        )
        file.write_text(agent)
    command = [str(Path(sys.executable).with_name("holdfast")), "serve", *map(str, files)]
    store = store or f"sqlite:///{folder}/ours.db"
    return Command([*command, "--listen", f"127.0.0.1:{port}", "--store", store])


# ── LiteLLM ──────────────────────────────────────────────────────────────────────────────────

LITELLM_MODEL = """
  - model_name: {name}
    litellm_params: {{model: openai/{name}, api_base: "http://127.0.0.1:{port}/v1", api_key: bench}}
"""


def _litellm(port: int, upstream: int, folder: Path) -> Command:
    models = "".join(LITELLM_MODEL.format(name=name, port=upstream) for name in MODELS)
    config = folder / "litellm.yaml"
    config.write_text(f"model_list:{models}")
    command = [str(environments.python_of("litellm").with_name("litellm")), "--config", str(config)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    quiet = {
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        # Nobody is asked for a key here, so that nobody spends time on one.
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    return Command(command, quiet)


def everybody() -> list[Subject]:
    return [
        Subject(BARE, _bare, lambda: "", past="sent again"),
        Subject(OURS, _holdfast, lambda: importlib.metadata.version("holdfast")),
        Subject(
            "LiteLLM",
            _litellm,
            lambda: environments.versions("litellm", ["litellm"])["litellm"],
            environment="litellm",
            past="sent again",
        ),
        *_peers(),
    ]


# ── everybody else ───────────────────────────────────────────────────────────────────────────


BEGINNERS = frozenset({"ogx"})
"""Whose one request begins a conversation, and cannot go on with one."""


def _peers() -> Iterator[Subject]:
    """The first variant of each system that is one request away: the one that its users begin with."""
    seen = {OURS.lower(), "litellm"}  # described above
    for system in SYSTEMS:
        if system.name not in seen and not system.needs_postgres and _is_one_request(system):
            seen.add(system.name)
            yield Subject(
                system.title,
                partial(_started_as_in_scenarios, system),
                partial(_version, system),
                environment=system.environment,
                request=f"speed.subjects:asking:{system.name}",
                past="out of reach" if system.name in BEGINNERS else "kept",
            )


def _is_one_request(system: System) -> bool:
    try:
        system.request(Asked("bench", "bench"))
    except NotOffered:
        return False
    return True


def _started_as_in_scenarios(system: System, port: int, upstream: int, folder: Path) -> Command:
    nowhere = f"http://127.0.0.1:{upstream}"
    place = Place(folder, f"http://127.0.0.1:{upstream}/v1", nowhere, nowhere, port, model="bench")
    system.prepare(place)
    return Command(system.command(place), system.env(place))


def _version(system: System) -> str:
    found = environments.versions(system.environment, system.packages)
    return ", ".join(found.values())


def asking(name: str) -> Asking:
    """How a system of that name is asked for a turn: see `serving/requests.py`."""
    system = named(name)[0]

    def ask(model: str, conversation: str, stream: bool, *, past: int = 0) -> bytes:
        assert not past, "these keep their conversations"
        return system.request(Asked(conversation, words(model), stream=stream)).raw()

    return ask
