"""Messages as they are compared with the history that a client owns."""

from __future__ import annotations

import pytest

from holdfast.core.exchanges import SpokenExchange, UserWords


@pytest.mark.parametrize(
    ("sent", "held", "is_end"),
    [
        (("Oslo?", 0), ("Oslo?", 0), True),
        (("Oslo?", 0), ("A passage.\nOslo?", 0), True),
        (("A passage.\nOslo?", 0), ("Oslo?", 0), False),
        (("Oslo?", 0), ("Oslo? In winter.", 0), False),
        (("lo?", 0), ("Oslo?", 0), False),
        (("Oslo?", 0), ("Oslo?", 1), True),
        (("Oslo?", 1), ("Oslo?", 0), False),
        (("", 1), ("", 1), True),
        (("", 1), ("A passage.", 1), True),
        (("", 1), ("", 2), False),
        (("", 0), ("", 1), False),
    ],
)
def test_a_message_may_lack_what_stood_in_front_of_it_but_has_nothing_new(
    sent: tuple[str, int], held: tuple[str, int], is_end: bool
) -> None:
    ours = UserWords(words=held[0], parts=held[1])
    assert UserWords(words=sent[0], parts=sent[1]).is_end_of(ours) is is_end


def test_words_or_calls_answer_a_question() -> None:
    question = (UserWords(words="Oslo?"),)
    assert not SpokenExchange(asked=question).is_answered
    assert SpokenExchange(asked=question, said="Cold.").is_answered
    assert SpokenExchange(asked=question, calls=("call_1",)).is_answered
