"""Landlock, for the launcher: limits for good which files a process may open."""

from __future__ import annotations

import os
import struct

from holdfast.tools.sandbox.grants import Order, SandboxGrants
from holdfast.tools.sandbox.system import SystemCallRefused, call

KERNEL_FACTS = """
    /proc/cpuinfo /proc/filesystems /proc/loadavg /proc/meminfo /proc/stat /proc/sys /proc/uptime /proc/version
""".split()
"""The files of /proc that a command sees without a /proc of its own; a process's folder could be another's."""

DEVICES = "/dev/full /dev/null /dev/random /dev/urandom /dev/zero".split()

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE, IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL
READING = EXECUTE | READ_FILE | READ_DIR
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
"""ABI → the file rights that it knows; ABI 5 and later know one more."""
SPECIAL_FILES = 1 << 6 | 1 << 11
"""Making devices: never granted."""
TRUNCATE_ABI, SIGNALS_ABI = 3, 6
"""The first ABI that covers truncating, and signals."""
TCP, SCOPES = 3, 3
"""Binding and connecting; abstract sockets, and signals to processes outside."""


def landlock_abi() -> int:
    """The version of Landlock on this machine; 0 if it has none."""
    try:
        return call(CREATE_RULESET, None, 0, 1)
    except OSError:
        return 0


def confine_files(order: Order, grants: SandboxGrants) -> None:
    """Refuse this process and its children every file that is not granted, for good."""
    abi = order.abi
    if not abi:
        raise SystemCallRefused("this kernel has no Landlock")
    handled = RIGHTS.get(abi, (1 << 16) - 1)
    attributes = struct.pack(
        "<QQQ",
        handled,
        TCP if abi >= 4 and not order.network else 0,
        SCOPES if abi >= SIGNALS_ABI else 0,
    )
    size = 24 if abi >= SIGNALS_ABI else 16 if abi >= 4 else 8
    ruleset = call(CREATE_RULESET, attributes[:size], size, 0)
    write = handled & ~SPECIAL_FILES & ~IOCTL
    for paths, rights in (
        (grants.write, write),
        (grants.read, READING),
        (grants.frozen, READ_DIR),
        (KERNEL_FACTS, READING & ~EXECUTE),
        (DEVICES, READ_FILE | WRITE_FILE | TRUNCATE),
    ):
        for path in paths:
            try:
                opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue  # gone, or not readable for this user
            # Replaced by a link since the grants were made.
            if os.readlink(f"/proc/self/fd/{opened}") != path:
                os.close(opened)
                continue
            is_directory = os.path.isdir(f"/proc/self/fd/{opened}")
            allowed = rights & handled if is_directory else rights & handled & ON_FILES
            call(ADD_RULE, ruleset, 1, struct.pack("<Qi", allowed, opened), 0)
            os.close(opened)
    call(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
