"""What a second worker is worth is reckoned from CPU time, and from how evenly the work was spread."""

from __future__ import annotations

from pathlib import Path

import pytest
from workers import Taken, apart, with_workers


@pytest.mark.parametrize(
    ("more", "worth"),
    [
        (Taken(per_s=200, per_cpu_s=50, evenness=2.0), 2.0),
        (Taken(per_s=200, per_cpu_s=50, evenness=1.0), 1.0),  # one of the two did nothing
        (Taken(per_s=100, per_cpu_s=45, evenness=1.8), 1.62),
    ],
)
def test_workers_with_a_core_each(more: Taken, worth: float) -> None:
    assert apart(Taken(per_s=100, per_cpu_s=50, evenness=1.0), more) == pytest.approx(worth)


def test_a_server_is_started_with_so_many_workers(tmp_path: Path) -> None:
    command = with_workers("", 2).command(1, 2, tmp_path)
    assert command.argv[-2:] == ["--workers", "2"]
    assert f"sqlite:///{tmp_path}/ours.db" in command.argv
