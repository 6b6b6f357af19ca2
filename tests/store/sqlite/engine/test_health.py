"""A store that has lost its footing says so to everybody, in an order that leaves no gap."""

from __future__ import annotations

from holdfast.errors import StoreError, StorePoisoned
from holdfast.store.sqlite.engine.health import EngineHealth


def test_whoever_hears_of_a_failure_cannot_be_served_any_more() -> None:
    """The caller of the work that failed may ask again at once, from another thread."""
    health = EngineHealth("a store")

    told: list[StoreError] = []

    def ask_again() -> None:
        assert health.refusal is not None
        told.append(health.refusal())

    health.poison("the disk is gone", tell=ask_again)
    assert [type(each) for each in told] == [StorePoisoned]


def test_callers_are_told_before_the_alarm_is_raised_and_it_is_raised_once() -> None:
    told: list[str] = []
    health = EngineHealth("a store", on_poison=lambda _: told.append("alarm"))
    health.when_poisoned(lambda: told.append("waiting"))
    health.poison("first", tell=lambda: told.append("caller"))
    health.poison("second", tell=lambda: told.append("another caller"))
    assert told == ["caller", "waiting", "alarm", "another caller"]
    assert health.fatal == "first"


def test_the_alarm_is_raised_once_and_for_the_first_reason() -> None:
    told: list[str] = []
    health = EngineHealth("a store", on_poison=lambda error: told.append(str(error)))
    health.poison("EIO at the commit")
    health.poison("whatever that led to")
    health.close()
    assert len(told) == 1
    assert "EIO at the commit" in told[0]
    assert health.refusal is not None
    assert "EIO at the commit" in str(health.refusal())
