"""Requests that nobody would think of, made by schemathesis from the API's own description.

    make torture-api
    python -m tests.torture.http_api --cases 50000

Some are as the document says, some are not. No answer may be a server error, and each has to be one that the document
describes: by its status, its media type, its headers, and its body or the events in it. Nobody gets in without a key.

The server is in this process, over an SQLite file; schemathesis runs beside it in several processes. Each has some of
the operations, and goes through them again and again with another seed. Progress is on stderr, the figures on stdout; the exit status is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.models.model import Prompt
from holdfast.store.store_url import open_store
from holdfast.testing import ScriptedModel, says
from holdfast.testing.scripted_model import Script
from tests.server.access.test_authentication import ACME, bearer, put_key
from tests.server.api.test_approvals import careful
from tests.server.stubs import HeldTool, Serving, serving
from tests.torture.campaign import Figures, Progress

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "ignored_auth",
)
SHARDS = 2
"""Processes that ask. The server is a third; more would only wait for each other."""

PHASES = "examples,coverage,fuzzing"
AGAIN = "fuzzing"
"""What another seed makes other requests in. The edges of what is described are the same each time."""

NOBODY = ("nobody", "conv_x", "turn_" + "0" * 26, "a b", "%2F", "☃", "..", "x" * 201, "\x7f")
"""Names that are nobody's. Texts of all kinds take schemathesis fifty times as long to make."""


class Counts(Struct):
    """What some cases came to."""

    cases: int = 0
    failures: list[str] = []

    def add(self, other: Counts) -> None:
        self.cases += other.cases
        self.failures = [*self.failures, *other.failures]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--examples", type=int, default=100, help="of an operation, at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shards", type=int, default=SHARDS, help="processes that ask")
    asked = parser.parse_args()
    figures = asyncio.run(
        torture(asked.cases, examples=asked.examples, seed=asked.seed, shards=asked.shards)
    )
    print(figures.did)
    for each in figures.violations:
        print(f"  {each}")
    return 1 if figures.violations else 0


async def torture(
    cases: int, *, examples: int, seed: int, shards: int = SHARDS, phases: str = PHASES
) -> Figures:
    """Ask until there have been so many cases, or something was wrong."""
    told, progress = Counts(), Progress("torture-api")

    async def keep_asking(hand: int, document: dict[str, Any], server: Serving, key: str) -> None:
        for n in count():
            there, wanted = folder / f"{hand}", AGAIN if n else phases
            told.add(await _ask(server, key, there, document, examples, seed + n, wanted))
            progress(min(told.cases, cases), cases)
            if told.cases >= cases or told.failures:
                return

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with _world(folder) as (server, key):
            hands = _shards(await _sharpened(server, key), shards)
            await asyncio.gather(
                *(keep_asking(hand, each, server, key) for hand, each in enumerate(hands))
            )
    wrong = f"{len(told.failures)} rounds with failures" if told.failures else "none of them wrong"
    return Figures(
        did=f"torture-api: {told.cases:,} cases from seed {seed} on, {wrong}",
        violations=told.failures,
    )


# ── the server ───────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[tuple[Serving, str]]:
    """A server over an empty store, and a key that may do everything."""
    store = await open_store(f"sqlite:///{folder / 'store.db'}")
    try:
        key = await put_key(store, ACME, "chat", "read", "admin", "metrics")
        tool = HeldTool("pay", held=False)
        async with serving(careful(_model(), tool), store=store, auth="required") as server:
            yield server, str(key)
    finally:
        await store.close()


def _model() -> ScriptedModel:
    """Answers at once; now and then it wants to pay, which somebody has to allow."""

    def answer(prompt: Prompt) -> Script | str:
        model.prompts.clear()  # nobody will look, and there will be many
        asked = sum(map(len, prompt.messages))
        return says("May I?", calls=[("pay", "{}")]) if asked % 7 == 0 else "Yes."

    model = ScriptedModel(otherwise=answer)
    return model


async def _sharpened(server: Serving, key: str) -> dict[str, Any]:
    """The document, with names in it that there are: most of what is made up would be a 404 otherwise."""

    async def ask(method: str, path: str, body: object = None, name: str = "") -> Any:
        data = None if body is None else msgspec.json.encode(body)
        named = {"X-Conversation-Id": name} if name else {}
        return await server.request(method, path, data=data, headers={**bearer(key), **named})

    message = {"role": "user", "content": "Where is Oslo?"}
    said = await ask(
        "POST", "/v1/chat/completions", {"model": "root", "messages": [message]}, "trip-to-oslo"
    )
    response = await ask("POST", "/v1/responses", {"model": "root", "input": "Hi"})
    session_id = said.headers["x-session-id"]
    items = await ask("GET", f"/v1/conversations/{session_id}/items")
    there = {
        "models": ["root"],
        "sessions": ["trip-to-oslo", session_id],
        "turns": [said.headers["x-turn-id"], response.headers["x-turn-id"]],
        "responses": [response.json["id"]],
        "conversations": [session_id],
        "items": [each["id"] for each in items.json["data"]],
    }
    document: dict[str, Any] = (await ask("GET", "/openapi.json")).json
    for path, methods in document["paths"].items():
        for operation in methods.values():
            _place(operation, path, there)
            _as_text(operation)
    for shape in document["components"]["schemas"].values():
        if "Request" in shape.get("title", "") and "model" in shape["properties"]:
            shape["properties"]["model"] = {"type": "string", "enum": ["root"]}
    return document


def _place(operation: dict[str, Any], path: str, there: dict[str, list[str]]) -> None:
    steps = path.split("/")
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            place = f"{{{parameter['name']}}}"  # a step of the path, or the beginning of one: `{id}:cancel`
            word = steps[next(n for n, step in enumerate(steps) if step.startswith(place)) - 1]
            some = there.get(word, [parameter["example"]])
            parameter["schema"] = {"type": "string", "enum": [*some, *NOBODY]}


def _as_text(operation: dict[str, Any]) -> None:
    """A body of lines, which schemathesis knows no kind of, as any text."""
    contents = operation.get("requestBody", {}).get("content", {})
    if "application/jsonl" in contents:
        contents["text/plain"] = {"schema": {"type": "string"}}
        del contents["application/jsonl"]


# ── schemathesis ─────────────────────────────────────────────────────────────────────────────


def _shards(document: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """The document, dealt out: each has some of the operations."""
    labels = [(path, method) for path, methods in document["paths"].items() for method in methods]
    hands: list[dict[str, Any]] = []
    for first in range(number):
        paths: dict[str, Any] = {}
        for path, method in labels[first::number]:
            paths.setdefault(path, {})[method] = document["paths"][path][method]
        hands.append({**document, "paths": paths})
    return hands


async def _ask(
    server: Serving,
    key: str,
    folder: Path,
    document: dict[str, Any],
    examples: int,
    seed: int,
    phases: str,
) -> Counts:
    """One round, for some operations."""
    described, report = _prepared(folder, document)
    arguments: Sequence[str] = (
        *("-m", "schemathesis.cli", "run", str(described), "--url", server.url),
        *("--phases", phases, "--max-examples", str(examples), "--seed", str(seed)),
        *("--checks", ",".join(CHECKS), "--continue-on-failure", "--no-shrink"),
        *("--header", f"Authorization: Bearer {key}", "--request-timeout", "60"),
        *("--generation-database", "none", "--warnings", "off", "--no-color"),
        *("--report-json-path", str(report), "--suppress-health-check", "all"),
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    return _read(printed.decode(), report)


def _prepared(folder: Path, document: dict[str, Any]) -> tuple[Path, Path]:
    """Where a round reads the document, and where it reports."""
    folder.mkdir(exist_ok=True)
    described, report = folder / "openapi.json", folder / "report.json"
    described.write_bytes(msgspec.json.encode(document))
    report.unlink(missing_ok=True)
    return described, report


class _Cases(Struct):
    generated: int


class _Report(Struct):
    """What schemathesis says about a round, as far as we look at it."""

    exit_code: int
    test_cases: _Cases


def _read(printed: str, report: Path) -> Counts:
    """How many there were, and what was wrong: all that was printed about it, to be read by somebody."""
    if not report.exists():
        return Counts(failures=[f"schemathesis did not come to its end:\n{printed}"])
    said = msgspec.json.decode(report.read_bytes(), type=_Report)
    return Counts(said.test_cases.generated, [printed] if said.exit_code else [])


if __name__ == "__main__":
    sys.exit(main())
