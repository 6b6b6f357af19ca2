"""The homes against the model: the same random operations, the same answers, the same bytes.

A longer search: pytest tests/store/model --hypothesis-profile=explore
"""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.store.model.homes import POSTGRES, SQLITE, open_homes
from tests.store.model.queue_machine import QueueMachine

STEPS = 80

EXAMPLES = {"steady": 24}
"""Of each run of the tests. Hunts of mutants and searches try half as many as their profile says."""

POSTGRES_SHARE = 5
"""A question to it costs as much as this many to SQLite, so it is asked as many times less."""


@pytest.mark.slow
@pytest.mark.timeout(1200)  # much to compute: on a busy machine it may take minutes
@pytest.mark.parametrize(("other", "share"), [(SQLITE, 1), (POSTGRES, POSTGRES_SHARE)])
def test_every_home_keeps_the_promises_that_the_model_makes(other: str, share: int) -> None:
    """One disagreement here is one way to lose or mix up somebody's conversation."""
    name = hypothesis.settings.get_current_profile_name()
    profile = hypothesis.settings.get_profile(name)
    settings = hypothesis.settings(
        profile,
        max_examples=EXAMPLES.get(name, profile.max_examples // 2) // share,
        stateful_step_count=STEPS,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    with open_homes(other) as homes:
        # Its type asks for the class, its code for anything that makes a machine.
        run_state_machine_as_test(lambda: QueueMachine(homes), settings=settings)  # type: ignore[arg-type]
