"""PostgreSQL's driver: takes the steps of an operation over a connection, in few round trips.

No lock is held between the steps. What an operation writes is conditional on what it has read (`compiler.py`), and if
that has changed, it is run again from the start (`engine.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count, takewhile
from typing import Any, TypeAlias, TypeVar

import asyncpg

from holdfast.core.codec import Value
from holdfast.errors import HoldfastError
from holdfast.ids import SessionKey
from holdfast.store.postgres.cache import FIRST_STAMP, Cache, Known, known_after
from holdfast.store.postgres.compiler import (
    SCHEMA,
    Compiler,
    Stamps,
    WriteRequest,
    WriteShape,
    asked_for,
    cast,
    stored,
)
from holdfast.store.postgres.engine import Db, PostgresEngine
from holdfast.store.postgres.faults import StaleRead, described
from holdfast.store.postgres.faults import is_damage as is_page_damage
from holdfast.store.postgres.groups import OmittedWrite, StatementGroup
from holdfast.store.postgres.queries import PostgresQuery, Row, compiled
from holdfast.store.rows import KeyRow, SessionRow, Tombstone
from holdfast.store.search.words import Needed
from holdfast.store.sql.codecs import Codec
from holdfast.store.sql.dialects import POSTGRES, text_of
from holdfast.store.sql.statements import finding, looking
from holdfast.store.sql.tables import KEYS, SESSIONS, Column, R, Table
from holdfast.store.steps import (
    AskStep,
    Finder,
    FindStep,
    GivenValue,
    Insert,
    Look,
    LookStep,
    One,
    Operation,
    Part,
    PauseStep,
    Question,
    Start,
    Step,
    WriteStep,
)
from holdfast.store.verification.damage import damage_of, is_damage

T = TypeVar("T")


Proposed: TypeAlias = tuple[WriteRequest, WriteStep, Known]

AT_ONCE = 2
"""Statements of one kind on their way: while one is waiting for the disk, the next is worked on."""


_OF_GIVEN = asyncpg.InterfaceError
"""What the driver says of a value that it was given: no row was read."""


@cache
def _codec(table: Table[R]) -> Codec[R]:
    return Codec(table, {"words": bytes.decode})


class Run:
    """One run of an operation: what was read under which stamp, and by which name."""

    def __init__(self, written: Written | None = None, known: Known | None = None) -> None:
        self.written = written
        """Is told what was written, and when."""
        self.known = known
        """What was known of the session before."""
        self.stamps: Stamps = {}
        """Of each session, as it was read first."""
        self.key: SessionKey | None = None
        """A name that means the session which is written."""

    def note_read(self, session: SessionRow | Tombstone, stamp: int) -> None:
        """An operation may read a session again, such as by a claim that leads to it, and has decided by then: the stamp
        of a later read would let it write over what came in between."""
        self.stamps.setdefault((session.tenant, session.id), stamp)


Written: TypeAlias = Callable[[Db, WriteStep, Run, int], None]


class Steps:
    """Takes the steps of operations on a connection; knows every statement that it has needed."""

    def __init__(self) -> None:
        self.compiler = Compiler()
        self._looks: dict[Look[Any], tuple[PostgresQuery, dict[str, Column]]] = {}
        self._finders: dict[tuple[object, ...], tuple[PostgresQuery, dict[str, Column]]] = {}
        self._questions: dict[Question[Any], tuple[PostgresQuery, frozenset[str]]] = {}

    async def take(self, db: Db, operation: Operation[T], run: Run | None = None) -> T:
        """Take the steps of an operation. Raises Stale if what it has read was not so any more."""
        run = run or Run()
        try:
            step = next(operation)
            while True:
                try:
                    came = await self._take_step(db, step, run)
                except Exception as error:
                    in_pages = is_page_damage(error)
                    is_given = isinstance(error, _OF_GIVEN)
                    if is_given or not is_damage(step, error, in_pages=in_pages):
                        raise
                    if isinstance(step, WriteStep):
                        raise damage_of(
                            step, error, in_pages=in_pages, why=described(error)
                        ) from error
                    step = operation.throw(
                        damage_of(step, error, in_pages=in_pages, why=described(error))
                    )
                else:
                    step = operation.send(came)
        except StopIteration as end:
            done: T = end.value
            return done

    async def _take_step(self, db: Db, step: Step, run: Run) -> object:
        match step:
            case LookStep():
                return await self._look(db, step, run)
            case FindStep():
                return await self._find(db, step, run)
            case AskStep():
                return await self._ask(db, step)
            case WriteStep():
                return await self._write(db, step, run)
            case PauseStep():
                await asyncio.sleep(0)
                return None

    # reading

    async def _look(self, db: Db, step: LookStep, run: Run) -> Value:
        look = step.look
        known = self._looks.get(look)
        if known is None:
            sql = looking(look, schema=SCHEMA, now="{now}", stamped=True)
            known = self._looks[look] = compiled("look", sql), _given(*look.parts.values())
        query, given = known
        row = (await db.fetch(query, _bound(step.given, given)))[0]
        at, found = 1, list[object]()
        for part in look.parts.values():
            if not isinstance(part, One):
                found.append(row[at])
                at += 1
                continue
            width = len(part.table.columns)
            made = None
            if row[at] is not None:
                made = _codec(part.table).trusted(row[at : at + width])
            found.append(made)
            at += width
            if part.table.name == SESSIONS.name:
                if made is not None:
                    run.note_read(made, row[at])
                at += 1
            if part.table is KEYS and made is not None:
                run.key = made.key
        facts: Value = look.kind(row[0], *found)
        return facts

    async def _find(self, db: Db, step: FindStep, run: Run) -> tuple[Value, ...]:
        finder = step.finder
        bounds = (step.above is not None, step.upto is not None, step.limit is not None)
        known = self._finders.get((finder, *bounds))
        if known is None:
            sql = finding(finder, *bounds, schema=SCHEMA, cast=cast, stamped=True)
            known = self._finders[finder, *bounds] = compiled("find", sql), _sought(finder)
        query, given = known
        more = {"above": step.above, "upto": step.upto, "limit": step.limit}
        rows = await db.fetch(query, _bound({**step.given, **more}, given))
        return tuple([self._made(finder, row, run) for row in rows])

    def _made(self, finder: Finder[Any], row: Row, run: Run) -> Value:
        width = len(finder.table.columns)
        made = _codec(finder.table).made(row[:width])
        if finder.table is SESSIONS:
            run.note_read(made, row[width])
        found: Value = made
        return found

    async def _ask(self, db: Db, step: AskStep) -> tuple[Value, ...]:
        question = step.question
        known = self._questions.get(question)
        if known is None:
            text = text_of(question.name, question.words)
            query = compiled(question.name, POSTGRES.spelled(text))
            known = self._questions[question] = query, POSTGRES.words_in(text)
        query, words = known
        given = {
            name: _said(value) if name in words else value
            for name, value in _by_column(step.given, query.names)
        }
        rows = await db.fetch(query, given)
        return tuple(map(_codec(question.rows).made, rows))

    # writing

    async def _write(self, db: Db, step: WriteStep, run: Run) -> int:
        query, values = self.compiler.statement([asked_for(step, run.stamps)], waits=True)
        rows = await db.put(query, values)
        if not rows:
            raise StaleRead
        now_ms: int = rows[0][1]
        if run.written is not None:
            run.written(db, step, run, now_ms)
        return now_ms

    async def write_group(self, db: Db, group: Sequence[Proposed]) -> dict[int, int]:
        """Write what can be written, by one statement: the places of those in the group, from 1 on, and when it was."""
        query, values = self.compiler.statement([each[0] for each in group], waits=False)
        return {row[0]: row[1] for row in await db.put(query, values)}


STEPS = Steps()
"""What one connection has needed, another one needs as well."""


class PostgresDriver:
    """Runs operations; knows the sessions that it wrote last.

    Operations on known sessions that are under way at the same time are written together (`groups.py`).
    """

    def __init__(self, engine: PostgresEngine, steps: Steps = STEPS) -> None:
        self.engine = engine
        self.steps = steps
        self.cache = Cache(era=lambda: engine.pool.dropped)
        self.gatherings: dict[WriteShape, StatementGroup[Proposed, int]] = {}

    @property
    def statements(self) -> int:
        """How many went out for operations that were written together, for measurements."""
        return sum(each.statements for each in self.gatherings.values())

    async def close(self) -> None:
        """Wait until everything that was asked for is answered."""
        for each in tuple(self.gatherings.values()):
            await each.close()

    async def run(
        self, start: Start[T], *, engine: PostgresEngine | None = None, once: bool = False
    ) -> T:
        """Run an operation until it is done. `once`: not again after its answer was lost; see `PostgresEngine.run`."""
        known, was_lost = None, False
        if engine is None and not once:
            operation = start()
            step = next(operation, None)
            known = self.cache.take(step) if step else None
            if step and known is not None:
                proposed = self._propose(operation, step, known)
                if proposed is not None:
                    came = await self._together(proposed)
                    if type(came) is not OmittedWrite:
                        return _ended(operation, came)
                    was_lost = came.was_lost
            operation.close()
        return await (engine or self.engine).run(
            lambda db: self.steps.take(db, start(), Run(self._written_alone, known)),
            once=once,
            was_lost=was_lost,
        )

    # on what is known

    def _propose(self, operation: Operation[T], step: Step, known: Known) -> Proposed | None:
        """What an operation would write on what is known; None if there is more to be looked at."""
        # Nothing is decided by when a turn began, so it may be reckoned.
        now_ms = self.engine.reckoned_ms(was_ms=known.noted_ms, at_s=known.noted_s)
        try:
            while not isinstance(step, WriteStep):
                answer = known.answer(step, now_ms=now_ms)
                if answer is None:
                    return None
                step = operation.send(answer)
        except (StopIteration, HoldfastError):
            return None
        if step.as_read or len(step.on) != 1:
            return None
        place = known.session.tenant, known.session.id
        return asked_for(step, {place: known.stamp}), step, known

    async def _together(self, proposed: Proposed) -> int | OmittedWrite:
        """When it was written."""
        shape = proposed[0].shape
        gathering = self.gatherings.get(shape)
        if gathering is None:
            gathering = self.gatherings[shape] = StatementGroup(
                self.engine,
                self._write_all,
                key=lambda each: each[2].session.id,
                size=lambda each: each[0].size,
                at_once=AT_ONCE,
            )
        return await gathering.ask(proposed)

    async def _write_all(self, db: Db, group: Sequence[Proposed]) -> list[int | None]:
        done = await self.steps.write_group(db, group)
        for n, (_, writing, known) in enumerate(group, 1):
            if n in done:
                self._note(db, writing, known, known.stamp + 1, known.key, done[n])
        return [done.get(n) for n in range(1, len(group) + 1)]

    def _note(
        self,
        db: Db,
        writing: WriteStep,
        before: Known | None,
        stamp: int,
        key: SessionKey | None,
        at_ms: int,
    ) -> None:
        known = known_after(writing, before, stamp=stamp, key=key, at_ms=at_ms, at_s=db.moment_s)
        if known is not None:
            self.cache.put(known)

    def _written_alone(self, db: Db, step: WriteStep, run: Run, now_ms: int) -> None:
        for session in step.on:
            self.cache.forget(session.tenant, session.id)
        stamp, before, key = FIRST_STAMP, None, run.key
        if step.on:
            session = step.on[0]
            was = run.stamps[session.tenant, session.id]
            stamp = was + 1
            if run.known is not None and run.known.stamp == was:
                before, key = run.known, key or run.known.key
        elif key is None:
            key = next((each.key for each in _named(step)), None)
        self._note(db, step, before, stamp, key, now_ms)


def _by_column(given: Mapping[str, Any], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Given values as a statement names them; a list of rows comes as a list for each of its columns."""
    for name, value in given.items():
        if isinstance(value, Needed):
            yield name, POSTGRES.index.asked(value)
        elif name in names:
            yield name, value
        else:
            columns = takewhile(names.__contains__, (f"{name}_{n}" for n in count()))
            yield from ((each, [row[n] for row in value]) for n, each in enumerate(columns))


def _said(value: Any) -> Any:
    """What people and models say, or a list of it, as PostgreSQL keeps it."""
    if isinstance(value, list):
        return [_said(each) for each in value]
    return None if value is None else value.encode()


def _named(writing: WriteStep) -> Iterator[KeyRow]:
    for each in writing.changes:
        if isinstance(each, Insert) and each.table is KEYS:
            yield from each.rows


def _ended(operation: Operation[T], now_ms: int) -> T:
    """What an operation returns after its write."""
    try:
        operation.send(now_ms)
    except StopIteration as end:
        done: T = end.value
        return done
    raise AssertionError("a write is the last step of an operation")


def _given(*parts: Part) -> dict[str, Column]:
    """The columns that given values are compared with."""
    return {
        source.name: part.table.by_name[column]
        for part in parts
        for column, sources in part.where.items()
        for source in sources
        if isinstance(source, GivenValue)
    }


def _sought(finder: Finder[Any]) -> dict[str, Column]:
    columns = finder.table.by_name
    found = {
        source.name: finder.selected.by_name[column]
        for column, source in finder.where.items()
        if isinstance(source, GivenValue)
    }
    found |= {name: columns[name] for name in finder.choice}
    if finder.over is not None:
        found |= {"above": columns[finder.over], "upto": columns[finder.over]}
    return found


def _bound(given: Mapping[str, Any], columns: Mapping[str, Column]) -> dict[str, Any]:
    return {
        name: stored(columns[name], value) if name in columns else value
        for name, value in given.items()
    }
