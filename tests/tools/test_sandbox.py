"""What a command cannot do in a sandbox, each tried for real, and shown to be possible without one."""

from __future__ import annotations

import asyncio
import ctypes
import os
import pty
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from holdfast import limits
from holdfast.tools.files.reserved_files import NamePattern, ReservedFiles
from holdfast.tools.sandbox.backend import Kind
from holdfast.tools.sandbox.sandbox import ConfinedCommand, Sandbox
from tests.tools.sandboxes import ENVIRONMENT, run, sandbox
from tests.tools.tool_calls import Lifeline

KINDS: tuple[Kind, ...] = ("landlock", "bubblewrap")
AS_ROOT = os.getuid() == 0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


@pytest.fixture(params=KINDS)
def box(request: pytest.FixtureRequest) -> Sandbox:
    kind: Kind = request.param
    return sandbox(kind)


@pytest.fixture(params=[*KINDS, "the first landlock"])
def any_box(request: pytest.FixtureRequest) -> Sandbox:
    """Those, and what a kernel of 2021 has."""
    kind: Kind = "bubblewrap" if request.param == "bubblewrap" else "landlock"
    return sandbox(kind, abi=1 if request.param == "the first landlock" else 0)


class World:
    """What a command could do harm to: beside its own directory lie a store, a key, and another tenant's directory."""

    def __init__(self, folder: Path) -> None:
        self.own = folder / "own"
        self.outside = folder / "outside"
        self.other = self.outside / "tenant-b"
        self.other.mkdir(parents=True)
        self.own.mkdir()
        self.store = self.outside / "holdfast.db"
        self.key = self.outside / "key.pem"
        for path in (self.store, self.key, self.other / "notes"):
            path.write_text("secret")

    def facts(self) -> dict[str, tuple[object, ...]]:
        """Everything about the files outside that a change would show in."""
        found: dict[str, tuple[object, ...]] = {}
        for path in (self.outside, *self.outside.rglob("*")):
            at = path.lstat()
            words = path.read_bytes() if path.is_file() else b""
            names = tuple(os.listxattr(path, follow_symlinks=False))
            found[str(path)] = (at.st_mode, at.st_mtime_ns, at.st_nlink, at.st_uid, words, names)
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def python(code: str) -> str:
    return f"python3 -I -c {shlex.quote(code)}"


# ── what can be read ─────────────────────────────────────────────────────────────────────────

SECRET = ctypes.create_string_buffer(b"secret")

READING: dict[str, str] = {
    "the server's environment": "cat /proc/{pid}/environ >/dev/null && echo secret",
    "the server's memory": python(
        "memory = open('/proc/{pid}/mem', 'rb', 0); memory.seek({address}); print(memory.read(6))"
    ),
    "the server's memory, by a system call": python(
        "import ctypes\n"
        "class Place(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('size', ctypes.c_size_t)]\n"
        "here = ctypes.create_string_buffer(6)\n"
        "mine, other = Place(ctypes.addressof(here), 6), Place({address}, 6)\n"
        "ctypes.CDLL(None).process_vm_readv({pid}, ctypes.byref(mine), 1, ctypes.byref(other), 1, 0)\n"
        "print(here.raw)"
    ),
    "the server's descriptors": "ls /proc/{pid}/fd/ && echo secret",
    "the server's root": "cat /proc/{pid}/root{store}",
    "the server's command line": "cat /proc/{pid}/cmdline && echo secret",
    "the store": "cat {store}",
    "the store, through a link": "ln -s {store} link; cat link",
    "the store, by a hard link": "ln {store} other; cat other",
    "the store, from its directory": "cd {outside} && cat holdfast.db",
    "a key": "cat {key}",
    "another tenant's directory": "ls {other} && echo secret",
    "another tenant's file": "cat {other}/notes",
    "another tenant's names, by watching": python(
        "import ctypes; libc = ctypes.CDLL(None); watch = libc.inotify_init()\n"
        "print('secret' if libc.inotify_add_watch(watch, b'{other}', 0x100) >= 0 else '')"
    ),
    "the home of the server's user": "cat ~/key.pem",
    "what others have in /tmp": "ls {tmp} | grep {name} && echo secret",
}
NEEDS_ROOT = {"the server's memory", "the server's memory, by a system call"}
"""Where a kernel lets nobody look at a parent (yama), only root can show that the attack itself works."""


async def test_a_command_reads_nothing_that_it_was_not_given(box: Sandbox, world: World) -> None:
    tmp = world.own.parents[-2]
    facts = {
        "pid": os.getpid(),
        "address": ctypes.addressof(SECRET),
        "store": world.store,
        "outside": world.outside,
        "key": world.key,
        "other": world.other,
        "tmp": tmp,
        "name": world.outside.relative_to(tmp).parts[0]
        if box.backend().kind == "landlock"
        else "outside",
    }
    attacks = {name: command.format(**facts) for name, command in READING.items()}
    (world.own / "mark").touch()
    within = await tried({**attacks, "its own": "ls && echo secret"}, world, box.cell(world.own))
    assert leaking(within) == {"its own"}
    for left in world.own.iterdir():
        left.unlink()
    without = leaking(await tried(attacks, world, None))
    assert without | (set() if AS_ROOT else NEEDS_ROOT) >= set(attacks) - {
        "what others have in /tmp"
    }


async def tried(
    attacks: Mapping[str, str], world: World, cell: ConfinedCommand | None
) -> dict[str, str]:
    """What came of each of these commands, run one after the other as one."""
    command = "\n".join(
        f"echo; echo {shlex.quote(f'== {name}')}; ({each}) 2>&1" for name, each in attacks.items()
    )
    ended = await run(command, world.own, cell, home=world.outside)
    parts = ended.output.decode(errors="replace").split("\n== ")[1:]
    assert len(parts) == len(attacks), ended.output.decode(errors="replace")
    return dict(zip(attacks, (part.partition("\n")[2].strip() for part in parts), strict=True))


def leaking(found: Mapping[str, str]) -> set[str]:
    return {name for name, told in found.items() if "secret" in told}


# ── what can be changed ──────────────────────────────────────────────────────────────────────

CHANGING = """
import ctypes, os, shutil
out, own, done = "{outside}", os.getcwd(), []
libc = ctypes.CDLL(None)
def attempt(name, do):
    try:
        do()
    except OSError:
        return
    done.append(name)
open("mine", "w").write("mine")
attempt("write", lambda: open(out + "/holdfast.db", "r+").write("x"))
attempt("append", lambda: open(out + "/holdfast.db", "a").write("x"))
attempt("truncate", lambda: os.truncate(out + "/holdfast.db", 1))
attempt("create", lambda: open(out + "/new", "x"))
attempt("mkdir", lambda: os.mkdir(out + "/folder"))
attempt("symlink", lambda: os.symlink("/etc/passwd", out + "/link"))
attempt("link", lambda: os.link("mine", out + "/hard"))
attempt("fifo", lambda: os.mkfifo(out + "/fifo"))
attempt("mode", lambda: os.chmod(out + "/key.pem", 0o666))
attempt("mode at", lambda: os.chmod("key.pem", 0o600, dir_fd=os.open(out, os.O_PATH)))
attempt("mode through a link", lambda: (os.symlink(out + "/key.pem", "to"), os.chmod("to", 0o640)))
attempt("mode of a device", lambda: os.chmod("/dev/full", 0o666))
attempt("mode of its input", lambda: os.fchmod(0 if os.fstat(0).st_rdev else -1, 0o666))
attempt("times", lambda: os.utime(out + "/key.pem", (1, 1)))
attempt("times at", lambda: os.utime("key.pem", (2, 2), dir_fd=os.open(out, os.O_PATH)))
attempt("attribute", lambda: os.setxattr(out + "/key.pem", "user.x", b"x"))
attempt("owner", lambda: os.chown(out + "/key.pem", os.getuid(), os.getgid()))
attempt("rename in", lambda: os.rename("mine", out + "/mine"))
attempt("rename out", lambda: os.rename(out + "/tenant-b", own + "/taken"))
attempt("remove", lambda: os.unlink(out + "/holdfast.db"))
print(",".join(done))
"""
CHANGES = """write,append,truncate,create,mkdir,symlink,link,fifo,mode,mode at,mode through a link,times,times at,attribute,
owner,rename in,rename out,remove"""


ROOTS_OWN = {"mode of a device", "mode of its input"}


async def test_a_command_changes_nothing_outside_of_its_roots(
    any_box: Sandbox, world: World
) -> None:
    before = world.facts()
    command = python(CHANGING.format(outside=world.outside))
    within = await run(command, world.own, any_box.cell(world.own))
    # Root's bubblewrap has the machine's own devices, which is why root is given Landlock where there is one.
    known = b"mode of a device\n" if AS_ROOT and any_box.backend().program else b"\n"
    assert (within.code, within.output) == (0, known)
    assert world.facts() == before
    shutil.rmtree(world.own)
    world.own.mkdir()
    without = await run(command, world.own, None)
    possible = set(without.output.decode().strip().split(","))
    named = {each.strip() for each in CHANGES.split(",")}
    assert possible | {"attribute"} | (set() if AS_ROOT else ROOTS_OWN) == named | ROOTS_OWN


USUAL: dict[str, str] = {
    "write, change, move, remove": "echo a >f && echo b >>f && mkdir d && mv f d/g && ln d/g h && rm -r d && cat h",
    "modes": "echo 'echo ran' >s && chmod +x s && ./s",
    "times": "touch f && touch -d 2001-02-03 f && ls -l --time-style=+%F f | grep 2001-02-03",
    "a link's own times": "ln -s nowhere l && touch -h -d 2001-02-03 l",
    "git": "git init -q . && git config user.name a && git config user.email b && git commit -q --allow-empty -m x",
    "a temporary file": 'f=$(mktemp) && echo a >"$f" && cat "$f"',
    "$TMPDIR, and a home": 'echo a >"$TMPDIR/a" && echo a >~/a && cat ~/a',
    "programs, and what they know of the machine": "cat /etc/passwd >/dev/null && nproc && date",
    "pipes and redirections": "echo a | tr a b; echo c >/dev/stderr; echo d 2>/dev/null",
    "processes and threads": python(
        "import subprocess, threading; t = threading.Thread(target=print); t.start(); t.join();"
        " subprocess.run(['sh', '-c', 'sleep 0 & wait'], check=True)"
    ),
    "a pair of sockets": python("import socket; socket.socketpair()"),
    "signals to one's own": "sleep 100 & kill $!; wait; true",
}


async def test_what_commands_usually_do_works(box: Sandbox, world: World) -> None:
    commands = {
        name: f"mkdir {n} && cd {n} && {each} && echo secret"
        for n, (name, each) in enumerate(USUAL.items())
    }
    found = await tried(commands, world, box.cell(world.own))
    assert {name: told for name, told in found.items() if name not in leaking(found)} == {}


async def test_what_was_declared_can_be_read_or_written(box: Sandbox, world: World) -> None:
    more = world.outside / "more"
    more.mkdir()
    cell = box.cell(world.own, more, read_roots=[world.other])
    command = f"cat {world.other}/notes && echo a >{more}/a && ! echo a >{world.other}/a"
    ended = await run(command, world.own, cell)
    assert ended.code == 0, ended.output.decode()
    assert (more / "a").read_text() == "a\n"


async def test_a_home_is_its_own_and_kept_only_if_somebody_says_so(
    box: Sandbox, world: World
) -> None:
    """An `npx` that had to fetch everything anew would take a minute to start."""
    command = "cat ~/kept; echo kept >~/kept"
    kept = box.cell(world.own, home=str(world.other / "home"))
    for cell, again in ((kept, b"kept\n"), (box.cell(world.own), b"")):
        assert b"kept\n" not in (await run(command, world.own, cell)).output
        assert (await run(f"{command} 2>/dev/null", world.own, cell)).output.endswith(again)
    assert not (world.own / "kept").exists()


# ── what the server itself uses ──────────────────────────────────────────────────────────────


async def test_what_the_server_uses_is_out_of_reach_in_a_root_too(
    box: Sandbox, world: World
) -> None:
    """An agent file that a shell could write would be loaded a moment later, with whatever permissions it gives itself."""
    own, deep = world.own, world.own / "deep"
    deep.mkdir()
    for name in ("agent.yaml", "holdfast.db", "holdfast.db-wal", "deep/prompt.md", "deep/guard.sh"):
        (own / name).write_text("secret")
    (own / "notes").write_text("notes")
    (own / "link").symlink_to("agent.yaml")
    reserved = ReservedFiles(
        files=frozenset({f"{own}/agent.yaml"}),
        names=frozenset({NamePattern(directory=str(own), begin="holdfast.db")}),
        readable=frozenset({f"{deep}/guard.sh", f"{deep}/prompt.md"}),
    )
    box.reserved = lambda: reserved
    attacks = (
        "cat agent.yaml",
        "cat link",
        "cat holdfast.db",
        "cat holdfast.db-wal",
        "cp agent.yaml mine",
        "echo a >agent.yaml",
        "echo a >new.yaml && test -s new.yaml",
        "mv deep shallow",
        "mv deep/guard.sh deep/old",
        "rm deep/guard.sh",
        "echo a >deep/guard.sh",
        "echo a >deep/prompt.md",
        "chmod 777 deep/guard.sh",
    )
    before = {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
    found = await tried({each: f"{each} && echo secret" for each in attacks}, world, box.cell(own))
    assert leaking(found) == set()
    assert before == {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
    ended = await run("cat deep/guard.sh && echo more >>notes && cat notes", own, box.cell(own))
    assert ended.output == b"secretnotesmore\n"


# ── what can be reached ──────────────────────────────────────────────────────────────────────


def answer_all(echo: socket.socket) -> None:
    while (told := echo.recvfrom(9))[0] != b"end":
        echo.sendto(*told)


@pytest.fixture
def doors(world: World) -> Iterator[dict[str, str]]:
    """Somebody behind each kind of door, and the code that knocks."""
    with ExitStack() as stack:

        def listening(family: int, kind: int, address: tuple[str, int] | str) -> socket.socket:
            made = stack.enter_context(closing(socket.socket(family, kind)))
            made.bind(address)
            if kind == socket.SOCK_STREAM:
                made.listen()
            return made

        tcp = listening(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)).getsockname()
        echo = listening(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        udp = echo.getsockname()
        answering = threading.Thread(target=answer_all, args=(echo,))
        answering.start()
        stack.callback(answering.join)
        stack.callback(lambda: echo.sendto(b"end", udp))
        path = str(world.own / "docker.sock")
        listening(socket.AF_UNIX, socket.SOCK_STREAM, path)
        beyond = str(world.outside / ".s.PGSQL.5432")
        listening(socket.AF_UNIX, socket.SOCK_STREAM, beyond)
        abstract = f"\0holdfast-{os.getpid()}"
        listening(socket.AF_UNIX, socket.SOCK_STREAM, abstract)
        unix = "socket.socket(socket.AF_UNIX).connect({!r})"
        yield {
            "TCP": f"socket.create_connection({tcp!r})",
            "UDP": f"s = socket.socket(type=socket.SOCK_DGRAM); s.connect({udp!r}); s.send(b'a'); s.recv(9)",
            "PostgreSQL's socket": unix.format(beyond),
            "an abstract socket": unix.format(abstract),
            "raw packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)",
            "the host of a virtual machine": "socket.socket(40, socket.SOCK_STREAM)",
        }


ALWAYS_THERE = {"TCP", "UDP", "PostgreSQL's socket", "an abstract socket"}


def knocks(doors: Mapping[str, str]) -> dict[str, str]:
    return {name: python(f"import socket; {code}; print('secret')") for name, code in doors.items()}


async def test_a_command_reaches_nobody(box: Sandbox, world: World, doors: dict[str, str]) -> None:
    within = await tried(knocks(doors), world, box.cell(world.own))
    assert leaking(within) == set()
    without = await tried(knocks(doors), world, None)
    assert leaking(without) >= ALWAYS_THERE | ({"raw packets"} if AS_ROOT else set())


async def test_with_network_it_reaches_the_network_and_no_more(
    box: Sandbox, world: World, doors: dict[str, str]
) -> None:
    found = await tried(knocks(doors), world, box.cell(world.own, network=True))
    assert leaking(found) == {"TCP", "UDP"}


async def test_a_socket_in_its_root_is_still_none_of_its_own_without_namespaces(
    world: World, doors: dict[str, str]
) -> None:
    """Landlock cannot tell sockets apart, so there are none. bubblewrap's command reaches what lies in its root."""
    knock = python(
        f"import socket; socket.socket(socket.AF_UNIX).connect({str(world.own / 'docker.sock')!r})"
    )
    assert (await run(knock, world.own, sandbox("landlock").cell(world.own))).code == 1


CALLS = {
    "io_uring": (425, 425, "8, ctypes.create_string_buffer(120)"),
    "the kernel's keys": (250, 219, "0, -4, 0"),
    "bpf": (321, 280, "0, 0, 0"),
    "perf": (298, 241, "0, 0, -1, -1, 0"),
    "userfaultfd": (323, 282, "1"),
}


async def test_system_calls_that_reach_around_are_refused(box: Sandbox, world: World) -> None:
    """io_uring, for one, opens sockets without the calls that a filter looks at."""
    code = ["import ctypes, errno; libc = ctypes.CDLL(None, use_errno=True)"]
    for x86, arm, arguments in CALLS.values():
        number = x86 if os.uname().machine == "x86_64" else arm
        code.append(
            f"print(libc.syscall({number}, {arguments}), ctypes.get_errno() == errno.EPERM)"
        )
    ended = await run(python("\n".join(code)), world.own, box.cell(world.own))
    assert ended.output == b"-1 True\n" * len(CALLS)


async def test_another_architecture_is_no_way_around(box: Sandbox, world: World) -> None:
    """The x32 calls of an x86 machine have other numbers for the same things."""
    if os.uname().machine != "x86_64":
        pytest.skip("there is no other one")
    code = (
        "import ctypes, errno; libc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.syscall(0x40000000 + 41, 2, 1, 0), ctypes.get_errno() == errno.ENOSYS)"
    )
    assert (await run(python(code), world.own, box.cell(world.own))).output == b"-1 True\n"


BETWEEN_PROCESSES = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184),
    "mq_getsetattr": (245, 185),
}
"""Every call of System V and POSIX by which processes reach each other's memory, semaphores and messages."""


async def test_no_call_between_processes_is_left_without_a_namespace(world: World) -> None:
    """Landlock judges none of them, and no namespace hides what other processes have."""
    code = ["import ctypes, errno; libc = ctypes.CDLL(None, use_errno=True)"]
    for name, numbers in BETWEEN_PROCESSES.items():
        number = numbers[os.uname().machine != "x86_64"]
        code.append(f"libc.syscall({number}, -1, 0, 0, 0, 0)")
        code.append(f"print({name!r}, errno.errorcode[ctypes.get_errno()])")
    ended = await run(python("\n".join(code)), world.own, sandbox("landlock").cell(world.own))
    found = dict(line.split() for line in ended.output.decode().splitlines())
    assert found == dict.fromkeys(BETWEEN_PROCESSES, "EACCES") | {"shmget": "ENOSYS"}


SEMAPHORE = "import ctypes; print(ctypes.CDLL(None).semctl({number}, 0, 16, 99))"


async def test_a_command_sets_no_semaphore_of_others(box: Sandbox, world: World) -> None:
    libc = ctypes.CDLL(None)
    number = libc.semget(0, 1, 0o600)
    assert number >= 0
    try:
        attack = python(SEMAPHORE.format(number=number))
        assert (await run(attack, world.own, box.cell(world.own))).output == b"-1\n"
        assert libc.semctl(number, 0, 12) == 0
        assert (await run(attack, world.own, None)).output == b"0\n"
        assert libc.semctl(number, 0, 12) == 99
    finally:
        libc.semctl(number, 0, 0)


LEASES = """
import fcntl, os
def attempt(name, path, what, how):
    opened = os.open(path, os.O_RDONLY)
    try: fcntl.fcntl(opened, what, how)
    except OSError: return
    finally: os.close(opened)
    print(name)
attempt("lease against writers", "prompt.md", 1024, fcntl.F_RDLCK)
attempt("lease against readers", "prompt.md", 1024, fcntl.F_WRLCK)
attempt("notice", ".", 1026, 2)
attempt("flags", "prompt.md", fcntl.F_SETFL, os.O_NONBLOCK)
"""


async def test_a_command_makes_no_reader_of_a_file_wait(any_box: Sandbox, world: World) -> None:
    """A lease stops the server where it opens the file, to read what its operator has saved."""
    (world.own / "prompt.md").write_text("Be kind.")
    without = await run(python(LEASES), world.own, None)
    taken = [b"lease against writers", b"lease against readers", b"notice", b"flags"]
    assert without.output.splitlines() == taken
    within = await run(python(LEASES), world.own, any_box.cell(world.own))
    assert within.output.splitlines() == [b"flags"]


# ── whom it can become, and what it holds ────────────────────────────────────────────────────


async def test_a_command_gains_no_rights(box: Sandbox, world: World) -> None:
    code = (
        "import ctypes; libc = ctypes.CDLL(None)\n"
        "print(libc.prctl(39, 0, 0, 0, 0), [n for n in range(41) if libc.prctl(23, n, 0, 0, 0) == 1])"
    )
    assert (await run(python(code), world.own, box.cell(world.own))).output == b"1 []\n"


@pytest.mark.skipif(not AS_ROOT, reason="needs root, to give a program to another user")
async def test_a_setuid_program_is_a_program_like_any_other(box: Sandbox, world: World) -> None:
    program = world.own / "whoever"
    shutil.copy("/usr/bin/id", program)
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    assert b"euid=65534" in (await run(str(program), world.own, None)).output
    assert b"65534" not in (await run(str(program), world.own, box.cell(world.own))).output


@pytest.mark.skipif(not AS_ROOT, reason="the kernel's settings are root's")
async def test_root_changes_no_setting_of_the_kernel(box: Sandbox, world: World) -> None:
    change = "cat /proc/sys/vm/swappiness >now && cat now >/proc/sys/vm/swappiness"
    assert (await run(change, world.own, None)).code == 0
    assert (await run(change, world.own, box.cell(world.own))).code != 0


SETUID = """
import os
def attempt(name, do):
    try: do()
    except OSError: pass
open("old", "w").close()
attempt("mode", lambda: os.chmod("old", 0o4755))
attempt("mode of a group", lambda: os.chmod("old", 0o2755))
attempt("mode at", lambda: os.chmod("old", 0o4755, dir_fd=os.open(".", os.O_RDONLY)))
attempt("mode of a descriptor", lambda: os.fchmod(os.open("old", os.O_RDWR), 0o4755))
attempt("made so", lambda: os.open("new", os.O_CREAT | os.O_RDWR, 0o4755))
attempt("made so for a group", lambda: os.open("group", os.O_CREAT | os.O_RDWR, 0o2755))
attempt("made as a node", lambda: os.mknod("node", 0o104755))
import ctypes
libc = ctypes.CDLL(None)
libc.syscall(437, -100, b"how", (ctypes.c_uint64 * 3)(0o102, 0o4755, 0), 24)
libc.creat(b"creat", 0o4755)
"""


async def test_no_setuid_program_can_be_left_for_others(box: Sandbox, world: World) -> None:
    """Whichever call would make it: a user of this machine could run it as the server's user."""
    await run(python(SETUID), world.own, None)
    assert len(setuid_below(world.own)) == 6
    shutil.rmtree(world.own)
    world.own.mkdir()
    ended = await run(python(SETUID), world.own, box.cell(world.own))
    assert ended.code == 0
    assert setuid_below(world.own) == []
    assert (world.own / "old").exists()


def setuid_below(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir() if each.lstat().st_mode & 0o6000]


async def test_a_command_has_no_descriptor_but_the_usual(box: Sandbox, world: World) -> None:
    look = python(
        "import os\nfor n in range(3, 64):\n  try: print(os.fstat(n))\n  except OSError: pass"
    )
    argv = ["/bin/sh", "-c", look]
    launched = await box.cell(world.own).launched(argv, ENVIRONMENT)
    assert launched is not None
    with world.key.open() as secret:
        assert told(argv, world, pass_fds=[secret.fileno()])
        assert not told(launched, world, pass_fds=[secret.fileno()])


def told(
    argv: list[str], world: World, *, stdin: int = subprocess.DEVNULL, pass_fds: Sequence[int] = ()
) -> bytes:
    """What a program prints that is started with more than our commands ever are."""
    ended = subprocess.run(
        argv,
        cwd=world.own,
        env=ENVIRONMENT,
        stdin=stdin,
        stdout=subprocess.PIPE,
        pass_fds=pass_fds,
        check=True,
    )
    return ended.stdout


async def test_a_command_types_nothing_into_a_terminal(box: Sandbox, world: World) -> None:
    """Even if somebody gives it one, or it makes one."""
    code = (
        "import errno, fcntl, os, termios\n"
        "def types(terminal):\n"
        "  try: fcntl.ioctl(terminal, termios.TIOCSTI, b'x')\n"
        "  except OSError as error: return error.errno != errno.EPERM\n"
        "  return True\n"
        "print(os.isatty(0), types(0))"
    )
    launched = await box.cell(world.own).launched(["/bin/sh", "-c", python(code)], ENVIRONMENT)
    assert launched is not None
    ours, theirs = pty.openpty()
    try:
        assert told(launched, world, stdin=theirs) == b"False False\n"
    finally:
        os.close(ours)
        os.close(theirs)


VICTIM = """
import os, resource, sys
victim = int(sys.argv[1])
def attempt(name, do):
    try:
        do()
    except (OSError, ValueError):
        return
    print(name)
def owner():
    import fcntl, select
    end = os.pidfd_open(victim)
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, victim)
    fcntl.fcntl(reading, 10, 9)  # F_SETSIG: SIGKILL
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b"x")
    if not select.select([end], [], [], 0.5)[0]:
        raise OSError
attempt("limits", lambda: resource.prlimit(victim, resource.RLIMIT_NOFILE, (10, 10)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, victim, 1))
if "confined" in sys.argv:  # elsewhere, this is about every process of the machine's user
    attempt("priority of a user", lambda: os.setpriority(os.PRIO_USER, os.getuid(), 1))
attempt("processor", lambda: os.sched_setaffinity(victim, {min(os.sched_getaffinity(0))}))
attempt("scheduler", lambda: os.sched_setscheduler(victim, os.SCHED_BATCH, os.sched_param(0)))
attempt("signal", lambda: os.kill(victim, 28))
attempt("signal to a group", lambda: os.killpg(os.getpgid(victim), 28))
attempt("signal by its descriptor", lambda: __import__("signal").pidfd_send_signal(os.pidfd_open(victim), 28))
attempt("signal to the launcher", lambda: os.kill(os.getppid(), 28))
attempt("signal by an owner", owner)
"""
HARMS = {
    "limits",
    "priority",
    "processor",
    "scheduler",
    "signal",
    "signal to a group",
    "signal by its descriptor",
    "signal to the launcher",
    "signal by an owner",
}


async def test_a_command_does_nothing_to_other_processes(any_box: Sandbox, world: World) -> None:
    def harmed(victim: subprocess.Popen[bytes], output: bytes) -> set[str]:
        victim.kill()
        victim.wait()
        return set(output.decode().split("\n")) - {""}

    (world.own / "harm.py").write_text(VICTIM)
    start = ["sleep", "1000"]
    victim = subprocess.Popen(start, start_new_session=True)  # noqa: ASYNC220
    # Not by way of a shell: its parent is the launcher, or bubblewrap's process 1, which is its own.
    within = await run(
        f"exec python3 harm.py {victim.pid} confined", world.own, any_box.cell(world.own)
    )
    in_namespace = any_box.backend().kind == "bubblewrap"
    own = {"signal to the launcher", "priority of a user"} if in_namespace else set()
    assert victim.poll() is None
    assert harmed(victim, within.output) - own == set()
    victim = subprocess.Popen(start, start_new_session=True)  # noqa: ASYNC220
    without = await run(f"exec python3 harm.py {victim.pid}", world.own, None)
    assert harmed(victim, without.output) >= HARMS


async def test_a_command_signals_its_own(any_box: Sandbox, world: World) -> None:
    commands = {
        "a child": "sleep 100 & kill $!; wait; echo secret",
        "its group": "setsid -w sh -c \"trap '' TERM; kill -TERM 0; echo secret\"",
        "itself": python("import os; os.kill(os.getpid(), 0); print('secret')"),
    }
    found = await tried(commands, world, any_box.cell(world.own))
    assert leaking(found) == set(commands)
    ended = await run("kill -9 -1; kill -9 0; echo survived", world.own, any_box.cell(world.own))
    assert ended.killed_by == signal.SIGKILL or ended.code == 128 + signal.SIGKILL


# ── how long it lives ────────────────────────────────────────────────────────────────────────

DAEMON = "env -i /bin/sh -c '(setsid /bin/sh -c \"exec 8>{life}; echo up >&8; exec sleep 1000\" </dev/null >/dev/null 2>&1 &)'"
"""Twice forked, in a session of its own, and without anything in its environment that tells where it comes from."""


@pytest.fixture
def lifeline(world: World) -> Iterator[Lifeline]:
    made = Lifeline(world.own / "lifeline")
    yield made
    made.close()


NONSENSE = """
import ctypes, os
libc = ctypes.CDLL(None)
numbers = [90, 91, 268, 452, 280] if os.uname().machine == "x86_64" else [52, 53, 452, 88]
values = [-1, 2**31, 2**63 - 1, -(2**63), -(2**31)]
for number in numbers:
    for first in values:
        for second in values:
            libc.syscall(number, ctypes.c_long(first), ctypes.c_long(second), ctypes.c_long(first), ctypes.c_long(second))
try:
    os.chmod(b"x" * 9000, 0)
except OSError as error:
    print(error.strerror)
os.close(os.open("f", os.O_CREAT))
os.chmod("f", 0o600)
"""


async def test_nonsense_does_not_bring_the_launcher_down(
    any_box: Sandbox, world: World, lifeline: Lifeline
) -> None:
    """Whatever the command then left behind would live on."""
    command = f"{DAEMON.format(life=lifeline.path)}; {python(NONSENSE)}"
    ended = await run(command, world.own, any_box.cell(world.own))
    assert (ended.code, ended.output) == (0, b"File name too long\n")
    await lifeline.wait_gone()


@pytest.mark.parametrize("end", ["it ends", "it is stopped", "it is stopped at once"])
async def test_nothing_outlives_a_command(
    end: str,
    box: Sandbox,
    world: World,
    lifeline: Lifeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "script_kill_grace_s", 0.2 if end == "it is stopped" else 60.0)
    gate = world.own / "gate"
    os.mkfifo(gate)
    daemon = DAEMON.format(life=lifeline.path)
    running = asyncio.create_task(
        run(f"{daemon}; read word <{gate}", world.own, box.cell(world.own))
    )
    assert await lifeline.next_word() == "up"
    if end == "it ends":
        gate.write_text("go\n")
        assert (await running).code == 0
    else:
        running.cancel()
        if end == "it is stopped at once":
            await asyncio.sleep(0)
            running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    await lifeline.wait_gone()


async def test_nothing_outlives_a_server_that_is_killed(
    box: Sandbox, world: World, lifeline: Lifeline
) -> None:
    launched = await box.cell(world.own).launched(
        ["/bin/sh", "-c", f"{DAEMON.format(life=lifeline.path)}; sleep 1000"], ENVIRONMENT
    )
    assert launched is not None
    at = launched.index("--parent")
    del launched[at : at + 2]
    server = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *launched],
        cwd=world.own,
        env=ENVIRONMENT,
    )
    assert await lifeline.next_word() == "up"
    server.kill()
    server.wait()
    await lifeline.wait_gone()


async def test_there_is_time_to_clean_up_in_a_sandbox_too(
    box: Sandbox, world: World, lifeline: Lifeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "script_kill_grace_s", 60.0)
    command = (
        f"exec 9>{lifeline.path}; trap 'echo tidy >&9; exit' TERM; "
        "sh -c 'echo up >&9; exec sleep 1000' & wait"
    )
    running = asyncio.create_task(run(command, world.own, box.cell(world.own)))
    assert await lifeline.next_word() == "up"
    running.cancel()
    assert await lifeline.next_word() == "tidy"
    with pytest.raises(asyncio.CancelledError):
        await running
    await lifeline.wait_gone()


async def test_nothing_is_left_of_its_temporary_files(
    box: Sandbox, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    ended = await run(
        'mkdir -p "$TMPDIR/a/b" && echo a >"$TMPDIR/a/b/c" && chmod 0 "$TMPDIR/a/b" && echo made',
        world.own,
        box.cell(world.own),
    )
    assert ended.output == b"made\n"
    assert list(scratch.iterdir()) == []


# ── how much it takes ────────────────────────────────────────────────────────────────────────


async def test_too_many_processes_are_cleared_away_wherever_they_have_gone(
    box: Sandbox,
    world: World,
    lifeline: Lifeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "sandbox_processes_max", 30)
    many = f"exec 9>{lifeline.path}; for i in $(seq 60); do env -i setsid sleep 1000 & done; wait"
    ended = await run(many, world.own, box.cell(world.own))
    assert b"more than 30 processes" in ended.output or b"annot fork" in ended.output
    await lifeline.wait_gone()
