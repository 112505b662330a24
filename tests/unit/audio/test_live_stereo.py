"""Two live sides as stereo blocks: places, jitter, silence and bounds."""

import numpy as np

from parley.audio.live_stereo import BLOCK_MS, CATCH_UP_BLOCKS, LEAD_MS, MOST_MS, LiveStereo
from parley.core.media import ms_to_samples

RATE_HZ = 16_000
BLOCK = ms_to_samples(BLOCK_MS, RATE_HZ)
LEFT, RIGHT = 0, 1


def ramp(samples: int) -> np.ndarray:
    """Return samples of which no two neighbours are equal and none is 0."""
    return (np.arange(samples) % 30_000 + 1).astype("<i2")


def taken(stereo: LiveStereo, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    pcm = b"".join(stereo.take() for _ in range(blocks))
    both = np.frombuffer(pcm, "<i2").reshape(-1, 2)
    assert len(both) == blocks * BLOCK
    return both[:, LEFT], both[:, RIGHT]


def test_each_side_is_on_its_channel_and_the_other_one_is_silent():
    stereo, said = LiveStereo(RATE_HZ), ramp(4 * BLOCK)
    stereo.feed(LEFT, said.tobytes(), RATE_HZ)
    left, right = taken(stereo, 4)
    assert (left == said).all() and not right.any()
    stereo.feed(RIGHT, said.tobytes(), RATE_HZ)
    left, right = taken(stereo, 4)
    assert (right == said).all() and not left.any()


def test_pieces_that_come_late_by_less_than_the_lead_leave_no_gap():
    stereo, said = LiveStereo(RATE_HZ), ramp(12 * BLOCK)
    heard = []
    # As many of them as there are blocks at the beginning and at the end; between, a stall and its backlog.
    for count in (1, 1, 1, 0, 2, 1, 1, 0, 2, 1, 1, 1, 0, 0):
        piece, said_left = said[: count * BLOCK], said[count * BLOCK :]
        if count:
            stereo.feed(LEFT, piece.tobytes(), RATE_HZ)
        said = said_left
        heard.append(taken(stereo, 1)[0])
    sounds = np.concatenate(heard)
    sounds = sounds[np.flatnonzero(sounds)[0] : np.flatnonzero(sounds)[-1] + 1]
    assert (sounds == ramp(12 * BLOCK)).all()


def test_a_sound_that_is_shorter_than_the_lead_is_heard_after_the_next_block():
    stereo, said = LiveStereo(RATE_HZ), ramp(ms_to_samples(LEAD_MS, RATE_HZ) // 4)
    stereo.feed(LEFT, said.tobytes(), RATE_HZ)
    left, _ = taken(stereo, 3)
    assert not left[:BLOCK].any()
    assert (left[BLOCK : BLOCK + len(said)] == said).all() and not left[BLOCK + len(said) :].any()


def test_a_side_that_is_far_ahead_loses_the_oldest():
    stereo, most = LiveStereo(RATE_HZ), ms_to_samples(MOST_MS, RATE_HZ)
    said = ramp(most + BLOCK)
    for start in range(0, len(said), BLOCK):
        stereo.feed(RIGHT, said[start : start + BLOCK].tobytes(), RATE_HZ)
    _, right = taken(stereo, MOST_MS // BLOCK_MS + 1)
    assert (right[:most] == said[BLOCK:]).all() and not right[most:].any()


def test_a_side_that_a_stall_made_late_is_in_time_again():
    stereo, said = LiveStereo(RATE_HZ), ramp(BLOCK)
    stereo.feed(LEFT, ramp(14 * BLOCK).tobytes(), RATE_HZ)
    for _ in range(2 * CATCH_UP_BLOCKS):
        stereo.feed(LEFT, said.tobytes(), RATE_HZ)
        taken(stereo, 1)
    # What is said from now on is heard after the lead.
    stereo.feed(LEFT, np.full(BLOCK, 31_000, dtype="<i2").tobytes(), RATE_HZ)
    later = []
    for _ in range(4):
        later.append(taken(stereo, 1)[0])
        stereo.feed(LEFT, said.tobytes(), RATE_HZ)
    place_ms = np.flatnonzero(np.concatenate(later) == 31_000)[0] * 1_000 // RATE_HZ
    assert place_ms <= LEAD_MS


def test_pieces_of_a_second_are_not_cut():
    stereo, second = LiveStereo(RATE_HZ), ramp(10 * BLOCK)
    heard = []
    for block in range(60):
        if block % 10 == 0 and block < 50:
            stereo.feed(RIGHT, second.tobytes(), RATE_HZ)
        heard.append(taken(stereo, 1)[1])
    assert np.count_nonzero(np.concatenate(heard)) == 5 * len(second)


def test_another_rate_is_converted_also_in_the_middle():
    stereo = LiveStereo(RATE_HZ)
    for rate_hz in (8_000, 24_000):
        tone = 8_000 * np.sin(2 * np.pi * 440 * np.arange(rate_hz // 2) / rate_hz)
        stereo.feed(LEFT, tone.astype("<i2").tobytes(), rate_hz)
    left, _ = taken(stereo, 10)
    spectrum = np.abs(np.fft.rfft(left))
    assert np.fft.rfftfreq(len(left), 1 / RATE_HZ)[spectrum.argmax()] == 440


def test_what_waits_is_dropped_on_request():
    stereo = LiveStereo(RATE_HZ)
    stereo.feed(LEFT, ramp(4 * BLOCK).tobytes(), RATE_HZ)
    stereo.clear()
    left, right = taken(stereo, 3)
    assert not left.any() and not right.any()
