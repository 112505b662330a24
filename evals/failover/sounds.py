"""Words that a program can recognise in the audio of a call: each one is two tones at a time. Pure.

The voices of the measured calls speak them, the service and the embedded one after it, so that a word that
is heard twice, or never, is seen in the recording whichever voice has said it. Any other word is a third
tone. Opus at the rates of a call keeps the tones apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

WORDS = (
    "amber basil cedar daisy ember fennel garlic hazel indigo jasmine kettle lemon maple nutmeg olive pepper "
    "quartz radish saffron thyme umber velvet walnut yarrow acorn birch clover dahlia elder fern ginger "
    "heron iris juniper kiwi laurel mango nettle orchid poppy quince rowan sage tulip urchin violet willow "
    "zinnia almond badger cactus dolphin emerald falcon gazelle hamster iguana jaguar koala lobster magpie "
    "narwhal otter panther"
).split()
LOW_HZ = tuple(range(500, 1_300, 100))
HIGH_HZ = tuple(range(1_500, 3_100, 200))
OTHER_HZ = 3_400
# As long as an English word of two syllables: a voice that breaks off in a word whose end is not known yet is
# continued by an estimate of it.
WORD_MS, FADE_MS = 360, 10
LEVEL = 0.25
# The recording is read in steps of this; the spectrum of a step is that of the audio around it.
STEP_MS, AROUND_MS = 20, 40
# Root mean square of a sounding step, and the share of its power that the tones of its word have.
AUDIBLE, SHARE = 0.02, 0.6
_BAND_HZ = 40


@dataclass(frozen=True, slots=True)
class Sounding:
    """Stretch of one word in a recording, or of a sound that is no word.

    Attributes:
        word: the word; empty for another one, and for sound that is none.
        start_ms: its beginning.
        end_ms: its end.
    """

    word: str
    start_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        """Length."""
        return self.end_ms - self.start_ms


def plain(word: str) -> str:
    """Return a word without its marks."""
    return "".join(char for char in word.lower() if char.isalnum())


@cache
def sound_of(word: str, rate_hz: int) -> bytes:
    """Return the sound of a word: 16-bit mono, ``WORD_MS`` long."""
    samples = WORD_MS * rate_hz // 1000
    at_s = np.arange(samples) / rate_hz
    named = plain(word)
    if named in WORDS:
        place = WORDS.index(named)
        pair: tuple[int, ...] = LOW_HZ[place // len(HIGH_HZ)], HIGH_HZ[place % len(HIGH_HZ)]
    else:
        pair = (OTHER_HZ,)
    wave = LEVEL * sum(np.sin(2 * np.pi * hz * at_s) for hz in pair)
    fade = FADE_MS * rate_hz // 1000
    edge = np.minimum(1.0, np.arange(samples) / fade)
    return np.rint(wave * edge * edge[::-1] * 32_767).astype("<i2").tobytes()


def recognised(pcm: np.ndarray, rate_hz: int) -> list[Sounding]:
    """Return the words and other sounds of a recording in their order.

    Args:
        pcm: int16, (samples,).
        rate_hz: its rate.
    """
    step, around = STEP_MS * rate_hz // 1000, AROUND_MS * rate_hz // 1000
    audio: np.ndarray = np.concatenate((pcm.astype(np.float32) / 32_768, np.zeros(around, np.float32)))
    window: np.ndarray = np.hanning(around).astype(np.float32)
    found: list[Sounding] = []
    for place in range(pcm.size // step):
        start = place * step
        heard = audio[start : start + step]
        if float(np.sqrt(np.mean(heard**2))) < AUDIBLE:
            continue
        first = max(0, start - (around - step) // 2)
        word = _word_of(audio[first : first + around] * window, rate_hz)
        start_ms = place * STEP_MS
        if found and found[-1].word == word and found[-1].end_ms == start_ms:
            found[-1] = Sounding(word, found[-1].start_ms, start_ms + STEP_MS)
        else:
            found.append(Sounding(word, start_ms, start_ms + STEP_MS))
    return found


def _word_of(piece: np.ndarray, rate_hz: int) -> str:
    power = np.abs(np.fft.rfft(piece)) ** 2
    hz = np.fft.rfftfreq(piece.size, 1 / rate_hz)

    def band(center: int) -> float:
        return float(power[np.abs(hz - center) <= _BAND_HZ].sum())

    low, high = [band(each) for each in LOW_HZ], [band(each) for each in HIGH_HZ]
    strongest = min(max(low), max(high))
    # Both tones of a word are as strong as each other; the edge between two words is neither.
    if max(low) + max(high) < SHARE * float(power.sum()) or strongest < 0.2 * max(*low, *high):
        return ""
    return WORDS[low.index(max(low)) * len(HIGH_HZ) + high.index(max(high))]


def lengths_ms(heard: Sequence[Sounding]) -> dict[str, int]:
    """Return how long each word sounds, in all its places."""
    found: dict[str, int] = {}
    for each in heard:
        if each.word:
            found[each.word] = found.get(each.word, 0) + each.length_ms
    return found
