"""The delivery of one answer: streamed as the turn produces it, handed over, and noted once the client has it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial

from holdfast import limits
from holdfast.core.turns.journal import Record
from holdfast.server.http.exchange import Exchange
from holdfast.server.http.routing import HttpCall
from holdfast.sessions.sessions import Sessions
from holdfast.sessions.turns.watch import Watch
from holdfast.wire.sse import HEARTBEAT
from holdfast.wire.turn_answers import FrameWriter


class AnswerDelivery:
    """Delivers the answer to one request whose turn has begun, or was found by an earlier attempt."""

    def __init__(
        self,
        sessions: Sessions,
        call: HttpCall,
        watch: Watch,
        *,
        stored: bool,
        heartbeat: bytes = HEARTBEAT,
    ) -> None:
        """`heartbeat` is written to a stream in quiet times."""
        self._sessions = sessions
        self._first_words = sessions.tally.first_words
        self._tenant = call.tenant
        self._exchange: Exchange = call.exchange
        self._watch = watch
        self._stored = stored
        self._heartbeat = heartbeat
        self._loop = asyncio.get_running_loop()
        self._said_s = self._loop.time()
        """When the last bytes were written, by the event loop's clock."""

    async def begin(self, stream: FrameWriter) -> None:
        """Begin the stream at once, for a client that needs its first frames early: a failure is then no status."""
        await self._begin(stream)
        self._said_s = self._loop.time()

    async def show(self, stream: FrameWriter) -> None:
        """Write the turn's events as they happen, until it has ended, and heartbeats in quiet times. The stream begins
        with the first event or after a while: until then a failure can still be a status."""
        exchange = self._exchange
        quiet_s = min(limits.stream_patience_s, limits.heartbeat_s)
        take = partial(self._take, stream)
        with exchange.while_present():
            async with aclosing(self._watch.batches(quiet_s=quiet_s, take=take)) as batches:
                async for records in batches:
                    frames = self._worth_saying(stream, records)
                    if frames is None:
                        continue
                    if exchange.state == "reading":
                        await self._begin(stream, frames)
                    else:
                        await exchange.write(frames or self._heartbeat)
                    self._said_s = self._loop.time()

    def _take(self, stream: FrameWriter, records: Sequence[Record]) -> bool:
        """Write these records now, if the stream has begun and its socket takes them without waiting."""
        if not self._exchange.is_writable:
            return False
        frames = self._worth_saying(stream, records)
        if frames is not None:
            self._exchange.write_now(frames or self._heartbeat)
            self._said_s = self._loop.time()
        return True

    def _worth_saying(self, stream: FrameWriter, records: Sequence[Record]) -> bytes | None:
        """The frames of these records. None if there is nothing to write; empty if it is time for a heartbeat."""
        if len(records) == 1:  # nearly always, at the pace of a reader
            frames = stream.frames(records[0])
        else:
            frames = b"".join(map(stream.frames, records))
        if not frames:
            begun = self._exchange.state != "reading"
            bound_s = limits.heartbeat_s if begun else limits.stream_patience_s
            if self._loop.time() - self._said_s < bound_s:
                return None
        return frames

    async def end(self, stream: FrameWriter, last: bytes, *, answered: bool = True) -> None:
        """Write the last frames of a stream, and the first ones if nothing was written yet. Without `answered` the
        delivery is not noted: a client that got a failure may ask again."""
        if self._exchange.state == "reading":
            await self._begin(stream)
        await self._hand_over(last, answered=answered)

    async def answer(
        self, body: bytes, *, media_type: str = "application/json", answered: bool = True
    ) -> None:
        """Write the whole answer at once. `answered` is as in `end`."""
        await self._exchange.start_answer(200, len(body), media_type=media_type)
        await self._hand_over(body, answered=answered)

    async def _begin(self, stream: FrameWriter, frames: bytes = b"") -> None:
        await self._exchange.start_stream()
        await self._exchange.write(stream.first() + frames)
        if frames:
            self._first_words.add(self._exchange.age_s)

    async def _hand_over(self, last: bytes, *, answered: bool) -> None:
        """Write the last bytes, and note that the client has them before it can send its next request.

        An SDK repeats a request whose answer got lost on the way; only this note tells such a retry from the same
        request made twice. The note is on its way to the store before the connection is free again, and so ahead of
        the next request; the client does not wait until it is durable.
        """
        if await self._exchange.hand_over(last) and self._stored and answered:
            self._sessions.note_handed_over(self._tenant, self._watch.admission)
        await self._exchange.finish()
