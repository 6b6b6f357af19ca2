"""One run: a crowd of clients, a while of calm, a while of faults, and then the questions."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from random import Random

import aiohttp
import msgspec

from holdfast.core.codec import Value
from holdfast.core.items import ToolCall
from holdfast.core.turns.events import ToolStarted
from holdfast.ids import CallId, IdempotencyKey, SessionKey, Tenant, TurnId
from holdfast.store.store_url import open_store
from holdfast.store.verification.verification import Finding, verify
from tests.postgres import Server
from tests.simulation.history import Effect, FoundSession, Recording
from tests.simulation.seed_search import find_all
from tests.torture import backups
from tests.torture.replicas.agent import read_log
from tests.torture.replicas.clients import PATIENCE_S, Clients, Clock
from tests.torture.replicas.faults import Fault, draw_faults
from tests.torture.replicas.fleet import AGENT, Fleet
from tests.torture.replicas.older import rolling
from tests.torture.replicas.sdk import SdkClient
from tests.torture.replicas.skewed import ahead_s
from tests.torture.replicas.storm import Befallen, Storm
from tests.torture.replicas.traffic import TURNS_PER_SESSION, Ledger, Traffic, Wish, draw_wish

TENANT = Tenant("local")
SWEEP_S = 2.0
BACK_UP_AGAIN_S = 1.0
NOWHERE = TurnId("turn_00000000000000000000000000")

Report = Callable[[str], None]


class Plan(Value):
    """What a run is made of."""

    seed: int
    calm_s: float
    storm_s: float
    clients: int = 200
    sdk_clients: int = 8
    replicas: int = 3
    ttl_s: float = 3.0
    pause_s: float = 1.0
    """How long clients think between two messages, on the average."""

    chosen: tuple[Fault, ...] = ()
    """Faults in place of those that the seed has."""
    older: str = ""
    """The folder of an older Holdfast that every replica begins as."""

    def faults(self) -> tuple[Fault, ...]:
        whole_s = self.calm_s + self.storm_s
        drawn = self.chosen or draw_faults(
            self.seed,
            from_s=self.calm_s,
            to_s=whole_s,
            replicas=self.replicas,
            ttl_s=self.ttl_s,
        )
        return rolling(drawn, whole_s=whole_s) if self.older else drawn

    @property
    def ahead_s(self) -> tuple[int, ...]:
        """How far the clock of each replica is ahead. Older ones went by their own, so theirs are right."""
        return tuple(0 if self.older else ahead_s(number) for number in range(self.replicas))


class Backup(Value):
    """A backup that was taken in the middle of the storm."""

    file: str
    began_s: float
    took_s: float
    turns: int = 0
    """How many were acknowledged before it began, each of which has to be in it."""
    served: tuple[str, ...] = ()
    """Conversations that went on from it."""
    wrong: tuple[str, ...] = ()


class Seen(Value):
    """What a run has left for those who judge it."""

    plan: Plan
    traffic: Traffic
    befallen: tuple[Befallen, ...]
    acknowledged_s: tuple[float, ...]
    statuses: tuple[tuple[tuple[int, str], int], ...]
    logs: tuple[bytes, ...]
    """What each replica has logged."""
    stormed_s: float
    """When the last fault was over."""
    backup: Backup


async def run(plan: Plan, here: Path, database: Server, *, report: Report = lambda _: None) -> Seen:
    """Everything that happens under this plan. The order of faults is the seed's; what they meet is not."""
    report("starting the replicas")
    older = Path(plan.older) if plan.older else None
    async with Fleet.started(
        here, database, ahead_s=plan.ahead_s, ttl_s=plan.ttl_s, older=older
    ) as fleet:
        now_s = Clock()
        ledger = Ledger()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=3.0, sock_read=PATIENCE_S)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
            clients = Clients(http, [each.url for each in fleet.replicas], ledger, now_s)
            storm = Storm(fleet, now_s)
            backing_up = asyncio.create_task(_back_up(plan, here, fleet, clients))
            stormed_s = await _play(plan, fleet, clients, storm, report)
            await _settle(fleet)
            backup = await backing_up
        report("reading the store")
        sessions, findings = await _look(fleet)
        effects, prompts = _effects(fleet, sessions), tuple(fleet.oracle.prompts)
        report("restoring a backup")
        backup = await _judge_backup(here, fleet, backup, ledger)
        recording = Recording(
            sends=tuple(each.send for each in ledger.wired),
            acts=tuple(ledger.acts),
            watched=tuple(ledger.watched),
            effects=effects,
            sessions=sessions,
            healed_s=stormed_s,
            patience_s=2 * plan.ttl_s + SWEEP_S + PATIENCE_S,
            shutdowns=sum(each.fault.kind in ("drain", "hurry") for each in storm.befallen),
            crashes=len(storm.befallen),
            findings=(*findings, *backup.wrong),
        )
        return Seen(
            plan=plan,
            traffic=Traffic(
                recording=recording,
                wired=tuple(ledger.wired),
                prompts=prompts,
            ),
            befallen=tuple(storm.befallen),
            acknowledged_s=tuple(ledger.acknowledged_s),
            statuses=tuple(ledger.statuses.most_common()),
            logs=tuple(each.log.read_bytes() for each in fleet.replicas),
            stormed_s=stormed_s,
            backup=backup,
        )


async def _play(plan: Plan, fleet: Fleet, clients: Clients, storm: Storm, report: Report) -> float:
    """Let the crowd talk until the storm is over, and ask everybody whether they are well; when it was over."""
    crowd = Crowd(plan, fleet, clients)
    talking = [asyncio.create_task(each) for each in crowd.everybody()]
    telling = asyncio.create_task(_tell(plan, clients, storm, report))
    await storm.rage(plan.faults())
    await asyncio.sleep(max(0.0, plan.calm_s + plan.storm_s - clients.now_s()))
    stormed_s = clients.now_s()
    crowd.over.set()
    report("waiting for the last answers")
    await asyncio.gather(*talking)
    telling.cancel()
    report("asking every replica about every session")
    await crowd.probe()
    return stormed_s


async def _tell(plan: Plan, clients: Clients, storm: Storm, report: Report) -> None:
    while True:
        await asyncio.sleep(2.0)
        acknowledged = len(clients.ledger.acknowledged_s)
        of_s = plan.calm_s + plan.storm_s
        report(
            f"{clients.now_s():.0f} of {of_s:.0f} s, {len(clients.ledger.wired):,} attempts, "
            f"{acknowledged:,} acknowledged, {len(storm.befallen)} faults"
        )


class Crowd:
    """Everybody who talks, and where they do."""

    def __init__(self, plan: Plan, fleet: Fleet, clients: Clients) -> None:
        self._plan = plan
        self._fleet = fleet
        self._clients = clients
        self._numbers = count(1)
        self._said = [0] * max(1, plan.clients // 3)
        """How often each of the sessions of the moment was spoken to."""
        self.over = asyncio.Event()

    def everybody(self) -> list[Coroutine[None, None, None]]:
        rngs = [Random(f"{self._plan.seed}/{n}") for n in range(self._plan.clients + 4)]
        plain = self._plan.clients - self._plan.sdk_clients
        return [
            *(self._talk(rng) for rng in rngs[:plain]),
            *(self._talk_by_sdk(rng) for rng in rngs[plain : self._plan.clients]),
            *(self._meddle(rng) for rng in rngs[self._plan.clients :]),
        ]

    def _name(self, rng: Random) -> SessionKey:
        place = rng.randrange(len(self._said))
        self._said[place] += 1
        return SessionKey(f"s{place}-{self._said[place] // TURNS_PER_SESSION}")

    async def _talk(self, rng: Random) -> None:
        while not await self._pause(rng):
            wish = draw_wish(rng, next(self._numbers), self._name(rng), sdk=False)
            await self._clients.fulfil(wish, rng)

    async def _talk_by_sdk(self, rng: Random) -> None:
        sdk = SdkClient(self._clients, self._fleet.balancer.url)
        while not await self._pause(rng):
            wish = draw_wish(rng, next(self._numbers), self._name(rng), sdk=True)
            await sdk.fulfil(wish, rng)
        await sdk.close()

    async def _meddle(self, rng: Random) -> None:
        """Cancel and watch other people's turns, at any replica."""
        while not await self._pause(rng):
            if not self._clients.ledger.running:
                continue
            turn_id, replayable = rng.choice(self._clients.ledger.running)
            at = rng.randrange(self._plan.replicas)
            if rng.random() < 0.2:
                await self._clients.cancel(turn_id, at)
            else:
                since = rng.choice((0, 0, 2, 7)) if replayable else 0
                await self._clients.watch(turn_id, at, since=since)

    async def _pause(self, rng: Random) -> bool:
        """Think for a while; whether it is over."""
        try:
            async with asyncio.timeout(2 * self._plan.pause_s * rng.random()):
                await self.over.wait()
        except TimeoutError:
            return False
        return True

    async def probe(self) -> None:
        """Say something to each session of the moment, each at another replica: all of them have to be of use."""
        rng = Random(self._plan.seed)

        async def ask(place: int, said: int) -> None:
            number = next(self._numbers)
            wish = Wish(
                number=number,
                text=f"w{number}",
                name=SessionKey(f"s{place}-{said // TURNS_PER_SESSION}"),
                api="chat",
                stream=False,
                key=IdempotencyKey(f"key-{number}"),
            )
            await self._clients.fulfil(wish, rng, probe=True)

        await asyncio.gather(*(ask(place, said) for place, said in enumerate(self._said)))


async def _back_up(plan: Plan, here: Path, fleet: Fleet, clients: Clients) -> Backup:
    """Take one as soon as the storm is half over, and the database is there to be asked."""
    await asyncio.sleep(max(0.0, plan.calm_s + plan.storm_s / 2 - clients.now_s()))
    file = here / "backup.sql"
    while True:
        began_s = clients.now_s()
        try:
            await backups.back_up_postgres(fleet.database, fleet.name, file)
        except (subprocess.CalledProcessError, OSError):  # it is being struck itself
            await asyncio.sleep(BACK_UP_AGAIN_S)
        else:
            return Backup(file=str(file), began_s=began_s, took_s=clients.now_s() - began_s)


async def _judge_backup(here: Path, fleet: Fleet, backup: Backup, ledger: Ledger) -> Backup:
    """Restore it, verify it, go on from it and verify it again; the same backup, with what was found."""
    url = await backups.restore_postgres(fleet.database, Path(backup.file))
    sends = [each.send for each in ledger.wired]
    before = [each for each in sends if each.acknowledged and each.done_s < backup.began_s]
    turns = {each.turn_id for each in before if each.turn_id}
    names = sorted({str(each.name) for each in before if isinstance(each.name, SessionKey)})[:3]
    wrong = await backups.judge(url, turns)
    wrong += await backups.serve_from(
        here,
        url,
        names,
        source=AGENT,
        model="root",
        environment=fleet.replicas[0].environment,
    )
    wrong += await backups.judge(url, ())
    return msgspec.structs.replace(
        backup, turns=len(turns), served=tuple(names), wrong=tuple(wrong)
    )


async def _settle(fleet: Fleet) -> None:
    """Wait until nothing is open any more. What stays open is for the checker to complain about."""
    for _ in range(150):
        rows = await fleet.ask("select 1 from holdfast.turn where state = 'open' limit 1")
        if not rows:
            return
        await asyncio.sleep(0.2)


async def _look(fleet: Fleet) -> tuple[tuple[FoundSession, ...], tuple[str, ...]]:
    store = await open_store(f"{fleet.url}?listen=off")
    try:
        findings = [str(each) async for each in verify(store) if isinstance(each, Finding)]
        return await find_all(store, TENANT), tuple(findings)
    finally:
        await store.close()


def _effects(fleet: Fleet, sessions: tuple[FoundSession, ...]) -> tuple[Effect, ...]:
    """What tools have done, each with the turn that knows its call."""
    turn_of: dict[str, TurnId] = {}
    for session in sessions:
        for turn in session.turns:
            known = [each.id for each in turn.items if isinstance(each, ToolCall)]
            known += [
                each.event.call for each in turn.journal if isinstance(each.event, ToolStarted)
            ]
            turn_of |= {str(each): turn.row.turn_id for each in known}
    lines = read_log(fleet.tools.read_bytes()) if fleet.tools.exists() else []
    return tuple(
        Effect(
            key=CallId(each.key),
            turn_id=turn_of.get(each.key, NOWHERE),
            kind=each.kind,  # type: ignore[arg-type]
            at_s=0.0,
            node=each.node,
            said=each.said,
        )
        for each in lines
    )
