"""Figures of the cheap callers, from packets that a test makes."""

from parley.evals.load.browsers import ANSWERED_US, SPEECH_BYTES, Caller

SECOND = 1_000_000
QUIET, LOUD = SPEECH_BYTES - 20, SPEECH_BYTES + 20


def caller(loud_us: range, *, late_us: dict[int, int] | None = None) -> Caller:
    """Return a caller who received a packet each 20 ms for 30 s: speech in this time, silence in the rest."""
    found = Caller(0)
    for number in range(1_500):
        at_us = number * 20_000
        found.at_us.append(at_us + (late_us or {}).get(number, 0))
        found.stamps.append(number * 960)
        found.sizes.append(LOUD if at_us in loud_us else QUIET)
    return found


def test_packets_of_speech_alone_are_late():
    heard = caller(range(2 * SECOND, 4 * SECOND), late_us={110: 35_000, 10: 90_000})
    assert sorted(heard.late_us(0, 30 * SECOND))[-2:] == [0, 35_000]
    assert heard.late_us(3 * SECOND, 4 * SECOND) == [0] * 50


def test_an_answer_begins_with_the_first_speech_after_the_question():
    heard = caller(range(2 * SECOND, 4 * SECOND))
    heard.asked_us = [1_500_000]
    assert heard.answers_us(0, 30 * SECOND) == [500_000]


def test_a_question_while_the_bot_spoke_is_not_judged():
    heard = caller(range(2 * SECOND, 4 * SECOND))
    heard.asked_us = [3 * SECOND, 4_500_000, 4_800_000]
    assert heard.answers_us(0, 30 * SECOND) == [None]


def test_a_question_of_the_last_moments_is_not_judged():
    heard = caller(range(0))
    heard.asked_us = [1, 30 * SECOND - ANSWERED_US]
    assert heard.answers_us(0, 30 * SECOND) == [None]
