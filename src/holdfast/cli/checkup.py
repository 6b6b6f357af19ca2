"""The judgements of `holdfast doctor`: plain functions from facts to findings, each with the way out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Literal, TypeAlias

from holdfast import limits
from holdfast.cli.display import size
from holdfast.core.codec import Value
from holdfast.environment import variable
from holdfast.store.condition import Condition, Replication
from holdfast.tools.sandbox.backend import WAY_OUT, Backend
from holdfast.tools.sandbox.sandbox import Mode

State: TypeAlias = Literal["ok", "warning", "problem", "skipped"]

FREE_WANTED_BYTES = 1024**3
FREE_NEEDED_BYTES = 100 * 1024**2
LOG_WANTED_BYTES = 1024**3
"""A write-ahead log that stays larger than this cannot be emptied: some reader never ends."""

FILES_WANTED = 4096
"""A connection and a stream to a model take one descriptor each; a few hundred are used besides."""

CLOCK_WANTED_MS = 1_000


class CheckupFinding(Value, omit_defaults=False):
    """One check: its subject, its state, what was found, and what to do if it is not `ok`."""

    check: str
    state: State
    what: str
    todo: str = ""


def ok(check: str, what: str) -> CheckupFinding:
    return CheckupFinding(check=check, state="ok", what=what)


def warning(check: str, what: str, todo: str) -> CheckupFinding:
    return CheckupFinding(check=check, state="warning", what=what, todo=todo)


def problem(check: str, what: str, todo: str) -> CheckupFinding:
    return CheckupFinding(check=check, state="problem", what=what, todo=todo)


def skipped(check: str, what: str) -> CheckupFinding:
    return CheckupFinding(check=check, state="skipped", what=what)


# ── this machine ─────────────────────────────────────────────────────────────────────────────


def judge_python(version: tuple[int, int, int]) -> CheckupFinding:
    shown = ".".join(map(str, version))
    if version < (3, 11, 0):
        return problem("python", f"Python {shown}", "install 3.11 or later")
    return ok("python", f"Python {shown}")


def judge_descriptors(most: int) -> CheckupFinding:
    if most < FILES_WANTED:
        return warning(
            "open files",
            f"a process may open {most:,}",
            f"raise it to {FILES_WANTED:,} or more for a busy server: ulimit -Hn, or LimitNOFILE= of its unit",
        )
    shown = f"{most:,}" if most < sys.maxsize else "any number"
    return ok("open files", f"a process may open {shown}")


def judge_sandbox(mode: Mode, backend: Backend) -> CheckupFinding:
    """How commands of agents are confined here."""
    check = "sandbox"
    if mode == "off":
        return warning(
            check,
            "switched off: a command can do everything that the server's user can",
            f"leave {variable('sandbox')} out, or set it to auto or required",
        )
    if backend.kind != "none":
        return ok(check, f"{mode}: {backend.words}")
    if mode == "required":
        return problem(check, f"required, and there is {backend.words}", WAY_OUT)
    return warning(check, f"auto: {backend.words}", WAY_OUT)


def judge_disk(folder: str, free_bytes: int) -> CheckupFinding:
    what = f"{size(free_bytes)} free in {folder}"
    if free_bytes < FREE_NEEDED_BYTES:
        return problem("disk", what, "make room: without it turns are refused with storage_full")
    if free_bytes < FREE_WANTED_BYTES:
        return warning(
            "disk", what, "make room before it runs out; `holdfast db prune` may give some"
        )
    return ok("disk", what)


def judge_mode(path: str, mode: int) -> CheckupFinding:
    """Which users may read the file with all conversations."""
    if mode & 0o007:
        return warning(
            "permissions", f"every user of this machine may open {path}", f"chmod o-rwx {path}"
        )
    return ok("permissions", f"{path} is closed to other users")


# ── the store ────────────────────────────────────────────────────────────────────────────────


def judge_store(condition: Condition) -> Iterator[CheckupFinding]:
    """All findings about an existing store."""
    if condition.kind == "PostgreSQL":
        yield ok("version", f"PostgreSQL {condition.version}")
    yield _judge_step(condition)
    if condition.kind == "SQLite":
        yield _judge_damage(condition)
        yield _judge_checksums(condition)
        yield _judge_log(condition)
    yield _judge_nodes(condition)
    yield _judge_clocks(condition)
    if condition.replication is not None:
        yield judge_replication(condition.replication)


def _judge_step(condition: Condition) -> CheckupFinding:
    what = f"the tables are at step {condition.step} of {condition.newest}, {size(condition.bytes)}"
    if condition.step == 0:
        return warning(
            "tables", "there are none yet", "holdfast db migrate, or the first start, makes them"
        )
    if condition.step < condition.newest:
        return problem("tables", what, "holdfast db backup, then holdfast db migrate")
    if condition.step > condition.newest:
        return problem("tables", what, "a newer Holdfast has written it; run that one")
    return ok("tables", what)


def _judge_damage(condition: Condition) -> CheckupFinding:
    if condition.damage:
        return problem(
            "integrity",
            f"the store is damaged: {'; '.join(condition.damage)}",
            "holdfast db verify says whose, and with --heads who has lost turns; its --help says what to do",
        )
    if condition.read_only:
        return problem(
            "integrity",
            f"the store is only read: {condition.read_only}",
            "holdfast db verify, which lets it be written again if it is sound, and whose --help says what to do else",
        )
    return ok("integrity", "SQLite's quick check finds nothing")


def _judge_checksums(condition: Condition) -> CheckupFinding:
    if condition.step and not condition.checksums:
        return warning(
            "checksums",
            "the pages of this file have none, so that a flipped bit may be noticed by `db verify` alone",
            "holdfast db copy into a new file, which has them",
        )
    return ok("checksums", "every page has one")


def _judge_log(condition: Condition) -> CheckupFinding:
    what = f"{size(condition.log_bytes)} in the write-ahead log"
    if condition.log_bytes > LOG_WANTED_BYTES:
        return warning(
            "log", what, "something reads for very long; end other programs that have the file open"
        )
    return ok("log", what)


def _judge_nodes(condition: Condition) -> CheckupFinding:
    gone = f", {condition.nodes_gone} ended without a word" if condition.nodes_gone else ""
    turns = f", {condition.open_turns} turns open" if condition.open_turns else ""
    what = f"{condition.nodes} alive{gone}{turns}"
    if condition.orphans and not condition.nodes:
        return warning(
            "servers",
            f"{what}; {condition.orphans} of the turns were left by servers that are gone",
            "start a server: it ends or finishes them, each by its policy",
        )
    if condition.orphans:
        return warning(
            "servers",
            f"{what}; {condition.orphans} of the turns were left by servers that are gone",
            f"the others take them over within {2 * limits.lease_ttl_s:g} s; look again, and at their logs",
        )
    return ok("servers", what)


def _judge_clocks(condition: Condition) -> CheckupFinding:
    here, ahead = condition.clock_ms, condition.node_ahead_ms
    if abs(here) > CLOCK_WANTED_MS:
        side = "behind" if here > 0 else "ahead of"
        return warning(
            "clocks",
            f"this machine's clock is {abs(here) / 1000:.1f} s {side} the database's",
            "run a time service (chrony, systemd-timesyncd); leases go by the database's clock, logs do not",
        )
    if ahead > CLOCK_WANTED_MS:
        return warning(
            "clocks",
            f"a server's clock is {ahead / 1000:.1f} s ahead of the store's",
            "run a time service on its machine (chrony, systemd-timesyncd)",
        )
    return ok("clocks", "they agree within a second")


def judge_replication(replication: Replication) -> CheckupFinding:
    """Whether a failover can lose acknowledged turns."""
    check = "replication"
    if replication.is_standby:
        return problem(
            check, "this is a standby, which takes no writes", "name the primary in --store"
        )
    if replication.names and replication.commit in ("on", "remote_apply"):
        if not replication.synchronous:
            return problem(
                check,
                f"commits wait for a standby ({replication.names}), and none is connected",
                "start one, or nothing is committed",
            )
        return ok(check, "commits wait for a standby's disk: a failover loses no acknowledged turn")
    if replication.names and replication.commit == "remote_write":
        return warning(
            check,
            "commits wait until a standby has them in memory: a failover after a loss of power can lose "
            "acknowledged turns",
            "alter system set synchronous_commit = on",
        )
    if replication.names or replication.standbys:
        return warning(
            check,
            "commits do not wait for a standby: a failover can lose acknowledged turns",
            "set synchronous_standby_names, and synchronous_commit = on, if that must not be",
        )
    return ok(
        check,
        "there is no standby, so none can take over; a lost disk loses all since the last backup",
    )
