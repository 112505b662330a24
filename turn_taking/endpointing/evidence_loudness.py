"""Measure how the loudness moves at the end of speech: speakers grow softer as they yield the turn.

Input: the last seconds of the caller's audio. Output: the slope of the level over the last ``FINAL_MS`` of
the voice, in dB per second. Voices are softer before a change of speaker than before the same speaker
continues (Gravano and Hirschberg, Computer Speech and Language 25, 2011; level is a cue to listeners too:
Niebuhr, Görs and Graupe, SIGdial 2013). The slope is within one stretch of one voice, so that it does not
depend on the microphone or its distance.

Pure numpy; about a millisecond for half a second of audio.
"""

import numpy as np

from parley.turn_taking.endpointing.evidence_pitch import FRAME_MS, HOP_MS, last_voiced, robust_slope

# Length of the last word: over less, single sounds decide.
FINAL_MS = 400
LEAST_VOICED_FRAMES = 8


def loudness_slope_db_s(audio: np.ndarray, hertz: np.ndarray, rate_hz: int) -> float | None:
    """Return how fast the voice grows louder at its end (softer: below 0); None when too little is voiced.

    audio: float32, (samples,), in [-1, 1]; silence after the voice does not matter.
    hertz: float64, (frames,), its pitch from ``evidence_pitch.pitch_hz``, NaN where nothing is voiced.
    """
    voiced = last_voiced(hertz, FINAL_MS, least=LEAST_VOICED_FRAMES)
    if voiced is None:
        return None
    frame, hop = FRAME_MS * rate_hz // 1000, HOP_MS * rate_hz // 1000
    frames = np.lib.stride_tricks.sliding_window_view(audio.astype(np.float64), frame)[::hop][voiced]
    levels = 10 * np.log10(np.mean(frames * frames, axis=1))
    return robust_slope(voiced.astype(float), levels) * 1_000 / HOP_MS
