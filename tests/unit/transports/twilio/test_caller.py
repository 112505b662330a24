"""A caller's audio is one stream without gaps."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from parley.audio import g711
from parley.transports.twilio.caller import LONGEST_HOLE_MS, CallerLine, pcm_ms


def tone(ms: int) -> bytes:
    wave = 8_000 * np.sin(2 * np.pi * 400 * np.arange(ms * 8) / 8_000)
    return g711.encode(wave.astype(np.int16), g711.Law.MU)


PACKET = tone(20)


@given(st.lists(st.integers(0, LONGEST_HOLE_MS // 20), min_size=1, max_size=30))
def test_it_is_as_long_as_the_call_whatever_was_lost(holes: list[int]) -> None:
    """The stream is as long as the call, with any number of lost packets before each that comes."""
    line, pcm, at_ms = CallerLine(), b"", 0
    for hole in holes:
        at_ms += 20 * hole
        pcm += line.hear(PACKET, at_ms)
        at_ms += 20
    lost_ms = 20 * sum(holes[1:])
    assert pcm_ms(pcm) == line.heard_ms == 20 * len(holes) + lost_ms
    assert line.filled_ms == lost_ms


def test_what_is_lost_is_heard_softer_and_then_not_at_all() -> None:
    line = CallerLine()
    line.hear(PACKET, 0)
    pcm = np.frombuffer(line.hear(PACKET, 120), "<i2").astype(float)
    power = [float(np.abs(pcm[at : at + 160]).mean()) for at in range(0, len(pcm), 160)]
    assert len(power) == 6
    assert power[0] > 1.5 * power[1] > 4 * power[2] > 0 == power[3] == power[4]
    # The packet itself is unchanged.
    assert pcm[-160:].tolist() == g711.decode(PACKET, g711.Law.MU).tolist()


def test_a_hole_in_a_tone_is_not_heard() -> None:
    line, whole = CallerLine(), tone(400)
    packets = [whole[at : at + 160] for at in range(0, len(whole), 160)]
    kept = [(number, each) for number, each in enumerate(packets) if number not in (7, 12, 13)]
    pcm = b"".join(line.hear(each, 20 * number) for number, each in kept)
    heard, true = (
        np.frombuffer(pcm, "<i2").astype(float),
        g711.decode(whole, g711.Law.MU).astype(float),
    )
    assert len(heard) == len(true)
    assert np.sum((heard - true) ** 2) < 0.01 * np.sum(true**2)


def test_a_piece_that_comes_twice_is_heard_once() -> None:
    line = CallerLine()
    pcm = line.hear(PACKET, 0) + line.hear(PACKET, 0) + line.hear(tone(60), 0) + line.hear(PACKET, 60)
    assert pcm_ms(pcm) == 80 and line.repeated_ms == 40


def test_a_call_that_was_held_is_no_hour_of_silence() -> None:
    line = CallerLine()
    line.hear(PACKET, 0)
    assert pcm_ms(line.hear(PACKET, 3_600_000)) == 20
    assert pcm_ms(line.hear(PACKET, 3_600_020)) == 20
    assert line.resynchronised == 1


def heard_ms(places_ms: list[int]) -> int:
    """Return the length of the audio of a call whose pieces have these times."""
    line = CallerLine()
    return sum(pcm_ms(line.hear(PACKET, at_ms)) for at_ms in places_ms)


def test_one_wrong_place_makes_no_one_deaf() -> None:
    right = [20 * number for number in range(200)]
    for wrong_ms in (999_999_999_999_999, 0, 10_000, 5_000):
        assert abs(heard_ms([*right[:100], wrong_ms, *right[101:]]) - 4_000) <= 20
    # A second ahead is a gap at most, and the next pieces are heard.
    assert 3_000 <= heard_ms([*right[:100], 2_900, *right[101:]]) <= 5_000


def test_places_that_stand_still_or_begin_anew_or_jitter_are_heard_all_the_same() -> None:
    assert heard_ms([0] * 200) >= 4_000 - 120
    assert heard_ms([7_000] * 200) >= 4_000 - 120
    assert heard_ms([20 * (number % 25) for number in range(1_000)]) >= 20_000 - 120
    jitter = [20 * number + (number * 7919) % 19 for number in range(200)]
    assert heard_ms(jitter) == 4_000


@given(st.lists(st.integers(0, 3_000) | st.integers(0, 10**15), min_size=50, max_size=100))
def test_whatever_the_places_are_most_of_the_caller_is_heard(places: list[int]) -> None:
    line = CallerLine()
    for at_ms in places:
        line.hear(PACKET, at_ms)
    assert line.heard_ms - line.filled_ms >= 20 * len(places) * 0.6
