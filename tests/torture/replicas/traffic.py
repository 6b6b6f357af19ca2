"""What clients want, decided from a seed, and what they write down about what they got."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Literal, TypeAlias

from msgspec import Struct

from holdfast.core.codec import Value
from holdfast.core.policy import Policy, resolve_policy
from holdfast.ids import IdempotencyKey, SessionKey
from tests.simulation.history import Act, Recording, Send, Watched
from tests.torture.replicas.upstream import Prompt

Api: TypeAlias = Literal["chat", "responses", "background", "sdk"]

TURNS_PER_SESSION = 12
"""Then its clients go on to the next one: what a prompt has to be compared with stays small."""


class Wish(Value):
    """Something that a client wants to say, and how."""

    number: int
    text: str
    name: SessionKey
    api: Api
    stream: bool
    key: IdempotencyKey | None = None
    on_busy: str = "wait"
    leaves_after: int | None = None
    """Pieces of the answer after which the client hangs up."""

    @property
    def fails(self) -> bool:
        """Whether the model will fail at it."""
        return "fail" in self.text.split()

    @property
    def policy(self) -> Policy:
        return resolve_policy(
            Policy(), promised_return=self.key is not None or self.api == "background"
        )


def draw_wish(rng: Random, number: int, name: SessionKey, *, sdk: bool) -> Wish:
    """What a client wants next."""
    text = " ".join((f"w{number}", *_plan(rng)))
    keyed = rng.random() < 0.5
    api: Api = "sdk" if sdk else rng.choices(("chat", "responses", "background"), (6, 3, 1))[0]
    stream = api != "background" and rng.random() < 0.5
    leaves = stream and not sdk and not keyed and rng.random() < 0.1
    busy = (
        "wait" if keyed else rng.choices(("wait", "reject", "interrupt", "steer"), (8, 1, 1, 1))[0]
    )
    return Wish(
        number=number,
        text=text,
        name=name,
        api=api,
        stream=stream,
        key=IdempotencyKey(f"key-{number}") if keyed else None,
        on_busy=busy,
        leaves_after=rng.randrange(4) if leaves else None,
    )


def _plan(rng: Random) -> tuple[str, ...]:
    tools = rng.choices(((), ("act",), ("look",), ("again",), ("act", "act")), (10, 5, 1, 1, 1))[0]
    manner = rng.choices(((), ("slow",), ("stumble",), ("fail",)), (10, 4, 4, 1))[0]
    return (*tools, *manner)


class Wired(Value):
    """What came over the wire for an attempt, besides what the attempt itself tells."""

    send: Send
    api: Api
    status: int = 0
    """0: nothing came."""
    retry_after: bool = False
    should_retry: bool | None = None


class Traffic(Value):
    """A run as it was seen from outside: by clients, by the model, and in the store."""

    recording: Recording
    wired: tuple[Wired, ...]
    prompts: tuple[Prompt, ...]


class Ledger(Struct):
    """What was written down so far."""

    wired: list[Wired] = []
    acts: list[Act] = []
    watched: list[Watched] = []
    acknowledged_s: list[float] = []
    """When."""
    statuses: Counter[tuple[int, str]] = Counter()
    """By status and code."""
    running: list[tuple[str, bool]] = []
    """Turns that clients have heard of lately, and whether every event of them is kept."""

    def write(self, wired: Wired) -> None:
        self.wired.append(wired)
        self.statuses[wired.status, wired.send.error] += 1
        if wired.send.acknowledged:
            self.acknowledged_s.append(wired.send.done_s)

    def heard_of(self, turn_id: str, *, replayable: bool) -> None:
        self.running.append((turn_id, replayable))
        del self.running[:-30]
