"""The torture of the API, for some seconds; `make torture-api` is the long form."""

from __future__ import annotations

import pytest

from tests.torture.http_api import torture


@pytest.mark.slow
async def test_no_request_that_is_made_up_is_answered_otherwise_than_described() -> None:
    figures = await torture(60, examples=2, seed=7, shards=1, phases="examples,fuzzing")
    assert not figures.violations, figures.violations[0]
