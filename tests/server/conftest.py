"""What every test of the server shares."""

from __future__ import annotations

import pytest

from holdfast import limits


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure before the first word is a status, also on a machine that pauses for longer than a stream does."""
    monkeypatch.setattr(limits, "stream_patience_s", 60.0)
