"""seccomp, for the launcher: which system calls the kernel refuses, and which the launcher answers."""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from holdfast.tools.sandbox.grants import Order
from holdfast.tools.sandbox.landlock import SIGNALS_ABI, TRUNCATE_ABI
from holdfast.tools.sandbox.system import call

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBERS = """
    socket 41 198|ioctl 16 29|clone 56 220|fork 57 -|vfork 58 -|clone3 435 435|unshare 272 97|setns 308 268
    io_uring_setup 425 425|io_uring_enter 426 426|io_uring_register 427 427|add_key 248 217|request_key 249 218
    keyctl 250 219|bpf 321 280|perf_event_open 298 241|userfaultfd 323 282|open_by_handle_at 304 265
    inotify_add_watch 254 27|fanotify_mark 301 263|shmget 29 194|shmat 30 196|shmctl 31 195|shmdt 67 197
    semget 64 190|semop 65 193|semctl 66 191|semtimedop 220 192|msgget 68 186|msgsnd 69 189|msgrcv 70 188
    msgctl 71 187|mq_open 240 180|mq_unlink 241 181|mq_timedsend 242 182|mq_timedreceive 243 183
    mq_notify 244 184|mq_getsetattr 245 185|truncate 76 45|chmod 90 -|fchmod 91 52|fchmodat 268 53|fchmodat2 452 452|chown 92 -|fchown 93 55
    lchown 94 -|fchownat 260 54|utime 132 -|utimes 235 -|futimesat 261 -|utimensat 280 88|setxattr 188 5
    lsetxattr 189 6|fsetxattr 190 7|removexattr 197 14|lremovexattr 198 15|fremovexattr 199 16|setxattrat 463 463
    removexattrat 466 466|file_setattr 469 469|prlimit64 302 261|sched_setaffinity 203 122|sched_setscheduler 144 119
    sched_setparam 142 118|sched_setattr 314 274|setpriority 141 140|ioprio_set 251 30|kill 62 129|tkill 200 130
    tgkill 234 131|rt_sigqueueinfo 129 138|rt_tgsigqueueinfo 297 240|pidfd_send_signal 424 424|fcntl 72 25
    memfd_create 319 279|memfd_secret 447 447|open 2 -|openat 257 56|openat2 437 437|creat 85 -|mknod 133 -
    mknodat 259 33
"""
_COLUMN = {"x86_64": 1, "aarch64": 2}.get(os.uname().machine, 0)
NUMBER = {
    words[0]: int(words[_COLUMN])
    for words in (line.split() for line in _NUMBERS.replace("\n", "|").split("|") if line.strip())
    if _COLUMN and words[_COLUMN] != "-"
}
"""Name → number of a system call on this machine."""

SIGNALS = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
ON_ONESELF = "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr".split()
"""These change a process by its number; 0 means the caller."""
ON_ONE_OF_A_KIND = {"setpriority": 2, "ioprio_set": 3}
"""These, too; their first argument must not be this value, which means all processes of a user."""
OWNERS = (8, 10, 15)
"""Operations of fcntl that send signals elsewhere: F_SETOWN, F_SETSIG, F_SETOWN_EX; ioctl has two as well."""
BETWEEN_PROCESSES = """
    shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl
    mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
""".split()
"""Shared memory, semaphores and messages of System V, and POSIX messages. They can outlive every process, and their
numbers lead to those of other users; `shmget` is refused to every command."""
LEASES = (1024, 1026, 1040)
"""Operations of fcntl that notify before a file is opened, or of changes: F_SETLEASE, F_NOTIFY, F_SETDELEG."""
MODES = ("chmod", "fchmod", "fchmodat", "fchmodat2")
GIVE_A_MODE = dict.fromkeys(("chmod", "fchmod", "creat", "mknod"), 24)
GIVE_A_MODE |= dict.fromkeys(("fchmodat", "fchmodat2", "mknodat"), 32)
MAKE_WITH_A_MODE = {"open": (24, 32), "openat": (32, 40)}
"""The offset of the mode in the description of a call that may make a file, as its flags say."""
SETUID, MAKING = 0o6000, 0o100 | 0o20000000
ALLOW, KILL, ERROR, ASK = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
LOAD, EQUAL, GREATER, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
NEW_NAMESPACES = 0x7E020080
"""The flags of clone that make a namespace."""
TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: typing into a terminal in its user's place."""
FIRST, SECOND = 16, 24
"""The offsets of the lower halves of the first two arguments in a call's description."""

Instruction = tuple[int, int, int, int]


def unless(name: str, argument: int, allowed: list[int], error: int) -> list[Instruction]:
    """Refuse a call unless its argument has one of these values."""
    body = [(LOAD, 0, 0, argument)]
    body += [(EQUAL, len(allowed) - n, 0, each) for n, each in enumerate(allowed)]
    body += [(RETURN, 0, 0, ERROR | error), (RETURN, 0, 0, ALLOW)]
    return [(EQUAL, 0, len(body), NUMBER[name]), *body]


def if_any(name: str, argument: int, refused: list[int], error: int) -> list[Instruction]:
    """Refuse a call whose argument has one of these values; later rules decide about the others."""
    body = [(LOAD, 0, 0, argument)]
    body += [
        (EQUAL, len(refused) - n - 1, 0 if n < len(refused) - 1 else 1, each)
        for n, each in enumerate(refused)
    ]
    body += [(RETURN, 0, 0, ERROR | error), (LOAD, 0, 0, 0)]
    return [(EQUAL, 0, len(body), NUMBER[name]), *body]


def filter_program(order: Order) -> bytes:
    """The filter program for the kernel: which system calls are refused, and which are passed on to the launcher."""
    around = """
        io_uring_setup io_uring_enter io_uring_register add_key request_key keyctl bpf perf_event_open userfaultfd
        open_by_handle_at
    """
    refused = dict.fromkeys(around.split(), errno.EPERM)
    # The filter cannot read the flags of the first two; libraries then fall back to clone and openat. The others put
    # memory in files that can outlive every process.
    refused |= dict.fromkeys(
        "clone3 openat2 memfd_create memfd_secret shmget".split(), errno.ENOSYS
    )
    families, by_argument, asked = [INET, INET6, NETLINK], [], []
    if order.bwrap and not order.network:
        families.append(UNIX)  # they stay in its own namespace and its own files
    if not order.bwrap:
        families = families if order.network else []
        refused |= beside_landlock(order)
        by_argument = on_others(order)
        asked = [*MODES, "utimensat", *(SIGNALS if order.abi < SIGNALS_ABI else ())]
    program = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, ARCHITECTURES[os.uname().machine])]
    program += [(RETURN, 0, 0, KILL), (LOAD, 0, 0, 0)]
    program += [(GREATER, 0, 1, 0x40000000), (RETURN, 0, 0, ERROR | errno.ENOSYS)]
    for name, number in refused.items():
        if name in NUMBER:
            program += [(EQUAL, 0, 1, NUMBER[name]), (RETURN, 0, 0, ERROR | number)]
    program += unless("socket", FIRST, families, errno.EACCES)
    program += if_any("ioctl", SECOND, [*TERMINAL_INPUT], errno.EPERM)
    program += if_any("fcntl", SECOND, [*LEASES], errno.EACCES)
    program += no_setuid()
    program += by_argument
    for name in asked:
        if name in NUMBER:
            program += [(EQUAL, 0, 1, NUMBER[name]), (RETURN, 0, 0, ASK)]
    program += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("<HBBI", *each) for each in program)


def no_setuid() -> list[Instruction]:
    """Refuse set-user-id modes, by which others could run a file as the server's user: on old files and on new ones."""
    program: list[Instruction] = []
    refuse = [(ANY_BIT, 0, 1, SETUID), (RETURN, 0, 0, ERROR | errno.EPERM), (LOAD, 0, 0, 0)]
    for name, mode in GIVE_A_MODE.items():
        if name in NUMBER:
            body = [(LOAD, 0, 0, mode), *refuse]
            program += [(EQUAL, 0, len(body), NUMBER[name]), *body]
    for name, (flags, mode) in MAKE_WITH_A_MODE.items():
        if name in NUMBER:
            body = [(LOAD, 0, 0, flags), (ANY_BIT, 0, 3, MAKING), (LOAD, 0, 0, mode), *refuse]
            program += [(EQUAL, 0, len(body), NUMBER[name]), *body]
    return program


def beside_landlock(order: Order) -> dict[str, int]:
    """Calls that reach files, memory and namespaces of others, and that Landlock does not cover."""
    refused = dict.fromkeys("inotify_add_watch fanotify_mark".split(), errno.EACCES)
    refused |= dict.fromkeys("unshare setns".split(), errno.EPERM)
    refused |= dict.fromkeys(BETWEEN_PROCESSES, errno.EACCES)
    refused |= dict.fromkeys("chown lchown fchown fchownat".split(), errno.EPERM)
    refused |= dict.fromkeys("utime utimes futimesat file_setattr".split(), errno.ENOSYS)
    attributes = "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat"
    refused |= dict.fromkeys(attributes.split(), errno.EOPNOTSUPP)
    if order.abi < TRUNCATE_ABI:
        refused["truncate"] = errno.EACCES
    if order.abi < SIGNALS_ABI:
        refused |= dict.fromkeys("tkill pidfd_send_signal".split(), errno.ENOSYS)
    return refused


def on_others(order: Order) -> list[Instruction]:
    """Refuse changes to other processes by their number: no namespace hides those of others."""
    program = []
    for name in ON_ONESELF:
        program += unless(name, FIRST, [0], errno.EPERM)
    for name, all_of_a_user in ON_ONE_OF_A_KIND.items():
        program += if_any(name, FIRST, [all_of_a_user], errno.EPERM)
        program += unless(name, SECOND, [0], errno.EPERM)
    program += [(EQUAL, 0, 4, NUMBER["clone"]), (LOAD, 0, 0, FIRST)]
    program += [(ANY_BIT, 0, 1, NEW_NAMESPACES), (RETURN, 0, 0, ERROR | errno.EPERM)]
    program += [(LOAD, 0, 0, 0)]
    if order.abi < SIGNALS_ABI:
        program += if_any("fcntl", SECOND, [*OWNERS], errno.EPERM)
        program += if_any("ioctl", SECOND, [0x8901, 0x8902], errno.EPERM)
    return program


def install_filter(program: bytes) -> int:
    """Apply a filter to this process and its children, for good; returns the descriptor on which it asks."""
    number = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(held))
    asks, only_killed = 1 << 3, 1 << 5
    try:
        return call(number, 1, asks | only_killed, described)
    except OSError as error:
        # Before Linux 5.19: a signal may interrupt a call that waits for its answer.
        if error.errno != errno.EINVAL:
            raise
        return call(number, 1, asks, described)
