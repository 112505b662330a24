"""Embedded voice of the measured servers: it speaks the words of ``sounds``."""

import time
from collections.abc import Callable

from parley.core.media import WordTime
from parley.core.strict_model import StrictModel
from parley.evals.failover.sounds import WORD_MS, sound_of
from parley.language.text_normalization import plain_words
from parley.models.tts import SpeechPiece

RATE_HZ = 24_000
# A neural voice on two cores has its first sound after this time.
FIRST_S = 0.03


class SoundingWordsSettings(StrictModel):
    """Settings of the voice: none."""


class SoundingWordsTts:
    """Voice whose words a program recognises.

    Args:
        settings: none.
    """

    rate_hz = RATE_HZ

    def __init__(self, settings: SoundingWordsSettings) -> None:
        del settings

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        """Speak ``text`` into ``sink``, as ``TextToSpeech.synthesize``."""
        time.sleep(FIRST_S)
        for place, word in enumerate(plain_words(text)):
            times = WordTime(word.written, place * WORD_MS, (place + 1) * WORD_MS)
            if not sink(SpeechPiece(sound_of(word.written, RATE_HZ), (times,))):
                return False
        return True
