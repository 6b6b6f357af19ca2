"""Which time it is for what gets old: a clock that leaps is believed after a day of use, and not before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.store.expiry import Horizon, believed, looked

MINUTE, HOUR, DAY = 60_000, 3_600_000, 24 * 3_600_000
START = 1_000 * DAY


def used(horizon: Horizon, for_ms: int, *, every_ms: int = 5 * MINUTE) -> Horizon:
    """A store in use for so long: it looks at the clock, which goes on."""
    end = horizon.seen_ms + for_ms
    while horizon.seen_ms < end:
        horizon = looked(horizon, min(end, horizon.seen_ms + every_ms))
    return horizon


def test_while_a_store_is_in_use_its_horizon_is_the_clock() -> None:
    horizon = used(Horizon(seen_ms=START), 3 * DAY)
    assert horizon.age_ms(START) == 3 * DAY
    assert horizon.ran_ms == 3 * DAY


def test_a_leap_counts_after_a_day_of_use_and_not_before() -> None:
    leapt = looked(Horizon(seen_ms=START), START + 40 * DAY)
    assert leapt.age_ms(START - MINUTE) == MINUTE
    later = used(leapt, 23 * HOUR - 1)
    assert later.age_ms(START) == 23 * HOUR - 1, "what runs meanwhile is time that has passed"
    assert used(leapt, DAY).age_ms(START) == 41 * DAY


def test_what_is_written_after_a_leap_gets_older_as_ever() -> None:
    """Else nothing would expire for a day after each night in which a machine is off."""
    leapt = looked(Horizon(seen_ms=START), START + 40 * DAY)
    assert used(leapt, HOUR).age_ms(leapt.seen_ms + MINUTE) == HOUR - MINUTE
    assert used(leapt, HOUR).before_ms(60) == leapt.seen_ms + HOUR - MINUTE


def test_a_clock_that_is_put_right_leaves_nothing_behind() -> None:
    horizon = used(looked(Horizon(seen_ms=START), START + 40 * DAY), 5 * MINUTE)
    right = looked(horizon, START + 10 * MINUTE)
    assert 0 <= right.age_ms(START) <= 10 * MINUTE


def test_a_clock_that_goes_back_takes_the_horizon_along() -> None:
    """What is written by such a clock must not look old."""
    back = looked(Horizon(seen_ms=START), START - 40 * DAY)
    assert back.age_ms(START - 40 * DAY) == 0
    assert looked(back, START).age_ms(START - 40 * DAY) == 0, "and the way forward is a leap"


def test_a_store_that_runs_for_a_few_hours_a_day_gets_older_too() -> None:
    """Each night is a leap of its own, and each of them has its day of use: the horizon is three nights behind."""
    horizon = Horizon(seen_ms=START)
    for day in range(30):
        horizon = looked(horizon, START + day * DAY)
        horizon = used(horizon, 8 * HOUR)
        assert horizon.behind_ms <= 3 * 16 * HOUR
    assert len(horizon.leaps) <= 3


def test_many_small_runs_do_not_pile_up() -> None:
    horizon = Horizon(seen_ms=START)
    for _ in range(1000):
        horizon = used(looked(horizon, horizon.seen_ms + 2 * HOUR), 10 * MINUTE)
    assert len(horizon.leaps) <= 25


def test_a_store_that_has_never_looked_believes_nothing_yet() -> None:
    first = looked(None, START)
    assert first.age_ms(START - 40 * DAY) == 0
    assert used(first, DAY).age_ms(START - 40 * DAY) == 41 * DAY


def test_an_operator_can_say_that_the_clock_is_right() -> None:
    leapt = looked(Horizon(seen_ms=START), START + 40 * DAY)
    assert believed(leapt, START + 40 * DAY).age_ms(START) == 40 * DAY


@given(
    st.lists(st.integers(-50 * DAY, 50 * DAY) | st.integers(0, 2 * HOUR), max_size=40),
    st.lists(st.integers(-60 * DAY, 60 * DAY), max_size=10),
    st.integers(0, 50 * DAY),
)
def test_whatever_a_clock_does_age_follows_it_at_its_own_pace(
    steps: list[int], moments: list[int], keep_ms: int
) -> None:
    """A look makes nothing older by more than an hour, unless a leap has had its day; of two things the earlier one is
    never younger; the two ways to ask agree; and after a day of use there is nothing but the clock."""
    horizon, now = Horizon(seen_ms=START), START
    for step in steps:
        now += step
        before, horizon = horizon, looked(horizon, now)
        assert all(leap.by_ms > 0 for leap in horizon.leaps)
        assert len(horizon.leaps) <= 25
        counted = sum(leap.by_ms for leap in before.leaps if leap.counts_ms <= horizon.ran_ms)
        for moment in moments:
            was_ms = max(0, before.age_ms(START + moment))
            assert horizon.age_ms(START + moment) <= was_ms + HOUR + counted
    ages = [horizon.age_ms(START + moment) for moment in sorted(moments)]
    assert ages == sorted(ages, reverse=True)
    for moment in moments:
        is_old = horizon.age_ms(START + moment) >= keep_ms
        assert (START + moment <= horizon.before_ms(keep_ms / 1000)) == is_old
    assert used(horizon, DAY).age_ms(START) == now + DAY - START
