"""Ways to break sessions, each of which has to be noticed: python -m tests.simulation.mutants [words of a name]

A mutant is the real source with a few words exchanged, in a copy of the tree. It is hunted with one seed after the
other, from 0 on, and then with those that have shown something; the table tells how many it took. The source as it is has to survive all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from tests.choosing import choose
from tests.mutation import Edit, broken_copy, run_on

SEEDS = 120
"""How many a mutant may survive."""

TIMEOUT_S = 300.0


class Mutant(Struct, frozen=True, kw_only=True):
    name: str
    edits: tuple[Edit, ...]
    telling: bool = False
    """Among the few that every run of the tests tries."""


class Hunt(Struct, frozen=True, kw_only=True):
    """What became of a mutant. `noticed` is None if it survived."""

    mutant: Mutant
    noticed: str | None
    seconds: float


def mutant(name: str, *edits: tuple[str, str, str], telling: bool = False) -> Mutant:
    return Mutant(name=name, edits=tuple(Edit(*each) for each in edits), telling=telling)


UNTOUCHED = Mutant(name="(nothing is changed)", edits=())

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "the request of a turn that broke off, said again, is a new one",
        (
            "store/decisions.py",
            "    return is_retry and attempt.key is None and bool(attempt.request_hash)",
            "    return False",
        ),
        telling=True,
    ),
    mutant(
        "a retry brings its message along to what it goes on with",
        ("sessions/continuation.py", "        messages=(),\n", ""),
        (
            "sessions/resolve.py",
            "Fresh(input=()) if ask.continues else _reconciled(ask, snapshot, ambient, since, running)",
            "_reconciled(ask, snapshot, ambient, since, running)",
        ),
    ),
    mutant(
        "retries go on with a turn without end",
        (
            "store/shapes.py",
            "retries_left=session.retries_left - 1)",
            "retries_left=session.retries_left)",
        ),
    ),
    mutant(
        "a continuation leaves the keys with the turn that it goes on with",
        (
            "store/operations/turns.py",
            ' if row.state == "done" and row.key != ask.attempt.key]',
            " if row.expires_ms < 0]",
        ),
        (
            "store/operations/turns.py",
            "    if ask.attempt.key is not None:\n        changes += claimed(",
            "    if ask.attempt.key and not ask.request.continues:\n        changes += claimed(",
        ),
    ),
    mutant(
        "a cancel is answered at once, also while the commit is on its way",
        (
            "sessions/transaction.py",
            "            outcome = await settle(\n",
            "            outcome = await self._stoppable(\n",
        ),
        (
            "sessions/transaction.py",
            "            self._deciding = True\n",
            "",
        ),
        (
            "sessions/transaction.py",
            "    async def _play(self, play: Play) -> None:",
            (
                "    async def _stoppable(self, *args, **kwargs):\n"
                "        self._playing = asyncio.ensure_future(settle(*args, **kwargs))\n"
                "        await asyncio.wait({self._playing})\n"
                "        if not self._playing.cancelled():\n"
                "            return self._playing.result()\n"
                "        return Settled(ending=Ending(turn_id=self.fence.turn_id, kept=False,\n"
                "            session_id=self.fence.session_id, by=self._cause.by))\n"
                "\n"
                "    async def _play(self, play: Play) -> None:"
            ),
        ),
    ),
    mutant(
        "a node takes its own turns for orphans",
        (
            "sessions/recovery.py",
            "if turn_id in self._owner.claimed and not ignored_cancel:",
            "if False:",
        ),
        telling=True,
    ),
    mutant(
        "a recovered turn is played without taking it over first",
        (
            "sessions/recovery.py",
            "                if not isinstance(outcome, Taken):\n                    return False\n",
            (
                "                if not isinstance(outcome, Taken):\n                    return False\n"
                "                row = await self._store.session(tenant, session_id)\n"
                "                outcome = msgspec.structs.replace(outcome, fence=msgspec.structs."
                "replace(outcome.fence, token=outcome.fence.token - 1))\n"
            ),
        ),
    ),
    mutant(
        "a tool starts before its intent is durable",
        (
            "sessions/recorder.py",
            "        if kinds & _URGENT:\n            return True\n",
            "",
        ),
        telling=True,
    ),
    mutant(
        "replayable events are shown before they are durable",
        (
            "sessions/recorder.py",
            "        if self._replayable:\n            self._pending += records\n",
            (
                "        if self._replayable:\n"
                "            self.feed.publish(*records)\n"
                "            self._pending += records\n"
            ),
        ),
        (
            "sessions/recorder.py",
            "                if self._replayable:\n                    self.feed.publish(*batch)\n",
            "",
        ),
    ),
    mutant(
        "words are heard twice",
        (
            "sessions/transaction.py",
            "self._steers.update((row.n, row) for row in rows if row.n not in self.heard)",
            "self._steers.update((row.n, row) for row in rows)",
        ),
    ),
    mutant(
        "words that were heard go with the commit, and stay unconsumed",
        (
            "sessions/recorder.py",
            (
                "        if any(isinstance(each.event, ev.Steered) for each in self._pending):\n"
                "            await self.flush()\n"
            ),
            "",
        ),
    ),
    mutant(
        "a lane is left twice",
        (
            "sessions/lanes.py",
            "        lane.leave()\n        self._drop",
            "        lane.leave()\n        lane.leave()\n        self._drop",
        ),
    ),
    mutant(
        "a lane is never left",
        (
            "sessions/owner.py",
            "        if lane is not None:\n            self._lanes.leave(lane)\n",
            "",
        ),
    ),
    mutant(
        "a cancel that came while the end was decided is forgotten",
        (
            "sessions/transaction.py",
            "self._deciding, self._cause = False, self._late",
            "self._deciding, self._cause = False, None",
        ),
    ),
    mutant(
        "what is remembered of a key is never looked at again",
        (
            "sessions/admission.py",
            (
                "                verify = True  # what we remember may be old: look before refusing\n"
                "                continue\n"
            ),
            "                raise\n",
        ),
    ),
    mutant(
        "a turn is committed on a remembered snapshot that has moved",
        (
            "sessions/admission.py",
            "                case Moved():\n                    verify = True\n",
            "                case Moved():\n                    pass\n",
        ),
    ),
    mutant(
        "a turn that was deleted shows an end of its own",
        (
            "sessions/ending.py",
            (
                '    if by in ("superseded", "deleted"):  # somebody else has ended it, and has written so\n'
                "        raise Superseded(fence.turn_id, token=fence.token)\n"
            ),
            "",
        ),
    ),
    mutant(
        "a client is told its own wish in place of what became of the turn",
        (
            "sessions/ending.py",
            "    if row.ended_by != cause.by:\n",
            "    if False:\n",
        ),
    ),
    mutant(
        "a keyed message is steered without its key",
        (
            "sessions/steering.py",
            "                attempt=ask.attempt,\n                after=last_n",
            "                after=last_n",
        ),
    ),
    mutant(
        "a steer that was never heard is answered",
        (
            "sessions/admission.py",
            (
                "if steer is not None and not await self._steering.is_heard(\n"
                "                    ask.tenant, turn_id, steer\n"
                "                ):"
            ),
            "if steer is not None and steer < 0:",
        ),
    ),
    mutant(
        "a keyed steer that was never heard is settled like its turn",
        ("store/decisions.py", 'settlement if heard else "failed"', "settlement"),
    ),
    mutant(
        "a resumed turn forgets how its calls stood",
        (
            "sessions/recovery.py",
            '        await turn.record(*resuming(turn.turn, turn.mint, after="crash"))\n',
            "        pass\n",
        ),
    ),
    mutant(
        "a cancel that waited for a dead node is not seen",
        (
            "sessions/recovery.py",
            "cancelled = cancelled or await self._is_cancelled(taken)",
            "cancelled = cancelled",
        ),
    ),
    mutant(
        "whoever draws the last breath begins another turn",
        (
            "sessions/owner.py",
            "        self.demand_open()\n        return Claim(self, turn_id)\n",
            "        return Claim(self, turn_id)\n",
        ),
    ),
    mutant(
        "a follower leaves out what was written while it looked",
        (
            "sessions/watch.py",
            "                yield records\n                since = records[-1].n + 1\n",
            "                yield records\n                since = records[-1].n + 2\n",
        ),
    ),
    mutant(
        "the policy is asked for another end",
        (
            "sessions/ending.py",
            "    verdict = judge(by)\n",
            '    verdict = judge("cancelled" if cause else by)\n',
        ),
    ),
    mutant(
        "a player that has lost its turn is never told",
        (
            "sessions/recovery.py",
            "                live.lose()\n",
            "                pass\n",
        ),
    ),
    mutant(
        "words that are on their way are taken for unheard",
        (
            "sessions/transaction.py",
            (
                "        # Before it is durable: a poll that was under way brings them again, as if they were new.\n"
                "        self.heard |= heard.keys()\n"
            ),
            "",
        ),
        (
            "sessions/transaction.py",
            "        return messages\n\n    # what others do to it",
            "        self.heard |= heard.keys()\n        return messages\n\n    # what others do to it",
        ),
    ),
    mutant(
        "whoever waited for a deleted session starts a new one",
        (
            "sessions/admission.py",
            "        if bound is None or bound == found:\n",
            "        if True:\n",
        ),
    ),
    mutant(
        "whoever waited for a deleted session waits for another one of that name",
        (
            "sessions/admission.py",
            "        await self._demand_not_deleted(ask, patience, self._lanes.session(name))\n",
            "",
        ),
        (
            "sessions/admission.py",
            "            await self._demand_not_deleted(ask, patience, lane.session)\n",
            "",
        ),
    ),
    mutant(
        "a retry does again what the failed attempt had done",
        (
            "sessions/retry.py",
            "        if not failed.untouched:\n            return retrying(",
            "        if not failed.untouched:\n            return () and retrying(",
        ),
    ),
    mutant(
        "a retry goes on from steps that were made on another history",
        (
            "core/retrying.py",
            "    if _ground(failed.request) != _ground(turn.request):\n",
            "    if False:\n",
        ),
    ),
    mutant(
        "the last of those that wait for a session is opened first",
        (
            "store/sql/sweeps.sql",
            "order by t.began_ms, t.turn_id limit",
            "order by t.began_ms desc, t.turn_id desc limit",
        ),
        (
            "store/operations/finders.py",
            "session_id=session.id, limit=limit))\n",
            "session_id=session.id))[::-1]\n",
        ),
        telling=True,
    ),
    mutant(
        "a turn that has waited begins from the version that it was asked on",
        ("core/rebasing.py", "        base=head.version,\n", ""),
        (
            "store/decisions.py",
            "    if (session.head, session.meta_rev) != (request.base, request.base_rev):\n",
            "    if False:\n",
        ),
    ),
    mutant(
        "what waits for a session that is deleted goes on waiting",
        (
            "store/operations/sessions.py",
            "    ending = list((yield from queued_of(session)))\n",
            "    ending: list[TurnRow] = []\n",
        ),
    ),
    mutant(
        "who is at the door goes before turns that wait",
        (
            "sessions/queue.py",
            "            if not any(each.turn_id.minted_at_ms <= than_ms for each in waiting):\n",
            "            if True:\n",
        ),
    ),
    mutant(
        "who has found a session busy goes before turns that wait, if it is free again",
        (
            "sessions/queue.py",
            " == OPENINGS_MAX:\n                return True\n",
            " == OPENINGS_MAX:\n                return False\n",
        ),
        (
            "sessions/admission.py",
            "            session = await self._store.session(ask.tenant, session_id)\n",
            "            return Moved(session_id=session_id, head=seen.snapshot.version)\n",
        ),
    ),
    mutant(
        "what retries may not go on with any more, a person may not either",
        (
            "store/decisions.py",
            "    if not is_head or session.unfinished != session.head:\n",
            "    if not is_head or session.unfinished != session.head or not session.retries_left:\n",
        ),
    ),
    mutant(
        "an SDK's retry is forgotten as soon as something else was said",
        (
            "store/decisions.py",
            "    kept = head_turn if is_head else earlier\n",
            "    kept = head_turn if is_head else None\n",
        ),
    ),
    mutant(
        "a client that was heard later has the answer, so the first one has it",
        ("sessions/continuation.py", "            is_own=is_own,\n", "            is_own=True,\n"),
    ),
    mutant(
        "retries of a client that was heard later count as the first one's",
        ("sessions/continuation.py", "    if not is_own:", "    if False:"),
    ),
    mutant(
        "a message that a turn has heard is answered by a newer turn of the turn's request, which has not",
        (
            "sessions/recognition.py",
            "            newer = await self._store.snapshot(ask.tenant, snapshot.session_id, known=snapshot)\n",
            "            newer = None\n",
        ),
    ),
    mutant(
        "an SDK's retry of a message that a turn has heard is a new one",
        (
            "sessions/recognition.py",
            "        turn_id = self._steered.find(snapshot, ask.attempt)\n",
            "        turn_id = None\n",
        ),
    ),
    mutant(
        "an SDK's retry of a message is said to the same turn again",
        (
            "sessions/steering.py",
            "            if told_n is not None:\n",
            "            if False:\n",
        ),
    ),
    mutant(
        "requests for one session are recognised in any order",
        (
            "sessions/admission.py",
            "            arrival = await self._arrivals.enter(self._lane_name(ask))\n",
            "            arrival = await self._arrivals.enter(object())\n",
        ),
    ),
    mutant(
        "a node judges deadlines by its own clock",
        (
            "sessions/ambient.py",
            "        return self.own_ms() + self._ahead_ms\n",
            "        return self.own_ms()\n",
        ),
        telling=True,
    ),
    mutant(
        "a request that has waited is compared with the head alone",
        (
            "core/resends.py",
            "            and (broke_off or at >= answers)\n",
            "            and broke_off\n",
        ),
        (
            "core/resends.py",
            "for links in self.turns_back(since)]\n",
            "for links in ()]\n",
        ),
        telling=True,
    ),
    mutant(
        "a message that the open turn was told already is told again",
        (
            "sessions/steering.py",
            "            running, earlier = await self._said_to(ask, turn_id)\n",
            "            running, earlier = (), ()\n",
        ),
    ),
    mutant(
        "two messages are told to a turn on top of the same words",
        (
            "sessions/steering.py",
            "                after=last_n,\n",
            "                after=None,\n",
        ),
    ),
    mutant(
        "the last message of a request is taken for an old one",
        (
            "core/resends.py",
            "        if at >= len(told) - 1:\n            break\n",
            "        if at >= len(told):\n            break\n",
        ),
    ),
    mutant(
        "a request does not see that a later one has brought its message",
        (
            "core/resends.py",
            "    if at != len(told) - 1:\n        return None\n",
            "    return None\n",
        ),
    ),
    mutant(
        "a request has seen all that was committed before the server looked",
        ("core/resends.py", "while version > least and _last", "while False and _last"),
        ("sessions/patience.py", " = lane.base if lane else None", " = None"),
    ),
    mutant(
        "what a queued turn brings is not compared with what was said while it waited",
        (
            "core/rebasing.py",
            "    new = still_new(head, items, since=came)\n",
            "    new = items\n",
        ),
    ),
    mutant(
        "a turn stands on annotations that are old",
        (
            "store/decisions.py",
            "    if (session.head, session.meta_rev) != (ask.request.base, ask.request.base_rev):\n",
            "    if session.head != ask.request.base:\n",
        ),
    ),
    mutant(
        "a commit that was given up for lost is let in after the turn has gone on",
        (
            "store/decisions.py",
            "    if n <= last_n:\n        # It was",
            "    if False:\n        # It was",
        ),
    ),
    mutant(
        "a task that lives as long as the process ends with an error that nobody has foreseen",
        (
            "observe/supervisor.py",
            "            except Exception as error:\n                pause_s = self.note_failure(error)\n",
            (
                "            except StoreUnavailable as error:\n"
                "                pause_s = self.note_failure(error)\n"
            ),
        ),
    ),
    mutant(
        "a task that lives as long as the process ends in silence when it loses a privilege",
        (
            "observe/supervisor.py",
            "            except Exception as error:\n                pause_s = self.note_failure(error)\n",
            (
                "            except StoreFault:\n                return\n"
                "            except Exception as error:\n"
                "                pause_s = self.note_failure(error)\n"
            ),
        ),
        telling=True,
    ),
    mutant(
        "an append that failed in a way that nobody has foreseen counts as durable",
        (
            "sessions/recorder.py",
            "        except BaseException as error:\n            if self._failure is None:  # not refused already",
            (
                "        except (ValueError, KeyError, TimeoutError, OSError, AssertionError):\n"
                "            pass\n"
                "        except BaseException as error:\n"
                "            if self._failure is None:  # not refused already"
            ),
        ),
    ),
    mutant(
        "a turn that breaks in a way that nobody has foreseen keeps its lane",
        (
            "sessions/owner.py",
            "            if not live.abandoned:\n                self._part_from(live, lane)\n",
            (
                "            if not live.abandoned:\n"
                "                self._part_from(live, None if live.broke else lane)\n"
            ),
        ),
    ),
    mutant(
        "a request that failed in a way that nobody has foreseen stays in its lane",
        (
            "sessions/admission.py",
            "        except BaseException:\n            self._lanes.leave(lane)\n",
            "        except (HoldfastError, asyncio.CancelledError):\n            self._lanes.leave(lane)\n",
        ),
    ),
    mutant(
        "a request that failed in a way that nobody has foreseen keeps its key from being tried again",
        (
            "sessions/admission.py",
            "            return await self._submit(ask, play, patience, None)\n        finally:\n            self._claims.leave(claim)\n",
            (
                "            watch = await self._submit(ask, play, patience, None)\n"
                "        except (HoldfastError, asyncio.CancelledError):\n"
                "            self._claims.leave(claim)\n            raise\n"
                "        self._claims.leave(claim)\n        return watch\n"
            ),
        ),
    ),
    mutant(
        "a turn that the store did not take stays claimed, so that nobody recovers it",
        (
            "sessions/owner.py",
            "        self.let_go(fence.turn_id)\n        if live.broke:",
            (
                "        if not live.broke:\n            self.let_go(fence.turn_id)\n"
                "        if live.broke:"
            ),
        ),
    ),
)


def hunt(mutant: Mutant, *, seeds: int = SEEDS) -> Hunt:
    """Let the tests at this mutant until one of them notices."""
    began = time.monotonic()
    with broken_copy(mutant.edits) as copy:
        try:
            noticed = _by_seeds(copy, seeds)
        except subprocess.TimeoutExpired:
            noticed = "no end"
    return Hunt(mutant=mutant, noticed=noticed, seconds=time.monotonic() - began)


_SCRIPT = """
import sys, holdfast
from tests.simulation.campaign import judge
from tests.simulation.seeds import INTERESTING
source, count = sys.argv[1], int(sys.argv[2])
assert holdfast.__file__.startswith(source), holdfast.__file__
for tried, seed in enumerate([*range(count), *(each for each in INTERESTING if each >= count)], 1):
    verdict = judge(seed, "memory")
    if verdict.broken:
        codes = sorted({each.split(":")[0] for each in verdict.broken})
        print(tried, ", ".join(codes))
        break
else:
    print("none")
"""


def _by_seeds(source: Path, count: int) -> str | None:
    """Which promise is broken first, and by the how-manieth seed."""
    told = run_on(source, "-c", _SCRIPT, str(source), str(count), timeout_s=TIMEOUT_S)
    if told.returncode != 0:
        return f"does not even run: {told.stderr[-200:]}"
    line = told.stdout.splitlines()[-1]
    if line == "none":
        return None
    tried, _, codes = line.partition(" ")
    return f"{int(tried):4} seeds  {codes}"


def main(words: list[str]) -> int:
    everything = (UNTOUCHED, *MUTANTS)
    chosen = choose(everything, words, program="python -m tests.simulation.mutants", about=__doc__)
    width = max(len(each.name) for each in chosen)
    wrong = 0
    with ThreadPoolExecutor(os.cpu_count() or 1) as hunters:
        for found in hunters.map(hunt, chosen):
            wrong += (found.noticed is None) != (found.mutant is UNTOUCHED)
            told = found.noticed or "survives"
            print(f"{found.mutant.name:{width}}  {found.seconds:5.1f} s  {told}", flush=True)
    print(f"{len(chosen)} mutants, {wrong} not as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
