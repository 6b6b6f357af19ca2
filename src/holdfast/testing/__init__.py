"""Helpers for tests of code that is built on Holdfast: fakes with real behaviour, under the test's control."""

from __future__ import annotations

from holdfast.testing.cassette import Cassette as Cassette
from holdfast.testing.cassette import CassetteMissed as CassetteMissed
from holdfast.testing.clock import ManualClock as ManualClock
from holdfast.testing.crash_store import Crash as Crash
from holdfast.testing.crash_store import CrashingStore as CrashingStore
from holdfast.testing.scripted_model import Gate as Gate
from holdfast.testing.scripted_model import Script as Script
from holdfast.testing.scripted_model import ScriptedModel as ScriptedModel
from holdfast.testing.scripted_model import fails as fails
from holdfast.testing.scripted_model import says as says
from holdfast.testing.upstream import FakeUpstream as FakeUpstream
from holdfast.testing.upstream import Reply as Reply
from holdfast.testing.upstream import refuses as refuses
