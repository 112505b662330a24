"""What a caller says is one stream without holes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audio import g711
from transports.twilio.caller import LONGEST_HOLE_MS, CallerLine, pcm_ms


def tone(ms: int) -> bytes:
    wave = 8_000 * np.sin(2 * np.pi * 400 * np.arange(ms * 8) / 8_000)
    return g711.encode(wave.astype(np.int16), g711.Law.MU)


PACKET = tone(20)


@given(st.lists(st.integers(0, LONGEST_HOLE_MS // 20), min_size=1, max_size=30))
def test_it_is_as_long_as_the_call_whatever_was_lost(holes: list[int]) -> None:
    """So many packets are lost in front of each that comes."""
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
    assert power[0] > 1.5 * power[1] > 2 * power[2] > 0 == power[3] == power[4]
    # And the piece that came is as it came.
    assert pcm[-160:].tolist() == g711.decode(PACKET, g711.Law.MU).tolist()


def test_a_piece_that_comes_twice_is_heard_once() -> None:
    line = CallerLine()
    pcm = line.hear(PACKET, 0) + line.hear(PACKET, 0) + line.hear(tone(40), 10) + line.hear(PACKET, 50)
    assert pcm_ms(pcm) == 70 and line.repeated_ms == 30


def test_a_call_that_was_held_is_no_hour_of_silence() -> None:
    line = CallerLine()
    line.hear(PACKET, 0)
    assert pcm_ms(line.hear(PACKET, 3_600_000)) == LONGEST_HOLE_MS + 20
    assert pcm_ms(line.hear(PACKET, 3_600_020)) == 20
