"""One turn that this node owns: played in a task of its own, committed on success, ended by policy on
anything else. Connections only watch; none of them runs it.

1. The end is decided once. The first interruption wins; after the last transaction has been submitted, a
   cancel, a disconnect or a deadline changes nothing.
2. Success means that the turn is complete (`Finish`) and its commit is durable. A player that returns early,
   raises, or is cancelled has not succeeded.
3. A turn that was lost to another node is not a failed turn: nothing is ended here, and its watchers follow it
   there.
4. A turn whose end the store did not accept for `store_retry_s`, or cannot write because of damage, is left to
   recovery, and its watchers get the store's error: how it ends is not known before the store is back.
5. No reference cycle leads from a turn to itself: its memory is freed when its last watcher has gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from holdfast import limits
from holdfast.core.codec import Decoder, Value, encode
from holdfast.core.grants import Grant, holder
from holdfast.core.history.conversation import Snapshot
from holdfast.core.items import Blob, EndedBy, UserMessage
from holdfast.core.policy import Verdict, decide
from holdfast.core.ports import Play
from holdfast.core.turns import events as ev
from holdfast.core.turns.effects import Finish, StopAtLimit, wanted
from holdfast.core.turns.turn import Turn
from holdfast.errors import (
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    Superseded,
    TurnFailed,
    without_frames,
)
from holdfast.ids import Minter, Tenant
from holdfast.sessions.session_requests import Ending
from holdfast.sessions.turns.feed import Feed
from holdfast.sessions.turns.lease import Lease
from holdfast.sessions.turns.recorder import Recorder
from holdfast.sessions.turns.store_retries import persistently, told_again
from holdfast.sessions.turns.turn_end import HandedOver, Judge, NotYet, Settled, settle
from holdfast.store.outcomes import Fence, GrantFilter
from holdfast.store.rows import SignalRow
from holdfast.store.store import Store

log = logging.getLogger("holdfast.sessions")

_steering: Decoder[tuple[UserMessage, ...]] = Decoder(tuple[UserMessage, ...])


class Lost(Value):
    """This node does not own the turn any more, or does not know how it ended; the store does."""


class LiveTurn:
    """A turn while this node plays it. Its player uses it as an `OpenTurn`."""

    def __init__(
        self,
        store: Store,
        fence: Fence,
        snapshot: Snapshot,
        turn: Turn,
        feed: Feed,
        lease: Lease | None,
        *,
        mint: Minter,
        now_ms: Callable[[], int],
        judge: Judge | None = None,
    ) -> None:
        """`judge` decides what becomes of the turn in place of its own policy: for recovered turns. A stateless turn,
        which no other node can take over, has no lease."""
        self._store = store
        self.fence = fence
        self._snapshot = snapshot
        self.feed = feed
        self._lease = lease
        self._mint = mint
        self._now_ms = now_ms
        self._instead = judge
        self._recorder = Recorder(
            store, fence, turn, feed, now_ms=now_ms, on_failure=self._unrecorded
        )
        self._playing: asyncio.Task[object] | None = None
        """The task of this turn, while it runs the player."""
        self._stops = 0
        """How often that task was cancelled to stop the player."""
        self._cause: ev.Interrupted | None = None
        self._deciding = False
        self._late: ev.Interrupted | None = None
        self._lost = False
        self.broke = False
        """An unexpected error keeps this node from ending the turn, which it still holds."""
        self.abandoned = False
        """Its player does not stop; this node takes no more notice of it."""
        self._steers: dict[int, SignalRow] = {}
        self._clients = 0
        self.heard: set[int] = set()
        """The numbers of the steer signals whose messages are part of this turn."""
        self.error: Exception | None = None
        """The error that the player raised, if any."""
        self.unstored: StoreUnavailable | StoreDamaged | None = None
        """Why the store did not accept the turn's end, if the turn was left open for that."""
        self.after: Snapshot | None = None
        """The session after this turn, if it was kept."""
        self.loop = asyncio.get_running_loop()
        """The event loop of the turn. On 3.11, finding the running loop is a system call."""
        self.began_s = self.loop.time()
        self.settling_s: float | None = None
        """When this node began to end the turn, by the loop's clock."""
        self.done: asyncio.Future[Ending | Lost] = self.loop.create_future()
        self._waiting: list[asyncio.Future[None]] = []

    # ── for the player ──

    @property
    def tenant(self) -> Tenant:
        return self.fence.tenant

    @property
    def mint(self) -> Minter:
        return self._mint

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    @property
    def turn(self) -> Turn:
        return self._recorder.turn

    @property
    def deadline_s(self) -> float | None:
        deadline_ms = self.turn.request.deadline_at_ms
        return max(0.0, (deadline_ms - self._now_ms()) / 1000) if deadline_ms else None

    async def record(self, *events: ev.Event) -> None:
        recorder = self._recorder
        for event in events:
            if type(event) is ev.ToolStarted:
                await self._be_seen_alive()
        if recorder.note(events):
            await recorder.flush()

    async def _be_seen_alive(self) -> None:
        """Renew the lease if other nodes may take this one for dead. If they have taken over the turn, the fence
        refuses the intent anyway; but a node that is about to run a tool should be seen alive."""
        lease = self._lease
        if lease is not None and not lease.is_live:
            await persistently(lease.renew)

    async def keep_blob(self, data: bytes, media_type: str) -> Blob:
        digest = await self._store.put_blob(self.fence.tenant, self.fence.session_id, data)
        return Blob(media_type=media_type, digest=digest, size_bytes=len(data))

    async def blob(self, digest: str) -> bytes | None:
        return await self._store.blob(self.fence.tenant, self.fence.session_id, digest)

    async def memories(self, agent: str) -> Mapping[str, str]:
        rows = await self._store.memories(self.fence.tenant, agent)
        return {row.memory_id: row.text for row in rows}

    async def grants(self, agent: str) -> tuple[Grant, ...]:
        found: list[Grant] = []
        for whose in (agent, holder(agent, self.fence.session_id)):
            where = GrantFilter(source_key=self.turn.request.source_key, agent=whose, live=True)
            rows = await self._store.grants(self.fence.tenant, where, limit=limits.grants_max)
            found += (row.grant for row in rows)
        return tuple(found)

    async def take_steering(self) -> tuple[UserMessage, ...]:
        if not self._steers or not self.turn.root.idle or self.turn.interrupted:
            return ()
        heard, self._steers = self._steers, {}
        # Before it is durable: a poll that is under way may deliver the same signals again.
        self.heard |= heard.keys()
        rows = [heard[n] for n in sorted(heard)]  # hints come in any order
        messages = tuple(each for row in rows for each in steering_messages(row))
        await self._recorder.record(ev.Steered(items=messages, signals=tuple(heard)))
        return messages

    # ── for clients and other nodes ──

    def interrupt(self, by: EndedBy, detail: str = "", code: str = "") -> bool:
        """Stop the player, and end the turn by policy. False if the end has been decided already."""
        if self._deciding:
            # Too late, unless the store refuses the commit because of a steered message.
            self._late = self._late or ev.Interrupted(by=by, detail=detail, code=code)
        if self._deciding or self._cause is not None:
            return False
        self._cause = ev.Interrupted(by=by, detail=detail, code=code)
        self._stop_playing()
        return True

    def lose(self) -> None:
        """Stop the player: another node has the turn, or its session is gone. A last transaction under way finds out
        itself."""
        self._lost = True
        self._stop_playing()

    @property
    def lost(self) -> bool:
        return self._lost

    def abandon(self) -> bool:
        """Give up on a player that does not stop although this node has lost the turn: watchers leave it, and it can
        record nothing. False if no player runs: a last transaction under way finds out itself."""
        if self._playing is None or self.abandoned:
            return False
        self._lost = self.abandoned = True
        self._recorder.refuse(Superseded(self.fence.turn_id, token=self.fence.token))
        self._let_go()
        return True

    def steer(self, rows: Iterable[SignalRow]) -> None:
        """Add messages that were steered into this turn; the player takes them before the next step."""
        self._steers.update((row.n, row) for row in rows if row.n not in self.heard)

    def join(self) -> None:
        """A client waits for the answer."""
        self._clients += 1

    def leave(self) -> None:
        """A client has gone. When none is left, the policy for disconnects decides."""
        self._clients -= 1
        if self._clients == 0 and not self.done.done():
            if self._judge("disconnected") != "finish":
                self.interrupt("disconnected")

    async def wait_end(self) -> Ending | Lost:
        """Wait until the turn has ended here, or was lost. Cancelling the wait does not affect other waiters."""
        if not self.done.done():
            waiting: asyncio.Future[None] = self.loop.create_future()
            self._waiting.append(waiting)
            await waiting
        return self.done.result()

    def _judge(self, by: EndedBy) -> Verdict:
        if self._instead is not None:
            return self._instead(by)
        turn = self._recorder.turn
        return decide(turn.request.policy, by, acted=turn.acted)

    # ── from beginning to end ──

    async def run(self, play: Play) -> None:
        """Play the turn to its end, which is then in `done`. If the store does not take it, that is Lost, and `unstored`
        is set."""
        deadline = self._start_deadline()
        try:
            outcome = await self._play_and_settle(play)
        except Superseded as error:
            without_frames(error)
        except (StoreUnavailable, StoreDamaged) as error:
            without_frames(error)
            self.unstored = told_again(error)
        except Exception as error:
            self.broke = True
            if not isinstance(error, StoreError):
                log.error("turn %s broke", self.fence.turn_id, exc_info=error)
            without_frames(error)
        else:
            self.after = outcome.after
            self.done.set_result(outcome.ending)
        finally:
            if deadline is not None:
                deadline.cancel()
            self._recorder.stop()
            self._let_go()

    def _let_go(self) -> None:
        if not self.done.done():
            self.done.set_result(Lost())
        self.feed.end()
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def _play_and_settle(self, play: Play) -> Settled:
        while True:
            await self._play(play)
            self._recorder.check()
            if self._lost:
                raise Superseded(self.fence.turn_id, token=self.fence.token)
            self._deciding = True
            self.settling_s = self.loop.time()
            outcome = await settle(
                self._store,
                self.fence,
                self._snapshot,
                self._recorder,
                cause=self._why_incomplete(),
                judge=self._judge,
                mint=self._mint,
            )
            match outcome:
                case Settled():
                    return outcome
                case HandedOver():
                    raise Superseded(self.fence.turn_id, token=self.fence.token)
                case NotYet(signals=signals):
                    self._deciding, self._cause = False, self._late
                    self.steer(signals)
                    await self.take_steering()

    async def _play(self, play: Play) -> None:
        """Run the player until it returns, raises, or is stopped."""
        if self._lost or self._cause is not None or self._recorder.turn.interrupted is not None:
            return
        task = self._playing = _this_task()
        try:
            await play(self)
        except asyncio.CancelledError as error:
            if task.cancelling() > self._stops:
                raise  # this task itself was cancelled, with the event loop
            without_frames(error)
        except (Superseded, StoreError) as error:
            if self._lease is not None or isinstance(error, Superseded):
                raise  # the turn is left open, for recovery
            self._failed(
                TurnFailed("model_error", str(without_frames(error)), reason="storage_unavailable")
            )
        except Exception as error:
            self._failed(without_frames(error))
        finally:
            self._playing = None
            while self._stops:  # the cancels were for the player, not for this task
                self._stops -= 1
                task.uncancel()

    def _stop_playing(self) -> None:
        if self._playing is not None:
            self._stops += 1
            self._playing.cancel()

    def _failed(self, failure: Exception) -> None:
        """Interrupt the turn with the player's error: a TurnFailed with its own cause, any other as a model error."""
        self._playing = None  # it has stopped already
        self.error = failure
        if isinstance(failure, TurnFailed):
            self.interrupt(failure.ended_by, failure.detail, failure.reason)
        else:
            self.interrupt("model_error", f"{type(failure).__name__}: {failure}")

    def _why_incomplete(self) -> ev.Interrupted | None:
        """Why the turn did not complete; None if it did."""
        turn = self._recorder.turn
        if turn.interrupted is not None:
            return turn.interrupted
        if self._cause is not None:
            return self._cause
        match wanted(turn):
            case (Finish(),):
                return None
            case (StopAtLimit(limit=limit),):
                return ev.Interrupted(by="limit", detail=limit)
            case _:
                return ev.Interrupted(by="model_error", detail="the player stopped in the middle")

    def _unrecorded(self, failure: BaseException) -> None:
        """Stop the player: the journal cannot be written any more."""
        self._stop_playing()

    def _start_deadline(self) -> asyncio.TimerHandle | None:
        left_s = self.deadline_s
        if left_s is None:
            return None
        return self.loop.call_later(left_s, self.interrupt, "deadline")

    def __repr__(self) -> str:
        return f"<LiveTurn {self.fence.turn_id} of {self.fence.session_id}>"


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None, "a turn is played in a task"
    return task


def steering_payload(messages: tuple[UserMessage, ...]) -> bytes:
    """The payload of a steer signal with these messages."""
    return encode(messages)


def steering_messages(row: SignalRow) -> tuple[UserMessage, ...]:
    """The messages that a steer signal carries."""
    return _steering.strict(row.payload)
