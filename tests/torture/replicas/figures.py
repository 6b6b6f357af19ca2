"""What a run comes to in numbers: how much was done, what it met, and how long turns waited for a new holder."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from holdfast.core.codec import Value
from tests.torture.replicas.run import Seen
from tests.torture.replicas.storm import Befallen

LEAVES_TURNS = frozenset({"kill", "pause", "silence", "cut"})
"""Faults after which a replica's turns are taken over, if they last."""


class Line(msgspec.Struct, frozen=True):
    """What is needed of a replica's log."""

    at: str
    event: str = ""
    turn: str = ""
    ahead_s: float = 0.0
    """How far the clock was ahead that it was written by."""

    @property
    def at_s(self) -> float:
        return datetime.fromisoformat(self.at).timestamp() - self.ahead_s


class Takeover(Value):
    """A turn that a fault has left, and how long it waited."""

    turn_id: str
    waited_s: float
    disturbed: bool
    """Something else was the matter meanwhile: with the database, or with every other replica."""


def takeovers(seen: Seen) -> list[Takeover]:
    """How long the turns of replicas that were struck waited until somebody took them over."""
    logs = [list(_lines(*each)) for each in zip(seen.logs, seen.plan.ahead_s, strict=True)]
    taken: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for number, log in enumerate(logs):
        for line in log:
            if line.event == "turn.taken_over":
                taken[line.turn].append((line.at_s, number))
    found = []
    for each in seen.befallen:
        replica = each.fault.replica
        if replica is None or each.fault.kind not in LEAVES_TURNS:
            continue
        for turn_id in _held(logs[replica], each.from_s):
            later = [at_s for at_s, by in taken[turn_id] if at_s > each.from_s and by != replica]
            if later:
                found.append(
                    Takeover(
                        turn_id=turn_id,
                        waited_s=min(later) - each.from_s,
                        disturbed=_disturbed(seen, each, min(later)),
                    )
                )
    return found


def _lines(log: bytes, ahead_s: float) -> Iterator[Line]:
    for each in log.splitlines():
        if each.startswith(b"{"):
            line = msgspec.json.decode(each, type=Line)
            yield msgspec.structs.replace(line, ahead_s=ahead_s)


def _held(log: Sequence[Line], at_s: float) -> set[str]:
    """The turns that a replica played at a moment."""
    held: set[str] = set()
    for line in log:
        if line.at_s > at_s:
            break
        match line.event:
            case "turn.began" | "turn.taken_over":
                held.add(line.turn)
            case "turn.ended":
                held.discard(line.turn)
            case "server.ready":
                held.clear()
    return held


def _disturbed(seen: Seen, fault: Befallen, taken_s: float) -> bool:
    """Whoever takes over has to have been well for one TTL."""
    ttl_s = seen.plan.ttl_s
    others = [
        each
        for each in seen.befallen
        if each is not fault and each.from_s < taken_s and each.until_s > fault.from_s - ttl_s
    ]
    unwell = {each.fault.replica for each in others}
    return None in unwell or len(unwell - {fault.fault.replica}) >= seen.plan.replicas - 1


# ── saying it ────────────────────────────────────────────────────────────────────────────────


def told(seen: Seen) -> list[str]:
    """The figures, line by line."""
    lines = {
        "operations": _operations(seen),
        "acknowledged": _acknowledged(seen),
        "continued": _continued(seen),
        "faults": _counted(Counter(each.fault.kind for each in seen.befallen)),
        "throughput": _throughput(seen),
        "503": _away(seen),
        "takeovers": _takeovers(seen),
        "backup": _backed_up(seen),
        "answers": _counted({f"{status} {code}".strip(): n for (status, code), n in seen.statuses}),
    }
    return [f"{name:13}{words}" for name, words in lines.items()]


def _operations(seen: Seen) -> str:
    wired, recording = seen.traffic.wired, seen.traffic.recording
    keyed = sum(each.send.key is not None for each in wired)
    more = f"{keyed:,} with a key, {len(recording.acts):,} cancels, {len(recording.watched):,} watchers"
    return f"{len(wired):,} attempts ({_counted(Counter(each.api for each in wired))}), {more}"


def _acknowledged(seen: Seen) -> str:
    effects, prompts = len(seen.traffic.recording.effects), len(seen.traffic.prompts)
    return (
        f"{len(seen.acknowledged_s):,} answers; {effects:,} effects of tools, {prompts:,} prompts"
    )


def _continued(seen: Seen) -> str:
    rows = [turn.row for each in seen.traffic.recording.sessions for turn in each.turns]
    going_on = [each for each in rows if each.continues is not None]
    whole = sum(each.ended_by == "completed" for each in going_on)
    return f"{len(going_on):,} turns went on with one that broke off, {whole:,} to its end"


def _throughput(seen: Seen) -> str:
    calm_s = seen.plan.calm_s
    calm = sum(each < calm_s for each in seen.acknowledged_s) / calm_s
    stormy = [each for each in seen.acknowledged_s if calm_s <= each < seen.stormed_s]
    storm = len(stormy) / max(0.001, seen.stormed_s - calm_s)
    share = storm / max(0.001, calm)
    return f"{calm:.1f} turns/s in the calm, {storm:.1f} in the storm ({share:.2f}×)"


def _away(seen: Seen) -> str:
    away = [each for each in seen.traffic.wired if each.status == 503]
    return f"{len(away):,}, {sum(each.retry_after for each in away):,} of them with Retry-After"


def _takeovers(seen: Seen) -> str:
    found = takeovers(seen)
    calm = _waits([each.waited_s for each in found if not each.disturbed])
    other = _waits([each.waited_s for each in found if each.disturbed])
    return f"undisturbed {calm}; while more was wrong {other}; a lease is {seen.plan.ttl_s:g} s"


def _backed_up(seen: Seen) -> str:
    backup = seen.backup
    return (
        f"taken after {backup.began_s:.0f} s, in {backup.took_s:.1f} s; restored, {backup.turns:,} acknowledged turns "
        f"accounted for, served {len(backup.served)} conversations, verified before and after"
    )


def _counted(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda each: -each[1])
    return ", ".join(f"{name} {number:,}" for name, number in ordered)


def _waits(waited: Sequence[float]) -> str:
    if not waited:
        return "0"
    ordered = sorted(waited)
    middle, late = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"{len(ordered)}: p50 {middle:.1f} s, p99 {late:.1f} s, longest {ordered[-1]:.1f} s"
