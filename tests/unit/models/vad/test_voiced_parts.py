import numpy as np

from parley.models.vad.silero import SileroVad
from parley.models.vad.voiced_parts import MARGIN_MS, voiced_parts
from tests.voices import RATE_HZ, say

HALF_SECOND = bytes(RATE_HZ)


def parts_of(pcm: bytes) -> list[tuple[int, int]]:
    return voiced_parts(SileroVad(), pcm, confidence=0.7, start_ms=128, least_db=-60)


def test_each_sentence_between_pauses_is_a_part():
    first, second = say("what are your opening hours"), say("where is the station")
    pcm = HALF_SECOND + first + 4 * HALF_SECOND + second
    [one, two] = parts_of(pcm)
    margin = RATE_HZ * (MARGIN_MS + 100) // 1000
    begins = len(HALF_SECOND + first + 4 * HALF_SECOND) // 2
    assert RATE_HZ // 2 - margin <= one[0] and one[1] <= begins - RATE_HZ
    assert begins - margin <= two[0] and two[1] <= len(pcm) // 2
    # Nothing of either is cut off.
    assert one[0] <= RATE_HZ // 2 + 1_600 and two[1] >= len(pcm) // 2 - 4_000


def test_parts_of_many_sentences_do_not_overlap():
    parts = parts_of((say("what are your opening hours") + HALF_SECOND) * 5)
    assert len(parts) == 5
    assert all(before[1] <= after[0] for before, after in zip(parts, parts[1:], strict=False))


def test_a_voice_that_the_end_cuts_off_is_a_part():
    pcm = say("what are your opening hours on saturday")
    cut = pcm[: len(pcm) * 2 // 3 // 2 * 2]
    assert parts_of(cut)[-1][1] == len(cut) // 2


def test_silence_and_noise_and_nothing_have_no_part():
    noise = (np.random.default_rng(7).normal(0, 300, 3 * RATE_HZ)).astype("<i2").tobytes()
    assert [parts_of(each) for each in (bytes(64_000), noise, b"", b"\0\0")] == [[], [], [], []]
