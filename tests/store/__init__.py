"""The store's tests. Helpers assert too, and are to say as much as a test when they fail."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "tests.store.builders", "tests.store.state", "tests.store.contract.words"
)
