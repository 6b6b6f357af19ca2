"""A world for each test, as the end-to-end tests have it."""

from __future__ import annotations

from tests.e2e.conftest import world as world
