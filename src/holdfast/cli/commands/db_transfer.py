"""`holdfast db export`, `import` and `copy`: sessions from a store to a file, back, and from store to store."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from holdfast import limits
from holdfast.cli import display, output
from holdfast.cli.options import store_option, tenant_option
from holdfast.cli.session_lookup import existing_store, find_session, find_tenant
from holdfast.errors import StoreDamaged
from holdfast.ids import SessionId, SessionKey, Tenant
from holdfast.store.sql.tables import API_KEYS, CLAIMS, GRANTS, KEYS, MEMORIES, SEAL_KEYS
from holdfast.store.sqlite.connection import UNCHECKED
from holdfast.store.sqlite.pages.salvage import Salvaged, salvaged
from holdfast.store.sqlite.takeover import taken_over
from holdfast.store.store import Store
from holdfast.store.store_url import InFile, existing_file, parse_url
from holdfast.store.transfer.copies import CopyProgress, NotCopied
from holdfast.store.transfer.copies import copy as copy_store
from holdfast.store.transfer.exports import Exported, LeftOut
from holdfast.store.transfer.exports import export as export_sessions
from holdfast.store.transfer.imports import OnConflict, take_in
from holdfast.store.verification.verification import Finding, Progress, verify

FOUND = 1
"""The exit code of an export or copy that left something out, or whose copy has findings."""

# ── export ───────────────────────────────────────────────────────────────────────────────────


@click.command(short_help="Write sessions as lines of JSON.")
@click.option("--session", "session_id", metavar="ID", help="Only this session, and its past.")
@click.option("--key", metavar="KEY", help="Only the session that this key means, and its past.")
@tenant_option
@store_option
@click.pass_context
def export(
    ctx: click.Context, session_id: str | None, key: str | None, tenant: str | None, url: str
) -> None:
    """Write all sessions, or one, to stdout as lines of JSON, for `import`.

    Turns go on meanwhile. A file that lacks its last line is not whole, and `import` says so. Sessions that are
    damaged are left out and named; it ends with 1 then.

    \b
    Example:
      holdfast db export --tenant acme > sessions.jsonl
    """
    if session_id is not None and key is not None:
        raise click.UsageError("--session and --key name one session each; use one of them")
    with display.bar() as tell:
        sessions, left_out = asyncio.run(
            _export(url, tenant, session_id, key, sys.stdout.buffer, tell)
        )
    for each in left_out:
        output.say(f"{each.session_id} left out: it is damaged ({each.why})", err=True)
    output.say(f"{display.counted(sessions, 'session')} exported", err=True)
    ctx.exit(FOUND if left_out else 0)


async def _export(
    url: str,
    named: str | None,
    session_id: str | None,
    key: str | None,
    output: BinaryIO,
    tell: display.ProgressBar,
) -> tuple[int, list[LeftOut]]:
    async with existing_store(url) as store:
        tenant = await find_tenant(store, named)
        only = await _only(store, tenant, session_id, key)
        sessions, left_out = 0, list[LeftOut]()
        async for each in export_sessions(store, tenant, only):
            if isinstance(each, LeftOut):
                left_out.append(each)
                continue
            if isinstance(each, Exported):
                sessions += 1
                tell("sessions", each.done, each.of)
            output.writelines(each.lines if isinstance(each, Exported) else (each,))
        output.flush()
        return sessions, left_out


async def _only(
    store: Store, tenant: Tenant, session_id: str | None, key: str | None
) -> SessionId | None:
    if session_id is not None:
        return await find_session(store, tenant, SessionId(session_id))
    return None if key is None else await find_session(store, tenant, SessionKey(key))


# ── import ───────────────────────────────────────────────────────────────────────────────────


@click.command("import", short_help="Take in sessions that were exported.")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--on-conflict",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What to do if a session of the file collides with another one here.",
)
@click.option("--damaged", is_flag=True, help="Take in sessions also if they are damaged.")
@tenant_option
@store_option
def import_command(
    file: BinaryIO, on_conflict: OnConflict, damaged: bool, tenant: str | None, url: str
) -> None:
    """Take in the sessions of FILE, which `export` wrote; - is stdin.

    Each is taken in whole or not at all, and one that is there already stays as it is. So an import
    that broke off is simply made again.

    \b
    Example:
      holdfast db import sessions.jsonl --store sqlite:///other.db
    """
    with display.bar() as tell:
        how = asyncio.run(
            _import(url, tenant, file, on_conflict=on_conflict, damaged=damaged, tell=tell)
        )
    output.say(display.taken(how["fresh"], how["same"], how["skipped"]), err=True)


async def _import(
    url: str,
    named: str | None,
    file: BinaryIO,
    *,
    on_conflict: OnConflict,
    damaged: bool,
    tell: display.ProgressBar,
) -> Counter[str]:
    how: Counter[str] = Counter()
    async with existing_store(url) as store:
        tenant = await find_tenant(store, named)
        async for each in take_in(
            store, tenant, _lines(file), on_conflict=on_conflict, damaged=damaged
        ):
            how[each.how] += 1
            tell("sessions", how.total(), None)
            if each.how == "skipped":
                output.say(f"{each.session_id} skipped: {each.why}", err=True)
            if each.dropped:
                output.say(display.dropped(each.session_id, each.dropped), err=True)
    return how


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; of a line that is too long, just enough for the import to refuse it."""
    while line := file.readline(limits.import_line_bytes_max + 1):
        yield line


# ── copy ─────────────────────────────────────────────────────────────────────────────────────


@click.command(short_help="Copy a whole store into another one.")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--damaged", is_flag=True, help="Copy broken sessions, too, if they can be read.")
@click.option(
    "--ignore-checksums",
    is_flag=True,
    help="FROM is a SQLite file that another program has written or opened: read its pages as they are.",
)
@click.pass_context
def copy(
    ctx: click.Context, source: str, target: str, damaged: bool, ignore_checksums: bool
) -> None:
    """Copy everything from the store FROM into the store TO, also to another kind of store, and check the copy.

    TO has to be there: `holdfast db migrate` makes it. A copy that broke off is made again, and goes on
    where it stopped. No server should use FROM meanwhile. FROM is checked first: what is broken or cannot be read is left
    out and named; it ends with 1 then, and with 1 if something in TO is broken. If pages of a SQLite file are damaged,
    its rows are read page by page, without its indexes.

    Other SQLite programs, such as sqlite3 or a backup tool, do not write the checksums of pages. With
    --ignore-checksums, the pages that they have written are read as well, if SQLite finds no fault in the whole file;
    each session is proved by its own hashes, and left out and named if that fails. FROM stays as it is.

    \b
    Examples:
      holdfast db copy sqlite:///holdfast.db postgresql://holdfast@db.example/holdfast
      holdfast db copy --ignore-checksums sqlite:///holdfast.db sqlite:///new.db
    """
    if source == target:
        raise click.UsageError("FROM and TO are the same store")
    if ignore_checksums and not isinstance(parse_url(source), InFile):
        raise click.UsageError("--ignore-checksums is for a SQLite file")
    readable = _taken_over if ignore_checksums else _salvaged
    with display.bar() as tell, readable(source, beside=target) as found:
        if found is not None and API_KEYS.name in found.hit and not damaged:
            why = f"{KEYLESS}; {MAYBE_FOREIGN}" if found.is_sound else KEYLESS
            raise StoreDamaged("the table api_key", why)
        read = source if found is None else f"sqlite:///{found.path}"
        copied, left_out, findings = asyncio.run(_copy(read, target, tell, damaged=damaged))
    if ignore_checksums:
        output.say(
            f"{source} was read without its checksums; SQLite finds no fault in it", err=True
        )
    elif found is not None:
        output.say(f"{source} has damaged pages; its rows were read page by page", err=True)
        if found.is_sound:
            output.say(MAYBE_FOREIGN, err=True)
        left_out += [
            NotCopied(
                tenant="", what=f"rows of the table {each}", why="a page of it cannot be read"
            )
            for each in sorted(found.hit & UNCOUNTED)
        ]
    for each in left_out:
        whose = f"{each.tenant}/" if each.tenant else ""
        why = f"it is damaged ({each.why})" if each.is_damaged else each.why
        output.say(f"{whose}{each.what} left out: {why}", err=True)
    for finding in findings:
        output.say(str(finding))
    there = "0 sessions" if copied is None else display.counted(copied.done, "session")
    fresh = 0 if copied is None else copied.fresh
    well = "what is there is sound" if left_out else "all is well"
    judged = display.counted(len(findings), "finding") if findings else well
    lost = f"; {len(left_out):,} left out, named above" if left_out else ""
    output.say(f"{there} there, {fresh:,} of them new; checked, {judged}{lost}", err=True)
    ctx.exit(FOUND if findings or left_out else 0)


UNCOUNTED = frozenset(each.name for each in (KEYS, CLAIMS, MEMORIES, GRANTS, API_KEYS, SEAL_KEYS))
"""Tables with rows that no other row counts: nothing but the damaged page tells that some are missing."""

KEYLESS = (
    "without keys the copy would be served to every client; restore a backup, or copy with --damaged and make new keys "
    "before a server uses the copy"
)

MAYBE_FOREIGN = (
    "without its checksums, SQLite finds no fault in it: if another program has written to it, or has opened it after a "
    "crash, make a new copy with --ignore-checksums instead"
)


@contextmanager
def _salvaged(url: str, *, beside: str) -> Iterator[Salvaged | None]:
    """The rows of a SQLite store whose file has damaged pages; None for any other store. Their file is beside the store
    that they are copied to, if that is a file."""
    if not isinstance(parse_url(url), InFile):
        yield None
        return
    with salvaged(existing_file(url, any_step=True).resolve(), _folder_of(beside)) as found:
        yield found


@contextmanager
def _taken_over(url: str, *, beside: str) -> Iterator[Salvaged]:
    """The same for a SQLite store of which no checksum is asked."""
    path = existing_file(url, any_step=True, vfs=UNCHECKED).resolve()
    with taken_over(path, _folder_of(beside)) as copy:
        yield Salvaged(copy)


def _folder_of(url: str) -> Path | None:
    """The folder of a store, if it is a file."""
    near = parse_url(url)
    return near.path.resolve().parent if isinstance(near, InFile) else None


async def _copy(
    source: str, target: str, tell: display.ProgressBar, *, damaged: bool
) -> tuple[CopyProgress | None, list[NotCopied], list[Finding]]:
    copied: CopyProgress | None = None
    left_out: list[NotCopied] = []
    findings: list[Finding] = []
    async with existing_store(source) as read:
        async with existing_store(target) as written:
            async for each in copy_store(read, written, damaged=damaged):
                if isinstance(each, NotCopied):
                    left_out.append(each)
                    continue
                copied = each
                tell("sessions", each.done, each.of)
            async for report in verify(written):
                match report:
                    case Finding():
                        findings.append(report)
                    case Progress(what=what, done=done, of=of):
                        tell(f"checking {what}", done, of)
    return copied, left_out, findings
