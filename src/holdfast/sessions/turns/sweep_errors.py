"""The errors of a sweep: a turn that cannot be recovered or opened does not delay the others."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.observe.events import event
from holdfast.store.outcomes import Orphan, WaitingTurn

AWAY_MAX = 3
"""How often the store may be unavailable before a sweep gives up: each time may take a whole timeout."""

log = logging.getLogger("holdfast.sessions")


class SweepErrors:
    """Handles the errors of one sweep: a turn that fails is logged as the event `name`, and left to the next sweep."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._away = 0

    async def attempt(
        self, turn: Orphan | WaitingTurn, work: Callable[[], Awaitable[bool]]
    ) -> bool:
        """The result of `work`; False if it failed, or if the sweep has given up. Raises StoreUnavailable if the store,
        and not only one session, seems to be unavailable."""
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
            log.warning("turn %s could not be recovered or opened: %s", turn.turn_id, why)
        except Exception as error:
            # Rows that cannot be decoded, or a bug: logged, and tried again by the next sweep.
            why = repr(error)
            log.error("turn %s could not be recovered or opened", turn.turn_id, exc_info=error)
        event(self._name, turn=turn.turn_id, session=turn.session_id, why=why)
        return False
