"""Whether a unit of Moshi's carries speech. It says nothing about that: its audio never ends.

Silence is audio too, frame after frame of it, and nothing in the stream is marked. A unit is taken for speech
when its text token is a piece of a word, or when its audio is louder than a threshold; speech ends behind a
run of units with neither (pauses between words are shorter). The last unit of the run is said too, so a
word's end is not cut off. A hum is a short turn, and giving way is an ordinary end: the model does not tell
them from others, so ``BACKCHANNEL`` is never voted, and ``YIELD`` only when the bot must listen.
"""

import numpy as np

SILENT_DBFS = -120.0


def level_dbfs(audio: np.ndarray) -> float:
    """Root mean square of a unit, float32, (samples,), in dB of full scale; never below ``SILENT_DBFS``."""
    if not len(audio):
        return SILENT_DBFS
    mean = float(np.mean(np.square(audio, dtype=np.float64)))
    return max(SILENT_DBFS, 10 * np.log10(mean)) if mean > 0 else SILENT_DBFS


class SpeechGate:
    """Decides unit by unit.

    Args:
        speech_dbfs: louder is speech.
        hangover_units: speech ends in the last of so many units in a row with neither words nor sound.
    """

    def __init__(self, *, speech_dbfs: float, hangover_units: int) -> None:
        self._speech_dbfs, self._hangover_units = speech_dbfs, hangover_units
        self._quiet_units = 0
        self._speaks = False

    @property
    def speaks(self) -> bool:
        """Whether speech has begun and not ended."""
        return self._speaks

    def on_unit(self, *, is_word: bool, dbfs: float) -> tuple[bool, bool]:
        """The next unit.

        Args:
            is_word: its text token is a piece of a word.
            dbfs: of its audio.

        Returns:
            Whether it is said, and whether speech ends with it.
        """
        if is_word or dbfs > self._speech_dbfs:
            self._speaks, self._quiet_units = True, 0
            return True, False
        if not self._speaks:
            return False, False
        self._quiet_units += 1
        self._speaks = self._quiet_units < self._hangover_units
        return True, not self._speaks

    def silence(self) -> bool:
        """Speech is given up. Whether there was any."""
        spoke, self._speaks, self._quiet_units = self._speaks, False, 0
        return spoke
