"""A sweep sees to many turns, and one that cannot be seen to keeps nobody else waiting."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.observe.events import event
from holdfast.store.outcomes import Orphan, WaitingTurn

AWAY_MAX = 3
"""How often the store may be out of reach before a sweep gives up: each time may take a timeout."""

log = logging.getLogger("holdfast.sessions")


class SweepErrors:
    """The troubles of one sweep. A turn that could not be seen to is told of by this event, and left to the next sweep."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._away = 0

    async def see_to(self, turn: Orphan | WaitingTurn, work: Callable[[], Awaitable[bool]]) -> bool:
        """What came of it; False if it failed, or if the sweep has been given up. Raises StoreUnavailable if it is the
        store that cannot be reached, and not one session."""
        if self._away >= AWAY_MAX:
            return False
        try:
            return await work()
        except StoreUnavailable as error:
            self._away += 1
            if self._away >= AWAY_MAX:
                raise
            why = str(error)
        except HoldfastError as error:
            why = str(error)
            log.warning("turn %s could not be seen to: %s", turn.turn_id, why)
        except Exception as error:
            # Rows that cannot be decoded, or a mistake of ours: told, and tried again, like a sweep that fails.
            why = repr(error)
            log.error("turn %s could not be seen to", turn.turn_id, exc_info=error)
        event(self._name, turn=turn.turn_id, session=turn.session_id, why=why)
        return False
