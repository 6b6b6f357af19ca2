"""`Log`, an immutable sequence with cheap appending.

A `Log` never changes; extending it returns a new value. Underneath, logs that were made from each other share one
list and differ in how much of it they see, so that appending costs the new items, not the length. If the same log is
extended twice, the second extension copies what it sees, once. An empty log is always copied, so that a default value
can be shared safely.

Not for use from several threads at once: extending is a read and a write of the shared list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Log(Sequence[T_co], Generic[T_co]):
    """An immutable sequence with cheap appending at its end."""

    __slots__ = ("_length", "_shared")

    def __init__(self, items: Iterable[T_co] = ()) -> None:
        self._shared: list[T_co] = list(items)
        self._length = len(self._shared)

    @classmethod
    def _seeing(cls, shared: list[T], length: int) -> Log[T]:
        log: Log[T] = Log.__new__(Log)
        log._shared = shared
        log._length = length
        return log

    def extended(self: Log[T], items: Iterable[T]) -> Log[T]:
        """The log with `items` at its end. Costs their number, not the log's length."""
        shared = self._shared
        if (
            len(shared) != self._length or not shared
        ):  # another log was extended from here, or may be
            shared = shared[: self._length]
        shared.extend(items)
        return self._seeing(shared, len(shared))

    def appended(self: Log[T], item: T) -> Log[T]:
        """The log with one more item. Written out, since this runs for every token."""
        shared = self._shared
        if len(shared) != self._length or not shared:
            shared = shared[: self._length]
        shared.append(item)
        log: Log[T] = Log.__new__(Log)
        log._shared = shared
        log._length = self._length + 1
        return log

    def prefix(self, length: int) -> Log[T_co]:
        """The first `length` items, sharing them."""
        assert 0 <= length <= self._length, f"no prefix of {length} in a log of {self._length}"
        return self._seeing(self._shared, length)

    def since(self, start: int) -> tuple[T_co, ...]:
        """The items from position `start` on. Costs their number."""
        return tuple(self._shared[start : self._length])

    @property
    def last(self) -> T_co | None:
        """The last item, if there is one."""
        return self._shared[self._length - 1] if self._length else None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T_co]:
        return islice(self._shared, self._length)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        if isinstance(index, slice):
            return tuple(self._shared[i] for i in range(*index.indices(self._length)))
        if not -self._length <= index < self._length:
            raise IndexError(f"position {index} in a log of {self._length}")
        return self._shared[index if index >= 0 else self._length + index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Log):
            return NotImplemented
        if self._length != other._length:
            return False
        return self._shared is other._shared or all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"<Log of {self._length}>"
