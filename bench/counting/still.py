"""Sessions in which nothing goes by the clock.

A node looks for signals, orphans and what is to be indexed every so often. How often that is during a count depends on
how busy the machine is, and what it costs belongs to no turn.
"""

from __future__ import annotations

from holdfast import limits
from holdfast.core.ports import Play
from holdfast.sessions.session_requests import Choose, as_asked
from holdfast.sessions.sessions import Sessions
from holdfast.store.memory_store import MemoryStore

_HOUR_S = 3_600.0


def sessions_of(play: Play, choose: Choose = as_asked) -> Sessions:
    """Sessions in memory whose node looks around once, when it begins."""
    for period in ("signal_poll_s", "sweep_s", "index_s"):
        setattr(limits, period, _HOUR_S)
    return Sessions(
        MemoryStore(), play, choose=choose, lease_ttl_s=2 * _HOUR_S, lease_renew_s=_HOUR_S
    )
