"""Who is measured: how a system is started before the upstream, and how a turn is asked of it.

    bare        a proxy of the same parts, one synced row per turn and no promises (`serving/bare.py`)
    Holdfast    as `holdfast serve` starts it, on SQLite: every turn a transaction
    LiteLLM     its proxy, which stores nothing; in an environment of its own

To add one, describe it here: a name, a command, and the function that makes its requests (`serving/requests.py`).
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import _peers
from _figures import BARE, OURS
from msgspec import Struct

BENCH = Path(__file__).parents[1]

MODELS = ("flat1000", "paced", "short", "idle")
"""What the upstream can be asked for; see `serving/upstream.py`."""


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
    missing: Callable[[], str] = str
    """How to install it, if it is not there; nothing if it is."""
    request: str = "serving.requests:chat"
    keeps: bool = True
    """Whether it keeps conversations. Otherwise its clients have to send everything again."""


# ── the bare proxy ───────────────────────────────────────────────────────────────────────────


def _bare(port: int, upstream: int, folder: Path) -> Command:
    script = str(BENCH / "serving" / "bare.py")
    return Command([sys.executable, script, str(port), str(upstream), str(folder / "bare.db")])


# ── Holdfast ─────────────────────────────────────────────────────────────────────────────────

AGENTS = """
models:
  {name}: {{provider: bench, model: {name}}}
providers:
  bench: {{base_url: "http://127.0.0.1:{port}/v1"}}
agents:
  {name}: {{model: {name}}}
"""


def _holdfast(port: int, upstream: int, folder: Path) -> Command:
    files = [folder / f"{name}.yaml" for name in MODELS]
    for name, file in zip(MODELS, files, strict=True):
        file.write_text(AGENTS.format(name=name, port=upstream))
    command = [str(Path(sys.executable).with_name("holdfast")), "serve", *map(str, files)]
    store = f"sqlite:///{folder}/ours.db"
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
    command = [str(_peers.python_of("litellm").with_name("litellm")), "--config", str(config)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    quiet = {
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        # Nobody is asked for a key here, so that nobody spends time on one.
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    return Command(command, quiet)


def _unless_built(environment: str) -> str:
    return "" if _peers.is_built(environment) else "`make bench-peers` installs it"


def everybody() -> list[Subject]:
    return [
        Subject(BARE, _bare, lambda: "", keeps=False),
        Subject(OURS, _holdfast, lambda: importlib.metadata.version("holdfast")),
        Subject(
            "LiteLLM",
            _litellm,
            lambda: _peers.version_of("litellm", "litellm"),
            missing=lambda: _unless_built("litellm"),
            keeps=False,
        ),
    ]
