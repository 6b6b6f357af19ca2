"""The condition of a database file, read without opening it as a store: nothing is changed, made or taken over."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import apsw

from holdfast.errors import StoreDamaged
from holdfast.ids import NodeId
from holdfast.store.condition import Condition
from holdfast.store.operations.nodes import holders, nodes
from holdfast.store.sqlite.connection import open_reader, unusable
from holdfast.store.sqlite.driver import DRIVER
from holdfast.store.sqlite.engine.engine import beside
from holdfast.store.sqlite.faults import described, is_damage
from holdfast.store.sqlite.location_checks import check_all
from holdfast.store.sqlite.locks import Liveness
from holdfast.store.sqlite.migration import has_checksums, newest_step, step_of
from holdfast.store.sqlite.pages.log_length import lost_end
from holdfast.store.sqlite.protection import Protection

DAMAGE_MAX = 5
"""How many findings of SQLite's quick check are shown; `holdfast db verify` has all of them."""


def examine(path: Path) -> Condition:
    """The condition of the database at this path. Raises StoreUnusable if it cannot be a store here."""
    path = path.resolve()
    check_all(path)
    try:
        with closing(open_reader(path)) as db:
            return _examine(db, path)
    except apsw.Error as error:
        raise unusable(path, error) from error


def _examine(db: apsw.Connection, path: Path) -> Condition:
    step = step_of(db)
    lines = _quick_check(db)
    log = path.with_name(path.name + "-wal")
    condition = Condition(
        kind="SQLite",
        version=apsw.sqlite_lib_version(),
        step=step,
        newest=newest_step(),
        bytes=path.stat().st_size,
        log_bytes=log.stat().st_size if log.exists() else 0,
        damage=(*(() if lines == ["ok"] else lines), *filter(None, (lost_end(path),))),
        read_only=Protection(beside(path, "damage"), quiet=True).reason or "",
        checksums=has_checksums(db),
    )
    try:
        return condition if step == 0 else _with_nodes(db, path, condition)
    except StoreDamaged:
        return condition


def _quick_check(db: apsw.Connection) -> list[str]:
    try:
        return [str(line) for (line,) in db.execute(f"PRAGMA quick_check({DAMAGE_MAX})")]
    except apsw.Error as error:
        if not is_damage(error):
            raise
        return [described(error)]


def _with_nodes(db: apsw.Connection, path: Path, condition: Condition) -> Condition:
    now_ms = time.time_ns() // 1_000_000
    rows, held = DRIVER.run(db, nodes()), DRIVER.run(db, holders())
    alive: set[NodeId] = set()
    if beside(path, "live").exists():
        with closing(Liveness(beside(path, "live"))) as liveness:
            alive = {each.node_id for each in rows if liveness.is_held(each.slot)}
    return condition.with_nodes(
        rows,
        held,
        is_alive=lambda node: node.node_id in alive,
        # A lease that begins in the future was renewed by another clock, such as a container's.
        ahead_ms=lambda node: node.since_ms - now_ms,
    )
