"""What `make fuzz` tries for long, tried for a moment: the seeds, and some hundreds made of them."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.fuzz.mutating import mutations
from tests.fuzz.targets import Target, frame, targets


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_what_is_made_of_seeds_is_read_or_refused(target: Target) -> None:
    for data in islice(mutations(target, seed=1), len(target.seeds) + 300):
        target.try_one(data)


def test_a_frame_that_words_break_out_of_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge itself is judged: without the care for odd line ends it has to complain."""
    monkeypatch.setattr("holdfast.wire.sse.one_line", lambda body: body)
    with pytest.raises(AssertionError, match="as many lines"):
        frame(bytes([4]) + "a\u2028b".encode())
