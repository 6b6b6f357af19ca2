"""Run a fake upstream: `python -m holdfast.testing.upstream --port 9000 --words 200 --pace-s 0.02`."""

from __future__ import annotations

import argparse
import asyncio
import sys

from holdfast.core.turns.events import Usage
from holdfast.testing.scripted_model import says
from holdfast.testing.upstream.replies import Reply, UpstreamRequest
from holdfast.testing.upstream.server import FakeUpstream


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.upstream", description=__doc__
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--words", type=int, default=50, help="in every answer")
    parser.add_argument("--pace-s", type=float, default=0.02, help="between two words")
    parser.add_argument("--model", default="fake-model")
    asked = parser.parse_args()
    try:
        asyncio.run(_serve(asked))
    except KeyboardInterrupt:
        pass


async def _serve(asked: argparse.Namespace) -> None:
    words = tuple(f"word{n} " for n in range(asked.words))
    usage = Usage(input_tokens=10, output_tokens=len(words))
    reply = Reply(script=says(*words, usage=usage), pace_s=asked.pace_s)

    def respond(request: UpstreamRequest) -> Reply:
        upstream.requests.clear()  # it runs for long, and no test reads the requests
        return reply

    upstream = FakeUpstream(
        otherwise=respond, models=(asked.model,), host=asked.host, port=asked.port
    )
    async with upstream:
        sys.stdout.write(f"{upstream.base_url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
