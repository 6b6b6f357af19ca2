"""The launcher: starts one command inside the sandbox, watches it, and ends all of its processes. Linux only.

It is a program of its own (`python -I -S`, with little of the standard library and nothing else): the steps between
fork and exec must not happen in a server with threads. It runs as the command's parent:

    server ── launcher ── command and its processes
                  └── with `--bwrap`: bubblewrap ── its process 1 ── command …

1. The command has no capabilities, no new privileges, no terminal, no descriptors but 0, 1 and 2, bounded resources.
2. Files: with bubblewrap only granted files exist. Without it Landlock refuses to open any other file; changes that
   Landlock does not cover (modes, times) are done by the launcher in the command's place, for files in granted roots.
3. A directory that holds a protected file is granted entry by entry, without that file. It cannot gain or lose entries.
4. Network: a network namespace of its own with bubblewrap, no sockets at all without; seccomp refuses the
   system calls that would get around either.
5. Processes are bounded by the kernel, which counts a user's, and by the launcher, which counts the command's.
6. SIGTERM is passed on and gives time; SIGQUIT ends everything at once. The launcher exits last, with the command's
   exit code or signal. If the server dies, everything ends.
"""

from __future__ import annotations

# The C modules: `signal` and `socket` import enum, which takes a third of the start-up time.
import _signal as signal  # type: ignore[import-not-found]
import _socket
import os
import resource
import select
import stat
import struct
import time

from holdfast.tools.sandbox.answers import Answers
from holdfast.tools.sandbox.grants import PROGRAMS, Order, SandboxGrants
from holdfast.tools.sandbox.landlock import confine_files, landlock_abi
from holdfast.tools.sandbox.machine import Machine
from holdfast.tools.sandbox.processes import (
    children_of,
    descendants,
    memory_of,
    send,
    tasks_here,
    threads_of,
)
from holdfast.tools.sandbox.seccomp import filter_program, install_filter
from holdfast.tools.sandbox.system import SystemCallRefused, call, libc, print_message

REFUSED = 126
"""The exit code if the sandbox cannot be made: the command was not started."""

LOOK_S = 0.1
"""How often the launcher adds up the memory, disk and processes of a command."""

ANSWERS_MAX = 500
"""System calls of a command that are answered between two looks: a fifth of a processor. Root's launcher has priority
over the server, and must not be kept busy by a command that makes such calls without end."""


class CommandWatch:
    """Watches the command while it runs, and ends it."""

    def __init__(
        self, child: int, order: Order, answers: Answers, machine: Machine, woken: int
    ) -> None:
        self._child = child
        self._machine = machine
        self._woken = woken
        self._order = order
        self._answers = answers
        self._ends_at = float("inf")

    def to_end(self) -> int:
        """Wait for the command's end, or end it. Returns its wait status. In any case all of its processes end."""
        try:
            self._watch()
        finally:
            status = self._end()
        return status

    def _watch(self) -> None:
        """Watch until the command has ended, or has to be ended."""
        exits = os.pidfd_open(self._child)
        waiting = select.poll()
        for descriptor in (exits, self._answers.listener, self._woken):
            waiting.register(descriptor, select.POLLIN)
        look_at, answered = time.monotonic() + LOOK_S, 0
        while True:
            now = time.monotonic()
            if now >= self._ends_at:
                break
            if now >= look_at:
                if answered >= ANSWERS_MAX:
                    waiting.register(self._answers.listener, select.POLLIN)
                look_at, answered = now + LOOK_S, 0
                if why := self._too_much():
                    print_message(f"the command {why} and was stopped")
                    break
            wait_s = max(min(look_at, self._ends_at) - now, 0)
            ready = dict(waiting.poll(wait_s * 1000))
            asked = ready.get(self._answers.listener, 0)
            if asked & select.POLLIN:
                self._answers.next()
                answered += 1
                if answered >= ANSWERS_MAX:
                    waiting.unregister(self._answers.listener)
            elif asked & select.POLLHUP:  # no process is left that could make a call
                waiting.unregister(self._answers.listener)
            if self._woken in ready:
                self._handle_signals(os.read(self._woken, 64))
            if exits in ready:
                break

    def _too_much(self) -> str:
        """The resource that the command has used too much of; empty if none."""
        own = descendants()
        if memory_of(own, most=self._order.memory) > self._order.memory:
            return f"took more than {self._order.memory:,} bytes of memory"
        if sum(map(threads_of, own)) > self._order.processes:
            return f"started more than {self._order.processes:,} processes"
        return self._machine.scarce()

    def _handle_signals(self, signals: bytes) -> None:
        if any(each != signal.SIGTERM for each in signals):
            self._ends_at = 0.0
            return
        self._ends_at = min(self._ends_at, time.monotonic() + self._order.grace_s)
        for pid in self._inside():
            send(pid, signal.SIGTERM)
            send(pid, signal.SIGCONT)

    def _inside(self) -> list[int]:
        """The command's own processes, without bubblewrap's, which would exit at once."""
        if not self._order.bwrap:
            return descendants()
        return [pid for init in children_of(self._child) for pid in descendants(init)]

    def _end(self) -> int:
        """Kill every process: the group at once, then those that have left it."""
        try:
            os.killpg(self._child, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # the group is empty, or was never made
        status = 0
        while True:
            for pid in descendants():
                send(pid, signal.SIGKILL)
            try:
                pid, ended = os.waitpid(-1, 0)
            except ChildProcessError:
                return status
            if pid == self._child:
                status = ended


# ── the command ──────────────────────────────────────────────────────────────────────────────

SETFCAP = 31
SET_DEATH_SIGNAL, DROP_CAPABILITY, SUBREAPER, NO_NEW_PRIVILEGES = 1, 24, 36, 38


def keep_up() -> None:
    """Raise the launcher's priority, so that a command that starts processes without end cannot starve it. Only root
    may do that; for other users the kernel bounds the number of processes."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        pass


def drop_capabilities(order: Order) -> None:
    """Give up every capability of root, for good and for every program.

    Root's bubblewrap needs one capability to make a namespace with root in it, and drops it there.
    """
    kept = SETFCAP if order.bwrap and os.getuid() == 0 else -1
    number = 0
    while number == kept or libc.prctl(DROP_CAPABILITY, number, 0, 0, 0) == 0:
        number += 1
    if kept >= 0:
        return
    capset = {"x86_64": 126, "aarch64": 91}[os.uname().machine]
    call(capset, struct.pack("<II", 0x20080522, 0), struct.pack("<IIIIII", *[0] * 6))


def bound(order: Order) -> None:
    bounds = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_DATA: order.memory,
        resource.RLIMIT_FSIZE: order.file_bytes,
        resource.RLIMIT_NOFILE: order.files,
        resource.RLIMIT_NPROC: tasks_here() + order.processes,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 0,
    }
    for kind, most in bounds.items():
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def bubblewrap(order: Order, grants: SandboxGrants) -> list[str]:
    """The same command, wrapped in namespaces that contain only what is granted."""
    words = [
        order.bwrap,
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--die-with-parent",
    ]
    words += ["--cap-drop", "ALL"]
    words += ["--share-net"] if order.network else []
    words += ["--proc", "/proc", "--dev", "/dev", "--bind", order.scratch, "/tmp"]
    # Files in memory would belong to no process, and root could change the kernel's settings.
    words += ["--bind", f"{order.scratch}/shm", "/dev/shm"]
    words += ["--remount-ro", "/dev", "--remount-ro", "/proc"]
    for path in PROGRAMS:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
    frozen = [path for path in grants.frozen if path != "/"]
    for path in frozen:
        words += ["--tmpfs", path]
    for path in grants.read:
        words += ["--ro-bind", path, path]
    for path in grants.write:
        words += ["--bind", path, path]
    for path in reversed(frozen):
        words += ["--remount-ro", path]
    return [*words, "--remount-ro", "/", "--chdir", os.getcwd(), "--", *order.argv]


def become(
    order: Order, grants: SandboxGrants, environment: dict[bytes, bytes], launcher: _socket.socket
) -> None:
    """In the child process: give up all privileges, then exec the command."""
    argv = order.argv
    try:
        drop_capabilities(order)
        os.setpgid(0, 0)
        os.nice(5)  # the server and the launcher come first
        libc.prctl(SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if order.bwrap:
            argv = bubblewrap(order, grants)
        bound(order)
        with open(
            "/proc/self/oom_score_adj", "w"
        ) as file:  # the first to be killed when memory runs out
            file.write("1000")
        libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if not order.bwrap:
            confine_files(order, grants)
        listener = install_filter(filter_program(order))
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("<i", listener))
        launcher.sendmsg([b"!"], [rights])
        if not launcher.recv(1):  # wait until the launcher has the descriptor
            os._exit(REFUSED)
        os.close(listener)
    except (OSError, SystemCallRefused, KeyError) as error:
        print_message(f"the sandbox cannot be made: {error}")
        os._exit(REFUSED)
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        print_message(f"{argv[0]}: {error.strerror}")
        os._exit(127)


def replace_devices() -> None:
    """Leave the command no device of this machine: through an open descriptor root could change its mode."""
    if stat.S_ISCHR(os.fstat(0).st_mode):
        reading, writing = os.pipe()
        os.dup2(reading, 0)
        os.close(reading)
        os.close(writing)
    if any(stat.S_ISCHR(os.fstat(each).st_mode) for each in (1, 2)):
        raise SystemCallRefused("what a command prints has to go to a pipe or a file")


def catch_signals() -> int:
    """From now on signals end nothing by themselves: each becomes a byte to read from the returned descriptor."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return reading


def own_environment() -> dict[bytes, bytes]:
    """The environment as this process got it: Python adds variables to its own copy."""
    with open("/proc/self/environ", "rb") as file:
        pairs = (each.partition(b"=") for each in file.read().split(b"\0"))
        return {name: value for name, _, value in pairs if name}


def launch(order: Order) -> int:
    """Run the command to its end. Returns its wait status."""
    replace_devices()
    woken = catch_signals()
    order.abi = min(order.abi, landlock_abi())
    libc.prctl(SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    if order.parent and os.getppid() != order.parent:
        raise SystemCallRefused("the server has gone")
    libc.prctl(SUBREAPER, 1, 0, 0, 0)
    os.mkdir(order.scratch, mode=0o700)
    for each in ("home", "shm"):
        os.mkdir(f"{order.scratch}/{each}", mode=0o700)
    order.scratch = os.path.realpath(order.scratch)
    inside = "/tmp" if order.bwrap else order.scratch
    environment = own_environment()
    environment[b"TMPDIR"] = os.fsencode(inside)
    environment[b"HOME"] = os.fsencode(order.home or f"{inside}/home")
    order.write += [each for each in (order.home,) if each]
    if not order.bwrap:
        order.write.append(order.scratch)
    grants = SandboxGrants(order)
    machine = Machine(
        [order.scratch, *order.write],
        memory_left=order.memory_left,
        disk_left=order.disk_left,
    )
    own, other = _socket.socketpair()
    child = os.fork()
    if not child:
        own.close()
        become(order, grants, environment, other)
    other.close()
    keep_up()
    drop_capabilities(order)
    _, given, _, _ = own.recvmsg(1, _socket.CMSG_LEN(4))
    if not given:  # the child has printed why
        os.waitpid(child, 0)
        return REFUSED << 8
    (listener,) = struct.unpack("<i", given[0][2])
    answers = Answers(listener, order, grants)
    own.send(b"!")
    own.close()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return CommandWatch(child, order, answers, machine, woken).to_end()


def clear(folder: str) -> None:
    """Remove a directory and everything in it, however deep; files that cannot be removed stay."""
    left = os.listdir(folder)
    while left:
        path = os.path.join(folder, left.pop())
        try:
            if os.path.islink(path) or not os.path.isdir(path):
                os.unlink(path)
                continue
            os.chmod(path, 0o700)
            for entry in os.scandir(path):
                # Deep directories move up before they are read, so that no path gets too long.
                if entry.is_dir(follow_symlinks=False):
                    name = os.urandom(8).hex()
                    os.chmod(entry.path, 0o700)
                    os.rename(entry.path, os.path.join(folder, name))
                    left.append(name)
                else:
                    os.unlink(entry.path)
            os.rmdir(path)
        except OSError:
            continue
    try:
        os.rmdir(folder)
    except OSError:
        pass


def main(arguments: list[str]) -> None:
    os.closerange(3, 1 << 16)
    try:
        order = Order(arguments)
        status = launch(order)
        clear(order.scratch)
    except (OSError, SystemCallRefused, KeyError) as error:
        print_message(f"the sandbox cannot be made: {error}")
        os._exit(REFUSED)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
