"""The supervisor of worker processes: it starts several on one port, restarts them, and stops them together.

1. Each worker is a node of its own, with its own connection to the store. Workers share an address, and no
   conversations: what holds between replicas holds between workers.
2. The first worker starts alone. It migrates the store, and an error in the settings is reported once, not by each.
3. The number of workers is kept until they are told to stop; see `processes/restart_policy.py`.
4. Workers do not outlive the supervisor, and it waits for those that it has started. As process 1 of a container it
   also reaps orphaned processes.

The supervisor has no event loop and no thread, and opens no store: it forks, and a forked process must not inherit
any of these.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Self, assert_never

import msgspec
from msgspec import Struct

from holdfast import limits
from holdfast.observe.events import event, warn
from holdfast.observe.log_files import reopen_all, standard_files
from holdfast.server.http.listen_sockets import SharedPort
from holdfast.server.processes.process_role import ReadyServer
from holdfast.server.processes.reload_signal import ALWAYS_RELOAD, hangup_handler, reload_part
from holdfast.server.processes.restart_policy import ExpectedEnd, GiveUp, Restart, judge_end
from holdfast.server.processes.worker import DRAIN, HURRY, RELOAD, SharedState, Worker

READY_BYTES = 65536


class WorkerSupervisor:
    """Starts workers, restarts them, and stops them."""

    def __init__(
        self,
        count: int,
        port: SharedPort,
        *,
        bounded: bool,
        on_ready: Callable[[ReadyServer], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_ready` is called once, when all workers accept connections; for `bounded` see `SharedState`."""
        self._places = [_Place(number=number) for number in range(count)]
        self._places[0].start_at_s = float("-inf")
        self._port = port
        self._shared = SharedState(count, bounded=bounded)
        self._restarts = 0
        self._on_ready = on_ready
        self._clock = clock
        self._logs = standard_files()
        self._serving = False
        self._stopping: bytes | None = None
        self._kill_at_s = float("inf")
        self._code = 0

    def run(self) -> Worker | int:
        """Returns several times, as a fork does: in each worker with its role, and in the supervisor, once all workers
        have ended, with an exit code."""
        self._on_hangup = hangup_handler(self._reload, self._stop)
        with _SignalFile() as signals:
            outcome = self._supervise(signals)
        if isinstance(outcome, Worker):
            # Until it listens it has nothing to finish, so Ctrl-C may kill it. It has not read its files yet, so
            # a signal to reload asks for nothing.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            for each in (signal.SIGHUP, *ALWAYS_RELOAD):
                signal.signal(each, signal.SIG_IGN)
        return outcome

    def _supervise(self, signals: _SignalFile) -> Worker | int:
        while True:
            self._reap()
            worker = self._start_due()
            if worker is not None:
                return worker
            if all(each.is_vacant for each in self._places):
                self._port.close()
                return self._code
            self._kill_late()
            self._wait(signals)

    # ── waiting ──

    def _wait(self, signals: _SignalFile) -> None:
        """Wait for a message of a worker, a signal, or the time of the next start or kill."""
        lines = {each.line.fileno(): each for each in self._places if each.line is not None}
        timeout_s = max(0.0, self._next_s() - self._clock())
        readable, _, _ = select.select(
            [signals.fileno(), *lines], [], [], None if timeout_s == float("inf") else timeout_s
        )
        for each in readable:
            if each in lines:
                self._read_line(lines[each])
            else:
                said = signals.read()
                for _ in range(said.count(signal.SIGTERM) + said.count(signal.SIGINT)):
                    self._stop()
                if signal.SIGHUP in said:
                    self._on_hangup()
                elif any(each in said for each in ALWAYS_RELOAD):
                    self._reload()

    def _next_s(self) -> float:
        starts = [each.start_at_s for each in self._places if each.start_at_s is not None]
        return min([self._kill_at_s, *starts])

    def _read_line(self, place: _Place) -> None:
        assert place.line is not None
        try:
            said = place.line.recv(READY_BYTES)
        except OSError:  # the worker was killed before it had read our order
            said = b""
        if not said:  # the worker has ended; SIGCHLD reports it, too
            place.close_line()
            return
        place.said += said
        if not place.said.endswith(b"\n"):
            return
        place.is_ready = True
        if place.number == 0 and not self._serving:
            for each in self._places[1:]:
                if (
                    each.pid is None
                ):  # else it was started before, by an earlier first worker that died since
                    each.start_at_s = float("-inf")
        if not self._serving and all(each.is_ready for each in self._places):
            self._serving = True
            self._on_ready(msgspec.json.decode(self._places[0].said, type=ReadyServer))

    # ── starting ──

    def _start_due(self) -> Worker | None:
        """Start the workers whose time has come. None in the supervisor; in a started worker, its role."""
        now_s = self._clock()
        for place in self._places:
            if place.start_at_s is not None and place.start_at_s <= now_s:
                worker = self._start(place, now_s)
                if worker is not None:
                    return worker
        return None

    def _start(self, place: _Place, now_s: float) -> Worker | None:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for each in (
                self._places
            ):  # an inherited copy would keep other workers' lines open without the supervisor
                each.close_line()
            return Worker(place.number, self._port, theirs, self._shared, run=place.run + 1)
        theirs.close()
        place.run += 1
        place.line, place.pid, place.said = ours, pid, b""
        place.is_ready, place.start_at_s, place.started_s = False, None, now_s
        return None

    # ── ending ──

    def _stop(self) -> None:
        """Drain; when called again, hurry."""
        order = DRAIN if self._stopping is None else HURRY
        self._stopping = order
        self._kill_at_s = min(self._kill_at_s, self._clock() + limits.worker_stop_s)
        self._port.close()
        for place in self._places:
            place.start_at_s = None
            place.order(order)

    def _reload(self) -> None:
        """Tell every worker to reload; the supervisor itself only reopens the log."""
        with reload_part("log"):
            reopen_all(self._logs)
        for place in self._places:
            if place.is_ready:
                place.order(RELOAD)

    def _reap(self) -> None:
        """Reap every process that has ended, workers and orphans."""
        ended = {}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            ended[pid] = os.waitstatus_to_exitcode(status)
        for place in self._places:
            if place.pid in ended:
                self._judge(place, ended[place.pid])

    def _judge(self, place: _Place, code: int) -> None:
        pid, was_ready = place.pid, place.is_ready
        place.close_line()
        place.pid, place.is_ready = None, False
        verdict = judge_end(
            draining=self._stopping is not None,
            serving=self._serving,
            was_ready=was_ready,
            lived_s=self._clock() - place.started_s,
            deaths=place.deaths,
        )
        self._restarts += isinstance(verdict, Restart)
        self._shared.note_end(place.number, place.run, restarts=self._restarts)
        match verdict:
            case Restart(after_s=after_s, deaths=deaths):
                place.start_at_s, place.deaths = self._clock() + after_s, deaths
                warn("worker.ended", worker=place.number, pid=pid, code=code, again_in_s=after_s)
            case GiveUp():
                # A worker that exits has logged why; one that was killed by a signal has not.
                if code < 0:
                    warn("worker.ended", worker=place.number, pid=pid, code=code)
                self._code = code if code > 0 else 1
                self._stop()
            case ExpectedEnd():
                event("worker.ended", worker=place.number, pid=pid, code=code)
                if code and was_ready:
                    self._code = self._code or 1
            case _:
                assert_never(verdict)

    def _kill_late(self) -> None:
        if self._clock() >= self._kill_at_s:
            self._kill_at_s = float("inf")
            for place in self._places:
                place.kill(signal.SIGKILL)


class _Place(Struct):
    """A place for one worker at a time, and the line to it."""

    number: int
    run: int = 0
    """How many workers this place has had."""
    pid: int | None = None
    line: socket.socket | None = None
    said: bytes = b""
    is_ready: bool = False
    started_s: float = 0.0
    start_at_s: float | None = None
    """When the next worker is to start; None if none is."""
    deaths: int = 0

    @property
    def is_vacant(self) -> bool:
        return self.pid is None and self.start_at_s is None

    def order(self, order: bytes) -> None:
        """Send an order. A worker that is not ready yet has nothing to finish and reads no orders: it is killed."""
        if not self.is_ready:
            self.kill(signal.SIGTERM)
        elif self.line is not None:
            try:
                self.line.send(order)
            except OSError:
                pass  # it has ended

    def kill(self, how: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, how)  # it was not reaped yet, so the number is still its own

    def close_line(self) -> None:
        if self.line is not None:
            self.line.close()
            self.line = None


class _SignalFile:
    """Signals as a file to wait for: SIGTERM and SIGINT to stop, SIGHUP and others to reload, SIGCHLD when a process has
    ended."""

    SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, *ALWAYS_RELOAD)

    def __enter__(self) -> Self:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._before = {each: signal.signal(each, _do_nothing) for each in self.SIGNALS}
        self._waker = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._waker)
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        return self._reader.fileno()

    def read(self) -> bytes:
        """The numbers of the signals since the last call."""
        return self._reader.recv(256)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Do nothing: the wakeup file has the signal's number already."""
