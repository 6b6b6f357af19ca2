"""The bad weather between a node and its store.

A call travels: it takes a while to arrive and its answer takes a while to come back, in a place of its own, so
that what a node has sent arrives also when the node is stopped or dead by then.

    refused      nothing happened, and the caller is told that the store is unavailable
    lost         it happened, and the caller is told the same
    late         the caller is told the same, and then it happens
    odd          it happened or not, and the caller gets an error that nobody has foreseen

The store may be away for everybody (an outage) or for one node (a partition). In some runs one kind of call meets
more trouble than all others, so that what can happen meanwhile does. And a node may freeze over a call: it is
stopped when it has sent it, and the call is stuck on its way for as long.

A node may be deprived of one kind of call for a time, as if a privilege were revoked: each of them is refused, in words
that no list of ours has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeAlias, cast

import msgspec

from holdfast.core.codec import Value
from holdfast.errors import StoreFault, StoreUnavailable
from holdfast.store.outcomes import HintSupport
from holdfast.store.store import Store
from tests.simulation.loop import Place, Places


class Weather(Value):
    """How likely a call meets which trouble, and how slow the way is."""

    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    odd: float = 0.0
    slow: float = 0.1
    """How many calls take tens of milliseconds instead of next to nothing."""
    very_slow: float = 0.0
    """How many take seconds."""
    focus: str = ""
    """The kind of call that most of the trouble is about in this run."""
    odd_at: str = ""
    """The kind of call of which every third fails in a way that nobody has foreseen."""


class Odd(Exception):
    """An error that nobody has foreseen. As code meets it, it may be of any kind."""


class OddLookup(Odd, KeyError): ...


class OddValue(Odd, ValueError): ...


class OddTimeout(Odd, TimeoutError): ...


class OddConnection(Odd, ConnectionResetError): ...


class OddBug(Odd, AssertionError): ...


class OddSystem(Odd, OSError): ...


class OddMemory(Odd, MemoryError): ...


class OddState(Odd, RuntimeError): ...


ODD = (
    *(Odd, OddLookup, OddValue, OddTimeout, OddConnection, OddBug),
    *(OddSystem, OddMemory, OddState),
)


def is_odd(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, was made here."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_odd, error.exceptions))
    return error is not None and (
        isinstance(error, Odd) or is_odd(error.__cause__) or is_odd(error.__context__)
    )


CALM = Weather()
FOCUSED = Weather(refused=0.03, lost=0.05, late=0.3, very_slow=0.3)
"""What the calls meet that a run is about."""


VERY_SLOW_S = 8.0
"""How long a call takes at most, there and back, unless its node freezes over it."""


class Freeze(Value):
    """A node's next call of this kind is its last for a while."""

    name: str
    for_s: float


class Sky:
    """The weather now, over all nodes."""

    def __init__(self, rng: Random, weather: Weather) -> None:
        self.rng = rng
        self.weather = weather
        self.outage = False

    def clear(self) -> None:
        self.weather, self.outage = CALM, False

    def delay_s(self, name: str) -> float:
        drawn = self.rng.random()
        very_slow = FOCUSED.very_slow if name == self.weather.focus else self.weather.very_slow
        if drawn < very_slow:
            return 1.0 + 3.0 * self.rng.random()
        if drawn < very_slow + self.weather.slow:
            return 0.08 * self.rng.random()
        return 0.0


Heard: TypeAlias = Callable[[str, dict[int | str, Any], Any], object]
"""A call: its name, what it was given by position or name, and what came of it."""


class FaultyStore:
    """A node's view of the store. Its methods are those of the store, with the weather in between."""

    def __init__(self, store: Store, sky: Sky, loop: Places, *, instant: bool) -> None:
        """`instant`: the store never waits, so a call that takes no time needs no journey."""
        self._store = store
        self._sky = sky
        self._loop = loop
        self._instant = instant
        self._network: Place = loop.outside
        self.partitioned = False
        self.deprived: set[str] = set()
        """Kinds of calls that are refused."""
        self.dead = False
        self.calls: dict[str, int] = {}
        self.freeze: Freeze | None = None
        self.on_freeze: Callable[[Freeze], object] = lambda freeze: None
        self.frozen = 0
        """Calls that the node froze over, and that have not arrived yet."""
        self.froze = False
        self.heard: Heard = lambda name, args, result: None
        """Told of every call that has happened."""

    def as_store(self) -> Store:
        return cast("Store", self)

    def lead_to(self, store: Store) -> None:
        """From now on this is the store that is asked. Its hints come from where it is."""
        self._store = store
        if isinstance(store, HintSupport):
            context, listen = self._network.context, store.listen
            self.override("listen", lambda node, wake: context.copy().run(listen, node, wake))

    def override(self, name: str, method: Callable[..., Awaitable[Any] | None]) -> None:
        """From now on this method is another one: for a trouble that has no name here."""
        setattr(self, name, method)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            async def ask() -> Any:
                result = await method(*args, **kwargs)
                given: dict[int | str, Any] = dict(enumerate(args))
                given.update(kwargs)
                self.heard(name, given, result)
                return result

            return await self._call(name, ask)

        setattr(self, name, call)
        return call

    async def _call(self, name: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        sky = self._sky
        weather = FOCUSED if name == sky.weather.focus else sky.weather
        if name == sky.weather.odd_at:
            weather = msgspec.structs.replace(weather, odd=1 / 3)
        self.calls[name] = self.calls.get(name, 0) + 1
        if self.dead:
            raise _away("this node is dead")
        before_s, after_s = sky.delay_s(name), sky.delay_s(name)
        if self.freeze is not None and self.freeze.name == name:
            frozen, self.freeze = self.freeze, None
            before_s = frozen.for_s * (0.5 + 0.7 * sky.rng.random())
            self.on_freeze(frozen)
            ask = self._arriving(ask)
        fate = sky.rng.random()
        known = weather.refused + weather.lost + weather.late
        if name in self.deprived:
            raise StoreFault(f"permission denied for {name}")
        troubled = fate < known + weather.odd or self.is_away
        if self._instant and not troubled and before_s == after_s == 0.0:
            return await ask()
        answer: asyncio.Future[Any] = self._loop.create_future()
        journey = self._travel(ask, answer, weather, before_s, after_s, fate)
        self._loop.start(self._network, journey, name=f"call-{name}")
        return await answer

    def _arriving(self, ask: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        async def arrive() -> Any:
            self.frozen -= 1
            return await ask()

        self.frozen += 1
        self.froze = True
        return arrive

    async def _travel(
        self,
        ask: Callable[[], Awaitable[Any]],
        answer: asyncio.Future[Any],
        weather: Weather,
        before_s: float,
        after_s: float,
        fate: float,
    ) -> None:
        await asyncio.sleep(before_s)
        if self.is_away or fate < weather.refused:
            await asyncio.sleep(2.0 * self._sky.rng.random())
            _fail(answer, _away("it refused the connection"))
            return
        late = (
            weather.refused + weather.lost <= fate < weather.refused + weather.lost + weather.late
        )
        odd = _odd(weather, fate)
        if odd is not None and fate * 1e6 % 2 < 1:
            _fail(answer, odd)
            return
        if late:
            _fail(answer, _away("it did not answer in time"))
            await asyncio.sleep(2.0 * self._sky.rng.random())
        try:
            result = await ask()
        except Exception as error:
            await asyncio.sleep(after_s)
            _fail(answer, error)
            return
        await asyncio.sleep(after_s)
        lost = weather.refused <= fate < weather.refused + weather.lost
        if odd is not None:
            _fail(answer, odd)
            return
        if lost or self.is_away:
            _fail(answer, _away("its answer was lost"))
        elif not answer.done():
            answer.set_result(result)

    @property
    def is_away(self) -> bool:
        """Whether nothing gets through to the store now."""
        return self._sky.outage or self.partitioned


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        answer.exception()  # whoever asked may have gone


def _odd(weather: Weather, fate: float) -> Odd | None:
    """The error that nobody has foreseen, if this is the fate of a call."""
    known = weather.refused + weather.lost + weather.late
    if not known <= fate < known + weather.odd:
        return None
    return ODD[int(fate * 1e9) % len(ODD)]("of a kind that nobody has foreseen")


def _away(why: str) -> StoreUnavailable:
    return StoreUnavailable(f"the store is away: {why}")
