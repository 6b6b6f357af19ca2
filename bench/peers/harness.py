"""A small web server around a library, as its users would write one: FastAPI, a route that answers, one that streams.

Runs in the environment of the library. Each peer has a file beside this one with a class that does three things in
the way that the library's documentation shows, and ends with `serve(ThatClass)`:

    async def ask(self, conversation, text) -> str                    a turn
    def stream(self, conversation, text) -> AsyncIterator[str]        the same, piece by piece
    async def history(self, conversation) -> list[dict]               what is stored, as chat messages

A message that is stored as broken off has `"marked": True`. `cancel` stops the task that plays the turn, unless the
library has a way of its own.

FastAPI's own habits are left as they are: a client that goes away cancels a stream, and does not cancel a handler
that answers as a whole.
"""

import argparse
import asyncio
import json
import os
import urllib.request
from contextvars import ContextVar
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel

INSTRUCTIONS = "You are a clerk. Charge people when they ask you to."

parser = argparse.ArgumentParser()
for name in (
    "port",
    "upstream",
    "effects",
    "folder",
    "postgres",
    "moved",
    "deadline",
    "variant",
    "model",
):
    parser.add_argument(f"--{name}", default="")
ARGS = parser.parse_args()
FOLDER = Path(ARGS.folder or ".")
AGENT = "clerk-v2" if ARGS.moved else "clerk"
"""What the agent is called: its next version has another name, where names are addresses."""
MODEL = ARGS.model or "recorder"
KEY: ContextVar[str | None] = ContextVar("KEY", default=None)
"""The idempotency key of the request that is being answered, for libraries that know what that is."""
DEADLINE_S = float(ARGS.deadline) if ARGS.deadline else None

os.environ.setdefault("OPENAI_API_KEY", "bench")
os.environ["OPENAI_BASE_URL"] = ARGS.upstream


def charge_now() -> str:
    """What the tool does: tell the world, and wait for its answer."""
    request = urllib.request.Request(ARGS.effects, data=b"{}", method="POST")
    return urllib.request.urlopen(request, timeout=60).read().decode()


async def charge_soon() -> str:
    """The same, for tools that are coroutines."""
    return await asyncio.to_thread(charge_now)


class Turn(BaseModel):
    conversation: str
    text: str
    stream: bool = False
    key: str | None = None


class Peer:
    """What a library's file overrides."""

    keeps_deadline = False
    """Whether the library is told the deadline, and keeps it itself."""

    conflicts: tuple[type[Exception], ...] = ()
    """What it raises if a conversation has moved on meanwhile: answered with a 409."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Task] = {}

    async def open(self) -> None:
        """Connect, create tables."""

    async def ask(self, conversation: str, text: str) -> str:
        raise NotImplementedError

    def stream(self, conversation: str, text: str):
        raise NotImplementedError

    async def history(self, conversation: str) -> list[dict]:
        raise NotImplementedError

    async def cancel(self, conversation: str) -> str:
        task = self.running.get(conversation)
        if task is None:
            return "nothing runs"
        task.cancel()
        return "its task was cancelled"


def make_app(peer: Peer) -> FastAPI:
    app = FastAPI()
    deadline_s = None if peer.keeps_deadline else DEADLINE_S

    @app.get("/healthz")
    async def healthz():
        return {}

    @app.post("/turn")
    async def turn(asked: Turn):
        KEY.set(asked.key)
        if asked.stream:
            pieces = streamed(asked)
            return StreamingResponse(pieces, media_type="text/event-stream")
        peer.running[asked.conversation] = asyncio.current_task()
        try:
            async with asyncio.timeout(deadline_s):
                return {"text": await peer.ask(asked.conversation, asked.text)}
        except asyncio.CancelledError:
            return JSONResponse({"error": "cancelled"}, status_code=499)
        except peer.conflicts as error:
            return JSONResponse({"error": f"{type(error).__name__}: {error}"}, status_code=409)
        except Exception as error:
            return JSONResponse({"error": f"{type(error).__name__}: {error}"}, status_code=500)

    async def streamed(asked: Turn):
        peer.running[asked.conversation] = asyncio.current_task()
        try:
            async with asyncio.timeout(deadline_s):
                async for piece in peer.stream(asked.conversation, asked.text):
                    yield f"data: {json.dumps({'text': piece})}\n\n"
        except asyncio.CancelledError:
            raise
        except Exception as error:
            yield f"data: {json.dumps({'error': f'{type(error).__name__}: {error}'})}\n\n"
        else:
            yield "data: [DONE]\n\n"

    @app.get("/history/{conversation}")
    async def history(conversation: str):
        return {"messages": await peer.history(conversation)}

    @app.post("/cancel/{conversation}")
    async def cancel(conversation: str):
        return {"said": await peer.cancel(conversation)}

    return app


def serve(make) -> None:
    """Serve a peer on the port of the command line, until told to stop."""

    async def main() -> None:
        peer = make()
        await peer.open()
        config = uvicorn.Config(make_app(peer), port=int(ARGS.port), log_level="warning")
        await uvicorn.Server(config).serve()

    asyncio.run(main())
