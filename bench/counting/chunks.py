"""One answer of so many chunks, each waited for: from an upstream's bytes to those of a stream, through the loop, the
sessions and the wire, without sockets. Run by `bench/_instructions.py`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from functools import partial

import uvloop
from loop import Upstream, frames, mint, player_on
from still import sessions_of

from holdfast.core.history.reconciliation import Incoming
from holdfast.core.items import plain_text
from holdfast.core.turns.journal import Record
from holdfast.ids import SessionKey, Tenant, TurnId
from holdfast.loop.encoded_histories import EncodedHistories
from holdfast.sessions.session_requests import Ask
from holdfast.wire.openai.chat.answer import ChatStream
from holdfast.wire.turn_answers import AnswerHead


async def main(count: int) -> None:
    player = player_on(Upstream(frames(count), waits=True), EncodedHistories(bytes_max=1 << 20))
    ask = Ask(
        tenant=Tenant("local"),
        name=SessionKey("counted"),
        messages=(Incoming(role="user", content=plain_text("Tell me.")),),
    )
    stream = ChatStream(AnswerHead(turn_id=mint(TurnId), created_s=1_750_000_000, model="root"))
    async with sessions_of(player) as sessions:
        watch = await sessions.submit(ask)
        async with watch:
            async for records in watch.batches(take=partial(_take, stream)):
                _take(stream, records)
            assert (await watch.ended()).ok


def _take(stream: ChatStream, records: Sequence[Record]) -> bool:
    """As a server's connection does, up to its socket."""
    b"".join(map(stream.frames, records))
    return True


if __name__ == "__main__":
    gc.disable()  # when it collects depends on everything that went before
    uvloop.run(main(int(sys.argv[1])))
