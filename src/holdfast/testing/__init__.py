"""Helpers for testing what is built on Holdfast: things with real behaviour that a test holds in its hands."""

from __future__ import annotations

from holdfast.testing.clock import ManualClock as ManualClock
from holdfast.testing.crashing import Crash as Crash
from holdfast.testing.crashing import CrashingStore as CrashingStore
