"""Likeness of clauses: the same words are recognised in noise and at another rate, others are not."""

import numpy as np
import pytest
import soxr

from parley.evals.abuse.likeness import RATE_HZ, SAID, at_8_khz, likeness, spoken
from parley.evals.abuse.settings import GOODBYE

OTHER = "The branch is open from nine until five on weekdays."


@pytest.mark.parametrize("rate_hz", [8_000, 24_000, 48_000])
def test_a_clause_is_found_in_what_was_heard_at_any_rate(rate_hz: int):
    clauses = np.concatenate((spoken(OTHER), np.zeros(RATE_HZ), spoken(GOODBYE) / 2))
    noise = np.random.default_rng(1).normal(0, 50, len(clauses))
    heard = soxr.resample(clauses + noise, RATE_HZ, rate_hz)
    assert likeness(at_8_khz(heard, rate_hz), spoken(GOODBYE)) > SAID


def test_another_clause_is_not_taken_for_it_and_silence_neither():
    assert likeness(spoken(OTHER), spoken(GOODBYE)) < SAID
    assert likeness(np.zeros(RATE_HZ * 5), spoken(GOODBYE)) == 0.0
    assert likeness(np.zeros(0), spoken(GOODBYE)) == 0.0


def test_silence_that_a_late_line_inserts_does_not_hide_a_clause():
    clause, silent = spoken(GOODBYE), np.zeros(RATE_HZ // 10)
    heard = np.concatenate((clause[:6_000], silent, clause[6_000:11_000], silent, clause[11_000:]))
    assert likeness(heard, clause) > SAID
