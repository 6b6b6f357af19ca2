"""Clients ask a server that is as patient as in its own tests."""

from __future__ import annotations

from tests.server.conftest import patient as patient
