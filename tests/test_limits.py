"""Bounds that have to agree with each other."""

from __future__ import annotations

from holdfast import limits


def test_the_caches_of_a_process_share_one_budget() -> None:
    shares = (
        limits.snapshot_cache_bytes,
        limits.history_cache_bytes,
        limits.page_cache_bytes,
        limits.ended_turns_bytes,
        limits.known_names_bytes,
    )
    assert sum(shares) == limits.cache_bytes


def test_what_is_remembered_by_name_fits_its_share() -> None:
    """Entries, by what each of them weighs according to its own words."""
    weights = (
        (limits.known_keys_max, 400),
        (limits.known_rows_max, 2048),
        (limits.gauge_entries_max, 200),
        (limits.key_cache_max, 800),
    )
    assert sum(number * size for number, size in weights) <= limits.known_names_bytes
