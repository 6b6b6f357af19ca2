"""The groups, in the order in which they run and are shown."""

from __future__ import annotations

from collections.abc import Callable

from _figures import Line
from msgspec import Struct

from speed import library, standing, streaming, turns
from speed.stage import Stage


class Group(Struct, frozen=True):
    """One thing that is measured, in one run."""

    name: str
    title: str
    about: str
    measure: Callable[[Stage], list[Line]]
    peer_s: float
    """How long a peer may take, on average: when all of that is spent, who has not had a turn is left out."""
    axis: str = ""
    before_s: float = 0.0
    """What it takes, roughly, before its first round, without peers."""


MESSAGES = "messages of history"

GROUPS = (
    Group(
        "tokens",
        "Tokens passed on by one core",
        "Answers that are streamed as fast as they go, divided by the CPU time of the server's processes: one stream "
        "that asks again and again, and 50 at once. Everybody is asked for answers of 200 tokens, and 50 at once also "
        "for 1,000; Holdfast and the bare proxy for 1,000 one by one and 500 at once, too. A long answer costs less "
        "for each token, so only equal lengths are put side by side.",
        streaming.tokens,
        peer_s=40,
    ),
    Group(
        "pace",
        "A token at a human pace",
        "50 streams that bring 50 tokens a second each, every token in a write of its own, as models send them: "
        "the CPU time of the server for each.",
        streaming.pace,
        peer_s=8,
    ),
    Group(
        "first",
        "Time added to the first token",
        "From the request to the first token of a streamed answer, one after the other, less the same without any "
        "server in between. Every turn begins a conversation.",
        streaming.first,
        peer_s=6,
    ),
    Group(
        "turn",
        "A JSON turn",
        "A turn that is not streamed, from the request to the end of the answer, one after the other. "
        "Where turns are kept, this includes making them durable.",
        turns.turn,
        peer_s=6,
    ),
    Group(
        "history",
        "A turn after a long history",
        "The same turn at the end of conversations of 10 to 5,000 messages, which were made turn by turn before; peers "
        "up to 1,000, where a minute is enough to make them. "
        "Servers that keep no conversation (the bare proxy, LiteLLM) are sent all of it with each request.",
        turns.history,
        peer_s=40,
        before_s=30,
        axis=MESSAGES,
    ),
    Group(
        "writes",
        "Bytes written to disk for a turn",
        "What the kernel counts as written by the server's processes, for a turn at the end of a short and of a "
        "longer history. The bare proxy stores each request as it was sent.",
        turns.writes,
        peer_s=25,
    ),
    Group(
        "durable",
        "Durable turns per second",
        "JSON turns over HTTP, each of a new conversation, and the session store alone without a server; beside them "
        "how often the disk can sync a page when nobody does anything else, and a bare loop that commits the same "
        "values, or runs the same statements, in groups. One sync can make many turns durable.",
        turns.durable,
        peer_s=16,
    ),
    Group(
        "memory",
        "Memory for what is open",
        "How resident memory grows from 100 to 400 open streams that say nothing, and by sessions that have had a "
        "turn and now rest; of a server that was just started.",
        standing.memory,
        peer_s=24,
    ),
    Group(
        "start",
        "Starting, and memory at rest",
        "From the start of the process to its first answer over HTTP, and its resident memory then.",
        standing.start,
        peer_s=10,
    ),
    Group(
        "library",
        "A turn without a server",
        "The session layer as a library, with a model that answers at once, on SQLite: CPU time for each turn, "
        "beside the session layers of two frameworks.",
        library.library,
        peer_s=0,
        before_s=30,
        axis=MESSAGES,
    ),
)
