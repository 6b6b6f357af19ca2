"""Records scenes with a real Open WebUI in a browser. Run by hand, when a new version of it is out:

    uv venv /tmp/open-webui && uv pip install --python /tmp/open-webui/bin/python open-webui
    python -m tests.server.open_webui.record /tmp/open-webui/bin/open-webui [--ids] [SCENE …]

It starts that program on an empty folder, without a network, and a Holdfast server with a scripted model. A proxy
between the two writes down each request. With `--ids` the program sends the ids of its messages.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from playwright.async_api import async_playwright

from holdfast.testing import Reply, Script, says
from holdfast.testing.upstream import UpstreamRequest
from tests.console.browser import launch
from tests.e2e.world import World, world
from tests.server.open_webui.chat_window import ChatWindow
from tests.server.open_webui.recording import (
    RecordedMessage,
    RecordedRequest,
    RecordedStep,
    Recording,
    save,
)
from tests.server.open_webui.scenes import SCENES

PROXY, PROGRAM = 9701, 9700
AGENTS = """
models:
  one: {{provider: fake, model: root, base_url: {url}}}
  two: {{provider: fake, model: other, base_url: {url}}}
agents:
  root: {{model: one, instruction: Be brief.}}
  other: {{model: two, instruction: Be brief.}}
"""
IDS = {
    "X-History-Parent": "{{USER_MESSAGE_PARENT_ID}}",
    "X-History-Answer": "{{MESSAGE_ID}}",
    "X-History-Task": "{{TASK}}",
}
PASSED = ("x-openwebui-chat-id", "x-history-parent", "x-history-answer", "x-history-task")


class Noted:
    """A request while it is under way."""

    def __init__(self, headers: dict[str, str], body: dict[str, Any]) -> None:
        self.headers = headers
        self.body = body
        self.began = time.monotonic()
        self.ended = self.began
        self.answer = b""
        self.is_whole = False

    @property
    def recorded(self) -> RecordedRequest:
        said, calls = _answer(self.answer, streamed=bool(self.body.get("stream")))
        return RecordedRequest(
            model=self.body["model"].rpartition("/")[2],
            messages=self.body["messages"],
            answer=said,
            calls=calls,
            headers=self.headers,
            stream=bool(self.body.get("stream")),
            tools=tuple(each["function"]["name"] for each in self.body.get("tools", ()))[:1],
            is_stopped=not self.is_whole,
        )


class Recorder:
    """The proxy between the program and the server, and the model behind the server."""

    def __init__(self) -> None:
        self.noted: list[Noted] = []
        self.steps: list[RecordedStep] = []
        self.answers = 0
        self.url = ""

    def model(self, request: UpstreamRequest) -> Reply | Script | str:
        """Answers by the last line of the last message."""
        body = request.json
        last = body["messages"][-1]
        text = str(last["content"])
        if text.startswith("### Task") and "<context>" not in text:
            found = next(each for each in TASKS if f'"{each}"' in text)
            return json.dumps({found: "Words" if found == "title" else ["Some words"]})
        self.answers += 1
        asked = text.strip().splitlines()[-1]
        tools = [each["function"]["name"] for each in body.get("tools", ())]
        if last["role"] == "tool":
            return f"A{self.answers}: the tool said so."
        if "use a tool" in asked and tools:
            name = next(each for each in tools if "current_timestamp" in each)
            return says("Let me look. ", calls=[(name, "{}", f"call_{self.answers}")])
        if "slowly" in asked:
            return Reply(script=says(*(f"word{n} " for n in range(300))), pace_s=0.1)
        if "the same" in asked:
            return "Equal answer."
        if "think" in asked:
            return f"<think>Let me see.</think>A{self.answers}: thought."
        return says(f"A{self.answers}: ", "answer ", "to ", asked.split()[-1])

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        if request.path.endswith("/embeddings"):
            return web.json_response(_embeddings(json.loads(data)["input"]))
        kept = {k: v for k, v in request.headers.items() if k.lower() in (*PASSED, "content-type")}
        noted = None
        if request.path.endswith("/chat/completions"):
            headers = {k: v for k, v in kept.items() if k.lower() in PASSED and v}
            noted = Noted(headers, json.loads(data))
            self.noted.append(noted)
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                request.method, self.url + request.raw_path, data=data, headers=kept
            ) as got,
        ):
            answer = web.StreamResponse(
                status=got.status, headers={"content-type": got.headers["content-type"]}
            )
            await answer.prepare(request)
            try:
                async for piece in got.content.iter_any():
                    if noted is not None:
                        noted.answer += piece
                    await answer.write(piece)
                if noted is not None:
                    noted.is_whole = True
            finally:
                if noted is not None:
                    noted.ended = time.monotonic()
            await answer.write_eof()
        return answer

    def step(self, name: str, seen: list[RecordedMessage]) -> None:
        """Note a step with all requests since the last one."""
        groups: list[list[RecordedRequest]] = []
        ends = 0.0
        for each in self.noted:
            if groups and each.began < ends:
                groups[-1].append(each.recorded)
            else:
                groups.append([each.recorded])
            ends = max(ends, each.ended)
        self.noted = []
        self.steps.append(RecordedStep(name=name, requests=groups, seen=seen))


TASKS = ("title", "tags", "follow_ups", "queries")


def _answer(data: bytes, *, streamed: bool) -> tuple[str, tuple[tuple[str, str, str], ...]]:
    """The text and the calls of an answer."""
    if not streamed:
        return json.loads(data)["choices"][0]["message"]["content"] or "", ()
    text, calls = "", dict[int, list[str]]()
    for frame in data.decode().split("\n\n"):
        if not frame.startswith("data: {"):
            continue
        for choice in json.loads(frame.removeprefix("data: ")).get("choices", ()):
            text += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or ():
                known = calls.setdefault(call["index"], ["", "", ""])
                known[0] += call["function"].get("name") or ""
                known[1] += call["function"].get("arguments") or ""
                known[2] += call.get("id") or ""
    return text, tuple((name, arguments, key) for name, arguments, key in calls.values())


def _embeddings(texts: str | list[str]) -> dict[str, object]:
    each_of = [texts] if isinstance(texts, str) else texts
    vectors = [[byte / 255 for byte in sha256(each.encode()).digest()] for each in each_of]
    data = [
        {"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(vectors)
    ]
    return {"object": "list", "model": "fake", "data": data, "usage": {"prompt_tokens": 1}}


@asynccontextmanager
async def proxied(recorder: Recorder, server: World) -> AsyncIterator[None]:
    recorder.url = server.url
    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/{any:.*}", recorder.pass_on)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", PROXY).start()
    try:
        yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def program(path: Path, here: Path, *, ids: bool) -> AsyncIterator[None]:
    """Open WebUI, without a network, asking the proxy."""
    url = f"http://127.0.0.1:{PROXY}/v1"
    settings = {
        "DATA_DIR": str(here),
        "WEBUI_AUTH": "false",
        "WEBUI_SECRET_KEY": "scratch",
        "OFFLINE_MODE": "true",
        "HF_HUB_OFFLINE": "1",
        "ANONYMIZED_TELEMETRY": "false",
        "ENABLE_OLLAMA_API": "false",
        "ENABLE_PERSISTENT_CONFIG": "false",
        "ENABLE_VERSION_UPDATE_CHECK": "false",
        "ENABLE_FORWARD_USER_INFO_HEADERS": "true",
        "OPENAI_API_BASE_URLS": url,
        "OPENAI_API_KEYS": "local",
        "OPENAI_API_CONFIGS": json.dumps({"0": {"enable": True, "headers": IDS}}) if ids else "",
        "RAG_EMBEDDING_ENGINE": "openai",
        "RAG_OPENAI_API_BASE_URL": url,
        "RAG_OPENAI_API_KEY": "local",
        "RAG_EMBEDDING_MODEL": "fake",
    }
    process = await asyncio.create_subprocess_exec(
        *(str(path), "serve", "--host", "127.0.0.1", "--port", str(PROGRAM)),
        cwd=here,
        env={**os.environ, **settings},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as http, asyncio.timeout(300):
            while not await _is_healthy(http):  # noqa: ASYNC110
                await asyncio.sleep(1)
        yield
    finally:
        process.terminate()
        await process.wait()


async def _is_healthy(http: aiohttp.ClientSession) -> bool:
    try:
        async with http.get(f"http://127.0.0.1:{PROGRAM}/health") as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


def version(path: Path) -> str:
    (found,) = path.parent.parent.glob("lib/*/site-packages/open_webui-*.dist-info")
    return PathDistribution(found).version


async def main(path: Path, scenes: list[str], *, ids: bool) -> None:
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as made:
        here = Path(made)
        async with world(here, respond=recorder.model) as server:
            (here / "agent.yaml").write_text(AGENTS.format(url=server.upstream.base_url))
            await server.start()
            (here / "program").mkdir()
            async with (
                proxied(recorder, server),
                program(path, here / "program", ids=ids),
                async_playwright() as playwright,
            ):
                browser = await launch(playwright)
                for name in scenes:
                    window = await ChatWindow.open(browser, f"http://127.0.0.1:{PROGRAM}", recorder)
                    await SCENES[name](window)
                    tree = await window.tree()
                    made_of = f"Open WebUI {version(path)}"
                    called = f"{name}_with_ids" if ids else name
                    save(Recording(program=made_of, scene=called, steps=recorder.steps, tree=tree))
                    recorder.steps = []
                    await window.close()
                    sys.stdout.write(f"{called}\n")
                    sys.stdout.flush()
                await browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("scenes", nargs="*", metavar="SCENE")
    parser.add_argument("--ids", action="store_true")
    asked = parser.parse_args()
    asyncio.run(main(asked.program, asked.scenes or list(SCENES), ids=asked.ids))
