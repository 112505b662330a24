"""The bot's audio leaves in real time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.audio.paced_output import PacedOutput
from parley.core.errors import ShapeError

RATE_HZ = 24_000
PIECE = RATE_HZ // 50


def second(seconds: float = 1.0) -> np.ndarray:
    return np.arange(int(RATE_HZ * seconds), dtype=np.float32) / 1e6


def drain(paced: PacedOutput, until_us: int) -> list[tuple[int, np.ndarray]]:
    """Take every piece at its due time."""
    taken = []
    while (due_us := paced.next_due_us()) is not None and due_us <= until_us:
        piece = paced.take(due_us)
        assert piece is not None
        taken.append((due_us, piece))
    return taken


def test_a_second_leaves_in_pieces_each_before_it_is_heard() -> None:
    paced = PacedOutput(RATE_HZ, lead_ms=40)
    paced.push(second(), 5_000_000, is_last=True)
    taken = drain(paced, 10_000_000)
    assert [at for at, _ in taken] == [5_000_000 + 20_000 * place for place in range(50)]
    np.testing.assert_array_equal(np.concatenate([piece for _, piece in taken]), second())
    assert paced.heard_until_us == 5_000_000 + 40_000 + 1_000_000


def test_nothing_leaves_before_it_is_due() -> None:
    paced = PacedOutput(RATE_HZ)
    paced.push(second(), 0)
    assert paced.take(0) is not None and paced.take(19_999) is None and paced.take(20_000) is not None


def test_an_engine_faster_than_time_sends_no_sooner() -> None:
    paced = PacedOutput(RATE_HZ, longest_ms=100_000)
    for tick in range(20):
        # 10 % more than time has passed, for 20 seconds.
        paced.push(second(1.1), tick * 1_000_000)
        drain(paced, (tick + 1) * 1_000_000 - 1)
    assert paced.sent_samples <= 20 * RATE_HZ
    assert paced.holes == 0


def test_what_waits_is_bounded_and_what_is_lost_is_counted() -> None:
    paced = PacedOutput(RATE_HZ, longest_ms=1_500)
    paced.push(second(), 0)
    paced.push(second(), 0)
    assert (paced.held_samples, paced.lost_samples) == (36_000, 12_000)


def test_units_that_come_in_time_follow_each_other_without_a_hole() -> None:
    paced = PacedOutput(RATE_HZ, lead_ms=60)
    heard = []
    for tick in range(30 * 60):
        # The result of a unit comes up to 50 ms late.
        late_us = (tick * 7919 % 51) * 1_000
        heard += drain(paced, tick * 1_000_000 + late_us)
        paced.push(second(), tick * 1_000_000 + late_us)
    heard += drain(paced, 2_000_000_000)
    assert paced.holes <= 8
    # After the last gap no piece is a microsecond off.
    ats = [at for at, _ in heard[-5_000:]]
    assert set(np.diff(ats)) == {20_000}


def test_speech_that_goes_on_too_late_is_a_hole_and_one_that_begins_is_none() -> None:
    paced = PacedOutput(RATE_HZ)
    paced.push(second(), 0)
    drain(paced, 1_100_000)
    paced.push(second(), 1_500_000, is_last=True)
    assert paced.holes == 1
    drain(paced, 3_000_000)
    paced.push(second(), 9_000_000)
    assert paced.holes == 1
    assert paced.next_due_us() == 9_000_000


def test_what_is_left_of_a_piece_does_not_hide_a_hole() -> None:
    paced = PacedOutput(RATE_HZ, lead_ms=40)
    paced.push(second(0.99), 0)
    drain(paced, 2_000_000)
    assert paced.held_samples == PIECE // 2
    paced.push(second(), 1_500_000)
    assert paced.holes == 1
    # The lead is unchanged: nothing leaves in a burst.
    assert [at for at, _ in drain(paced, 1_600_000)] == [1_500_000 + 20_000 * place for place in range(6)]


def test_who_yields_drops_what_has_not_left() -> None:
    paced = PacedOutput(RATE_HZ, lead_ms=40)
    paced.push(second(), 0)
    drain(paced, 200_000)
    assert paced.sent_samples == 11 * PIECE
    assert paced.clear() == RATE_HZ - 11 * PIECE
    assert paced.next_due_us() is None and paced.heard_until_us is None
    paced.push(second(), 300_000)
    assert paced.next_due_us() == 300_000


def test_the_rest_of_a_piece_waits_for_more_unless_there_is_none() -> None:
    paced = PacedOutput(RATE_HZ)
    paced.push(second(0.03), 0)
    assert len(drain(paced, 1_000_000)) == 1
    paced.push(second(0.01), 20_000)
    assert len(drain(paced, 1_000_000)) == 1
    paced.push(second(0.005), 40_000, is_last=True)
    assert [len(piece) for _, piece in drain(paced, 1_000_000)] == [120]


def test_other_audio_is_refused() -> None:
    with pytest.raises(ShapeError):
        PacedOutput(RATE_HZ).push(np.zeros(4), 0)


@given(st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 400_000), st.booleans()), max_size=40))
def test_every_sample_leaves_once_or_is_counted(steps: list[tuple[int, int, bool]]) -> None:
    paced = PacedOutput(RATE_HZ, longest_ms=2_000)
    now_us = pushed = sent = 0
    for samples, later_us, is_last in steps:
        now_us += later_us
        sent += sum(len(piece) for _, piece in drain(paced, now_us))
        paced.push(second(samples / RATE_HZ), now_us, is_last=is_last)
        pushed += int(RATE_HZ * (samples / RATE_HZ))
    sent += sum(len(piece) for _, piece in drain(paced, now_us + 60_000_000))
    assert sent == paced.sent_samples
    assert pushed == sent + paced.held_samples + paced.lost_samples + paced.caught_up_samples
    assert paced.held_samples < PIECE


def test_what_is_late_after_a_hole_is_made_up_for_in_silence() -> None:
    rate_hz, unit = 16_000, 1_280
    paced = PacedOutput(rate_hz, piece_ms=20, lead_ms=40)
    now_us, heard = 0, 0
    voice = np.full(unit, 0.2, np.float32)
    pause = np.concatenate([voice[:640], np.zeros(640, np.float32)])
    left_out = 0
    for number in range(20):
        # The third unit comes 100 ms late.
        at_us = number * 80_000 + (100_000 if number == 2 else 0)
        while now_us < at_us:
            piece = paced.take(now_us)
            heard += len(piece) if piece is not None else 0
            now_us += 10_000
        left_out += paced.push(pause if number % 4 == 3 else voice, now_us)
    assert paced.holes == 1
    # Two pauses of 40 ms, and a half of the third.
    assert left_out == paced.caught_up_samples == 100 * 16
    # A unit and the lead wait, as before the gap.
    while paced.take(now_us) is not None:
        pass
    assert paced.held_samples <= unit


def test_speech_without_a_pause_loses_nothing() -> None:
    paced = PacedOutput(16_000, piece_ms=20, lead_ms=40)
    voice = np.full(1_280, 0.2, np.float32)
    assert paced.push(voice, 0) == 0
    while paced.take(10_000_000) is not None:
        pass
    assert paced.push(voice, 10_000_000) == 0 and paced.holes == 1 and paced.caught_up_samples == 0


def test_who_pauses_to_think_is_not_late() -> None:
    paced = PacedOutput(16_000, piece_ms=20, lead_ms=40)
    voice = np.full(1_280, 0.2, np.float32)
    paced.push(voice, 0)
    for at_ms in range(80, 1_600, 80):
        while paced.take(at_ms * 1_000) is not None:
            pass
        # A unit without audio, of a reply that goes on.
        paced.push(np.zeros(0, np.float32), at_ms * 1_000)
    assert paced.push(np.zeros(1_280, np.float32), 1_600_000) == 0
    assert (paced.holes, paced.caught_up_samples) == (0, 0)


def test_what_leaves_at_once_is_heard_when_it_is_due() -> None:
    paced = PacedOutput(RATE_HZ, piece_ms=1_000, lead_ms=1_000, at_once=True)
    paced.push(second(1.04), 5_000_000)
    pieces = [paced.take(5_000_000), paced.take(5_000_000)]
    # The rest that is shorter than a piece does not wait for more.
    assert [len(piece) for piece in pieces if piece is not None] == [RATE_HZ, RATE_HZ // 25]
    assert paced.take(5_000_000) is None
    assert paced.heard_until_us == 5_000_000 + 1_000_000 + 1_040_000
