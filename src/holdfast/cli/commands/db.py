"""`holdfast db`: look after a database, also while a server uses it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click
import msgspec

from holdfast import limits
from holdfast.cli import display, output
from holdfast.cli.commands.db_transfer import copy, export, import_command
from holdfast.cli.options import json_option, store_option
from holdfast.cli.session_lookup import existing_store
from holdfast.errors import StoreError
from holdfast.store.outcomes import Pruned, StoreStats
from holdfast.store.sqlite.backup import back_up
from holdfast.store.store_url import existing_file, migrate_store, shown
from holdfast.store.verification import heads
from holdfast.store.verification.verification import Finding, Progress, verify

FOUND = 1
"""The exit code of a `verify` with findings."""


@click.group()
def db() -> None:
    """Look after a database, also while a server uses it."""


for command in (export, import_command, copy):
    db.add_command(command)


# ── migrate ──────────────────────────────────────────────────────────────────────────────────


@db.command(short_help="Bring the tables up to date.")
@store_option
def migrate(url: str) -> None:
    """Bring the tables up to date; make the database if there is none.

    A database that a newer Holdfast has written is left alone.

    \b
    Example:
      holdfast db migrate --store sqlite:////var/lib/holdfast/store.db
    """
    place, migrated = shown(url), asyncio.run(migrate_store(url))
    if migrated.before == migrated.after:
        output.say(f"{place}: nothing to do, the tables are at step {migrated.after}")
    elif migrated.before == 0:
        output.say(f"{place}: made, the tables are at step {migrated.after}")
    else:
        output.say(f"{place}: migrated from step {migrated.before} to step {migrated.after}")


# ── verify ───────────────────────────────────────────────────────────────────────────────────


@db.command("verify", short_help="Check everything.")
@click.option(
    "--heads",
    "kept",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Compare with heads that `db heads` or `db backup` wrote.",
)
@store_option
@json_option
@click.pass_context
def verify_command(ctx: click.Context, url: str, as_json: bool, kept: Path | None) -> None:
    """Check every promise that a store can show, and list what is broken.

    Reads only, in short steps. Ends with 0 if all is well, and with 1 if something is broken. A store that was
    only read because of damage takes writes again if nothing is found. With --heads, a store that was set back to an
    earlier state, or has lost a conversation, is noticed, too.

    \b
    If something is broken, or the store cannot be opened:
      1. End the server, and copy all files that begin with the database's name
         to another place. Do not put an old log (-wal) beside another database.
      2. Copy what can be read into a new store (`holdfast db migrate`, then
         `holdfast db copy`): what is left out is named. If another SQLite
         program has written the file, or has opened it after a crash, copy
         with --ignore-checksums. If nothing can be opened, take the newest
         backup that verifies.
      3. Bring what was left out from a backup (`holdfast db export` there, and
         `holdfast db import --on-conflict skip` here).
      4. Put the new file in the old one's place, and verify it.
    "When a store is damaged", in the documentation, has each case.

    \b
    Examples:
      holdfast db verify --json
      holdfast db verify --heads monday.heads
    """
    seen = VerifyCounts(lines=not as_json and not display.is_watched())
    lines = [] if kept is None else kept.read_bytes().splitlines(keepends=True)
    known = tuple(heads.read(lines)) if kept else ()
    try:
        with display.bar() as tell:
            asyncio.run(_verify(url, seen, tell, known))
    except StoreError:
        # The store failed on the way: the findings so far may say why.
        if seen.findings:
            _show_verified(seen, as_json=as_json)
        raise
    seen.complete = True
    _show_verified(seen, as_json=as_json)
    ctx.exit(FOUND if seen.findings else 0)


class VerifyCounts(msgspec.Struct):
    """The progress and findings of `verify`."""

    lines: bool
    """Whether findings are printed as they come."""
    findings: list[Finding] = msgspec.field(default_factory=list)
    sessions: int = 0
    complete: bool = False


async def _verify(
    url: str, seen: VerifyCounts, tell: display.ProgressBar, known: tuple[heads.Head, ...]
) -> None:
    async with existing_store(url) as store:
        async for finding in heads.compared(store, known):
            seen.findings.append(finding)
            if seen.lines:
                output.say(str(finding))
        async for report in verify(store):
            match report:
                case Finding():
                    seen.findings.append(report)
                    if seen.lines:
                        output.say(str(report))
                case Progress(what=what, done=done, of=of):
                    tell(what, done, of)
                    seen.sessions = done if what == "sessions" else seen.sessions
        if not seen.findings and store.read_only is not None:
            await store.declare_sound()
            output.say("the store was only read, and takes writes again", err=True)


def _show_verified(seen: VerifyCounts, *, as_json: bool) -> None:
    if as_json:
        output.give(json.dumps(_verified(seen), indent=2))
        return
    if seen.findings and not seen.lines:
        display.table(
            ("tenant", "session", "code", "where", "what"),
            (
                (each.tenant, each.session_id, found.code, found.where, found.what)
                for each in seen.findings
                for found in (each.violation,)
            ),
        )
    output.say(f"{display.counted(seen.sessions, 'session')} checked, {_judged(seen)}", err=True)


def _verified(seen: VerifyCounts) -> dict[str, object]:
    return {
        "complete": seen.complete,
        "clean": seen.complete and not seen.findings,
        "sessions": seen.sessions,
        "findings": [
            {
                "tenant": each.tenant,
                "session": each.session_id,
                "code": each.violation.code,
                "where": each.violation.where,
                "what": each.violation.what,
            }
            for each in seen.findings
        ],
    }


def _judged(seen: VerifyCounts) -> str:
    if not seen.findings:
        return "all is well"
    return f"{display.counted(len(seen.findings), 'finding')}; `holdfast db verify --help` says what to do"


# ── heads ────────────────────────────────────────────────────────────────────────────────────


@db.command("heads", short_help="Write where each conversation stands.")
@click.argument("target", metavar="FILE", type=click.Path(path_type=Path))
@store_option
def heads_command(target: Path, url: str) -> None:
    """Write where each conversation stands into the new file FILE, for `verify --heads`.

    Keep it elsewhere than the store. It holds ids, versions and hashes, and no words.

    \b
    Example:
      holdfast db heads monday.heads
    """
    sessions = asyncio.run(_write_heads(url, target))
    output.say(f"{target}: the heads of {display.counted(sessions, 'session')}")


async def _write_heads(url: str, target: Path) -> int:
    async with existing_store(url) as store:
        lines = [line async for line in heads.written(store)]
    try:
        with target.open("xb") as file:
            file.writelines(lines)
    except FileExistsError as error:
        raise click.UsageError(f"{target} is there already; name another file") from error
    return len(lines) - 2


# ── backup ───────────────────────────────────────────────────────────────────────────────────


@db.command(short_help="Copy the database into a new file.")
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--heads",
    "kept",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the heads to this new file, too; keep it elsewhere.",
)
@store_option
def backup(target: Path, url: str, kept: Path | None) -> None:
    """Copy the database, as it is at this moment, into the new file TARGET.

    Turns go on meanwhile. TARGET appears when the copy is whole and on disk. With --heads, where each conversation
    stood is written to FILE first, for `verify --heads`.
    For SQLite only: PostgreSQL has pg_dump.

    \b
    Example:
      holdfast db backup monday.db --heads monday.heads
    """
    source = existing_file(url, any_step=True)
    if kept is not None:  # before the copy, which then has all of them
        asyncio.run(_write_heads(url, kept))
    with display.bar() as tell:
        copied = back_up(source, target, progress=lambda done, of: tell("pages", done, of))
    output.say(f"{target}: {display.size(copied.bytes)}, a copy of {source}")


# ── stats ────────────────────────────────────────────────────────────────────────────────────


@db.command(short_help="Count what is there.")
@store_option
@json_option
def stats(url: str, as_json: bool) -> None:
    """Count what is there.

    \b
    Example:
      holdfast db stats --json
    """
    found = asyncio.run(_stats(url))
    numbers = {name: getattr(found, name) for name in found.__struct_fields__}
    if as_json:
        output.give(json.dumps(numbers, indent=2))
    elif display.is_watched():
        wide = max(len(f"{each:,}") for each in numbers.values())
        rows = ((name, f"{each:,}".rjust(wide)) for name, each in numbers.items())
        display.table(("", "number".rjust(wide)), rows)
    else:
        for name, each in numbers.items():
            output.say_row((name, str(each)))


async def _stats(url: str) -> StoreStats:
    async with existing_store(url) as store:
        return await store.stats()


# ── prune ────────────────────────────────────────────────────────────────────────────────────


@db.command(short_help="Remove data whose time is over.")
@click.option(
    "--trust-clock", is_flag=True, help="The clock is right: remove at once what is old by it."
)
@store_option
def prune(url: str, trust_clock: bool) -> None:
    """Remove data whose time is over: discarded turns after a week, bytes of deleted sessions, and the like.

    Small steps with pauses, so that turns go first. A server does this by itself. After a pause, or if the clock was
    set, nothing gets older by that until the store has been in use for a day; with --trust-clock it does at once.

    \b
    Examples:
      holdfast db prune
      holdfast db prune --trust-clock
    """
    with display.bar() as tell:
        done = asyncio.run(_prune(url, tell, trust_clock=trust_clock))
    rows, behind_h = done.rows, done.behind_ms / 3_600_000
    output.say(f"{display.counted(rows, 'row')} removed" if rows else "nothing to remove")
    if behind_h:
        output.say(
            f"The clock is {behind_h:.1f} hours ahead of when this store was last in use: what is old only because of "
            "that goes after a day of use, or with --trust-clock."
        )


async def _prune(url: str, tell: display.ProgressBar, *, trust_clock: bool) -> Pruned:
    async with existing_store(url) as store:
        rows = 0
        while True:
            step = await store.prune(trust_clock=trust_clock)
            rows += step.rows
            tell("rows", rows, None)
            if not step.more:
                return Pruned(rows=rows, more=False, behind_ms=step.behind_ms)
            await asyncio.sleep(limits.upkeep_pause_s)
