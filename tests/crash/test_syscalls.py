"""Between two system calls: killed there, or told that the disk fails or is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.syscalls import Fault, break_every_call, need_strace
from tests.crash.zygote import Zygote


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["signal=KILL", "error=EIO", "error=ENOSPC"])
def test_no_system_call_is_a_bad_moment(zygote: Zygote, tmp_path: Path, fault: Fault) -> None:
    need_strace()
    found = break_every_call(zygote, tmp_path, fault, step=61)
    assert found.tally.violations == []
    answers = found.answers
    struck = {key.partition(":")[0] for key in answers}
    assert {"pwrite64", "fdatasync"} <= struck or {"write", "fsync"} <= struck
    if fault == "error=ENOSPC":
        assert answers["pwrite64: full + end"] > 0, "a full disk is no reason to stop"
    if fault == "error=EIO":
        assert answers["fdatasync: poisoned"] > 0, "after a failed sync nothing can be trusted"
