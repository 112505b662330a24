"""Speech gate: decides whether a unit of Moshi's audio, which never ends, carries speech.

Silence is audio too, and no unit is marked. A unit counts as speech when its text token is a piece of a word,
or when its audio is louder than a threshold. Speech ends after a run of units with neither (pauses between
words are shorter). The last unit of the run is sent too, so that a word's end is not cut off. A backchannel
is a short turn, and yielding is an ordinary end: the model does not distinguish them. ``BACKCHANNEL`` is
therefore never voted, and ``YIELD`` only when the bot must listen.
"""

import numpy as np

SILENT_DBFS = -120.0


def level_dbfs(audio: np.ndarray) -> float:
    """Return the RMS of a unit, float32, (samples,), in dB of full scale; never below ``SILENT_DBFS``."""
    if not len(audio):
        return SILENT_DBFS
    mean = float(np.mean(np.square(audio, dtype=np.float64)))
    return max(SILENT_DBFS, 10 * np.log10(mean)) if mean > 0 else SILENT_DBFS


class SpeechGate:
    """Gate that decides unit by unit.

    Args:
        speech_dbfs: level above which audio is speech.
        hangover_units: number of units in a row with neither words nor sound, the last of which ends speech.
    """

    def __init__(self, *, speech_dbfs: float, hangover_units: int) -> None:
        self._speech_dbfs, self._hangover_units = speech_dbfs, hangover_units
        self._quiet_units = 0
        self._speaks = False

    @property
    def speaks(self) -> bool:
        """True when speech has begun and not ended."""
        return self._speaks

    def on_unit(self, *, is_word: bool, dbfs: float) -> tuple[bool, bool]:
        """Process the next unit.

        Args:
            is_word: its text token is a piece of a word.
            dbfs: level of its audio.

        Returns:
            Two booleans: the unit is sent; speech ends with it.
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
        """Abandon speech; return whether there was any."""
        spoke, self._speaks, self._quiet_units = self._speaks, False, 0
        return spoke
