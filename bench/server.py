"""What a served token and a served turn cost, against the least that could serve them, and against a peer.

Every server runs in a process of its own, on loopback, before one upstream that costs nothing (`serving/upstream.py`)
and behind one client that decodes nothing (`serving/load.py`). What is judged is the CPU time of the server's process
alone: three processes share the cores, and neighbours come and go.

    direct      the client talks to the upstream
    bare        a proxy of the same parts, one synced row per turn and no promises (`serving/bare.py`)
    Holdfast    as `holdfast serve` starts it, on SQLite: every turn a transaction
    LiteLLM     its proxy, which stores nothing; in an environment of its own, built by `--peers`.
                It is asked once, and for shorter answers: it needs half a millisecond and more for a token

All take turns, round by round; shown is the median, and the ratio to the bare proxy.

    python bench/server.py [--peers] [--rounds N] [--only bare,Holdfast]
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import _peers
import msgspec
from rich.console import Console
from rich.table import Table
from serving.load import Found, Job, cpu_s, rss_mb

HERE = Path(__file__).parent
ANSWERS = {1: 40, 50: 3, 500: 1}
"""How many answers each stream asks for, by the number of streams."""
PACED, IDLE, TURNS = 50, 200, 150
READY_S = 90.0

AGENTS = """
models:
  {name}: {{provider: bench, model: {name}}}
providers:
  bench: {{base_url: "http://127.0.0.1:{port}/v1"}}
agents:
  {name}: {{model: {name}}}
"""
PEER_MODEL = """
  - model_name: {name}
    litellm_params: {{model: openai/{name}, api_base: "http://127.0.0.1:{port}/v1", api_key: bench}}
"""
MODELS = ("flat1000", "flat200", "paced", "short", "idle")

# ── servers ──────────────────────────────────────────────────────────────────────────────────


class Server(msgspec.Struct):
    """A server that runs. `pid` is 0 for the upstream itself: nobody is in between."""

    name: str
    port: int
    pid: int = 0
    ready_s: float = 0.0
    rest_mb: float = 0.0
    stream_kb: float = 0.0
    """What an open stream adds to the memory."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def started(name: str, port: int, command: Sequence[str], **environment: str) -> Iterator[Server]:
    """A server process that answers, until the end of the context."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
        try:
            while not answers(port):
                if process.poll() is not None or time.perf_counter() - began > READY_S:
                    said.seek(0)
                    raise SystemExit(f"{name} does not start: {said.read().decode()[-2000:]}")
                time.sleep(0.005)
            ready_s = time.perf_counter() - began
            yield Server(name, port, process.pid, ready_s, rss_mb(process.pid))
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def answers(port: int) -> bool:
    """Whether a server speaks HTTP there, whatever it says."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5):
            return True
    except HTTPError:
        return True
    except (URLError, OSError):
        return False


@contextmanager
def upstream() -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, str(HERE / "serving" / "upstream.py"), str(port)]
    process = subprocess.Popen(command)
    try:
        until = time.perf_counter() + 10
        while time.perf_counter() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.01)
        yield Server("direct", port)
    finally:
        process.kill()
        process.wait()


def bare(behind: Server, folder: Path) -> Iterator[Server]:
    port = free_port()
    script = str(HERE / "serving" / "bare.py")
    arguments = [str(port), str(behind.port), str(folder / "bare.db")]
    with started("bare", port, [sys.executable, script, *arguments]) as server:
        yield server


def holdfast(behind: Server, folder: Path) -> Iterator[Server]:
    port = free_port()
    for name in MODELS:
        (folder / f"{name}.yaml").write_text(AGENTS.format(name=name, port=behind.port))
    command = [str(Path(sys.executable).parent / "holdfast"), "serve"]
    command += [str(folder / f"{name}.yaml") for name in MODELS]
    command += ["--listen", f"127.0.0.1:{port}", "--store", f"sqlite:///{folder}/ours.db"]
    with started("Holdfast", port, command) as server:
        yield server


def litellm(behind: Server, folder: Path) -> Iterator[Server]:
    port = free_port()
    models = "".join(PEER_MODEL.format(name=name, port=behind.port) for name in MODELS)
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
    with started("LiteLLM", port, command, **quiet) as server:
        yield server


# ── measuring ────────────────────────────────────────────────────────────────────────────────


def measured(server: Server, job: Job) -> Found:
    """What a client in a process of its own finds out."""
    job = msgspec.structs.replace(job, port=server.port, pid=server.pid)
    script = str(HERE / "serving" / "load.py")
    command = [sys.executable, script, msgspec.json.encode(job).decode()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    if done.returncode:
        raise SystemExit(f"measuring {server.name} failed: {done.stderr[-2000:]}")
    settle(server)
    return msgspec.json.decode(done.stdout, type=Found)


def settle(server: Server) -> None:
    """Wait until what the clients have left behind is cleaned up: it is not the next one's cost."""
    until = time.perf_counter() + 10
    while server.pid and time.perf_counter() < until:
        before = cpu_s(server.pid)
        time.sleep(0.1)
        if cpu_s(server.pid) - before < 0.01:
            return


class Line(msgspec.Struct):
    """One row of the table: a job, how its figure is made, and how it is said."""

    what: str
    job: Job
    figure: Callable[[Found], float]
    said: str
    on_direct: bool = False
    """Whether there is such a figure without a server."""


def _job(what: str, model: str, **more: object) -> Job:
    return msgspec.convert({"what": what, "port": 0, "model": model, **more}, Job)


def lines() -> list[Line]:
    first = _job("first", "short", turns=TURNS)
    whole = _job("whole", "short", turns=TURNS)
    flat = [
        Line(
            f"tokens/s and core, {streams} at once",
            _job("answers", "flat1000", streams=streams, turns=turns),
            lambda found: found.tokens / found.cpu_s,
            "{:,.0f}",
        )
        for streams, turns in ANSWERS.items()
    ]
    return [
        *flat,
        Line(
            f"CPU per token, {PACED} at once, 50/s each",
            _job("pace", "paced", streams=PACED),
            lambda found: found.cpu_s / found.tokens * 1e6,
            "{:.1f} µs",
        ),
        Line("first token, p50", first, lambda found: median(found.each_ms), "{:.2f} ms", True),
        Line("first token, p99", first, lambda found: edge(found.each_ms), "{:.2f} ms", True),
        Line("JSON turn, p50", whole, lambda found: median(found.each_ms), "{:.2f} ms", True),
        Line(
            "JSON turn, CPU",
            whole,
            lambda found: found.cpu_s / len(found.each_ms) * 1e3,
            "{:.2f} ms",
        ),
    ]


def edge(each: list[float]) -> float:
    """The 99th percentile."""
    return sorted(each)[int(len(each) * 0.99)]


def job_for(server: Server, job: Job) -> Job | None:
    """What this server is asked for: a slow one for less, so that this ends. None for nothing at all."""
    if server.name != "LiteLLM":
        return job
    if job.streams > 50:
        return None
    replace = msgspec.structs.replace
    if job.what == "answers":
        return replace(job, model="flat200", turns=1 if job.streams > 1 else 3)
    return replace(job, turns=min(job.turns, 30))


Figures = dict[str, dict[str, list[float]]]
"""Line → server → one figure a round."""


def measure(servers: Sequence[Server], rounds: int, console: Console) -> Figures:
    """Every job on every server, in turns. Lines that share a job share its run."""
    figures: Figures = {line.what: {} for line in lines()}
    jobs: dict[bytes, list[Line]] = {}
    for line in lines():
        jobs.setdefault(msgspec.json.encode(line.job), []).append(line)
    for n in range(rounds):
        for sharing in jobs.values():
            for server in servers:
                wanted = [line for line in sharing if server.pid or line.on_direct]
                job = job_for(server, sharing[0].job)
                if not wanted or job is None or (server.name == "LiteLLM" and n):
                    continue
                with console.status(f"round {n + 1} of {rounds}: {sharing[0].what}, {server.name}"):
                    found = measured(server, job)
                for line in wanted:
                    figures[line.what].setdefault(server.name, []).append(line.figure(found))
    return figures


def grown_kb(server: Server) -> float:
    """What an open stream adds to the memory of a server that has not been used yet."""
    found = measured(server, _job("idle", "idle", streams=IDLE))
    return found.rss_grown_mb / IDLE * 1e3


# ── saying ───────────────────────────────────────────────────────────────────────────────────


def table_of(figures: Figures, servers: Sequence[Server]) -> Table:
    names = [each.name for each in servers]
    table = Table("", *names, "ours to bare", "ours to LiteLLM")
    for line in lines():
        found = figures[line.what]
        row = [_said(line, found.get(name)) for name in names]
        table.add_row(line.what, *row, _ratio(found, "bare"), _ratio(found, "LiteLLM"))
    for what, unit, figure in (
        ("ready after", "{:.2f} s", lambda server: server.ready_s),
        ("memory at rest", "{:.0f} MB", lambda server: server.rest_mb),
        (f"memory per open stream, of {IDLE}", "{:.0f} kB", lambda server: server.stream_kb),
    ):
        once = {each.name: [figure(each)] for each in servers if each.pid}
        row = [unit.format(*once[name]) if name in once else "" for name in names]
        table.add_row(what, *row, _ratio(once, "bare"), _ratio(once, "LiteLLM"))
    return table


def _said(line: Line, values: list[float] | None) -> str:
    if not values:
        return ""
    said = line.said.format(median(values))
    if len(values) == 1:
        return said
    return f"{said} ({line.said.format(min(values)).split()[0]}–{line.said.format(max(values)).split()[0]})"


def _ratio(found: dict[str, list[float]], to: str) -> str:
    if to not in found or "Holdfast" not in found:
        return ""
    return f"{median(found['Holdfast']) / median(found[to]):.2f}×"


def goals(figures: Figures, servers: Sequence[Server]) -> Iterator[tuple[str, float, bool]]:
    """What we want to be true, what is, and whether it is what we want."""

    def ratio(what: str, to: str) -> float | None:
        found = figures[what]
        if to not in found or "Holdfast" not in found:
            return None
        return median(found["Holdfast"]) / median(found[to])

    def at_least(
        words: str, value: float | None, bound: float
    ) -> Iterator[tuple[str, float, bool]]:
        if value is not None:
            yield f"{words} ≥ {bound:g}", value, value >= bound

    def at_most(words: str, value: float | None, bound: float) -> Iterator[tuple[str, float, bool]]:
        if value is not None:
            yield f"{words} ≤ {bound:g}", value, value <= bound

    tokens = "tokens/s and core, 50 at once"
    yield from at_least("tokens/s and core at 50 streams, to LiteLLM", ratio(tokens, "LiteLLM"), 25)
    yield from at_least("tokens/s and core at 50 streams, to bare", ratio(tokens, "bare"), 0.4)
    pace = ratio(f"CPU per token, {PACED} at once, 50/s each", "bare")
    yield from at_most("CPU per token at a human pace, to bare", pace, 1.5)
    whole = figures["JSON turn, p50"].get("Holdfast")
    yield from at_most("JSON turn p50, in ms", median(whole) if whole else None, 4)
    yield from at_most("JSON turn p50, to bare", ratio("JSON turn, p50", "bare"), 2)
    first = figures["first token, p50"]
    if {"direct", "Holdfast"} <= first.keys():
        added = median(first["Holdfast"]) - median(first["direct"])
        yield from at_most("added to the first token at p50, in ms", added, 2)
    for server in servers:
        if server.name == "Holdfast":
            yield from at_most("memory at rest, in MB", server.rest_mb, 75)
            yield from at_most("ready, in s", server.ready_s, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", action="store_true", help="install LiteLLM first, if it is not")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="bare,Holdfast,LiteLLM", help="servers, by name")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 180)
    makers = {"bare": bare, "Holdfast": holdfast, "LiteLLM": litellm}
    wanted = asked.only.split(",")
    if asked.peers:
        _peers.build("litellm", "litellm.txt")
    if "LiteLLM" in wanted and not _peers.is_built("litellm"):
        console.print("LiteLLM is not installed, and left out; `--peers` installs it")
        wanted.remove("LiteLLM")
    with ExitStack() as stack:
        here = tempfile.TemporaryDirectory(prefix=".bench-", dir=HERE)  # `/tmp` may be in memory
        folder = Path(stack.enter_context(here))
        behind = stack.enter_context(upstream())
        servers = [behind]
        for name in wanted:
            with console.status(f"starting {name}"):
                server = stack.enter_context(contextmanager(makers[name])(behind, folder))
                server.stream_kb = grown_kb(server)
                servers.append(server)
        figures = measure(servers, asked.rounds, console)
        console.print(table_of(figures, servers))
        for words, value, met in goals(figures, servers):
            console.print(f"goal {words}: {value:.2f}, {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    main()
