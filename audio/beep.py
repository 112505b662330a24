"""The beep of an answering machine: one steady tone, found in the sound of a telephone line.

A tone is one peak that holds nearly all of the energy between 200 and 3400 Hz and stays where it is; a
voice has a peak for each of its harmonics, and none of them stays. The tones of keys have two peaks, a
carrier's announcement three short ones in a row, of which each is a beep to this.

Pure: samples in, the places of beeps that have ended out. Time is the sample count.
"""

from dataclasses import dataclass

import numpy as np

HOP_MS, WINDOW_MS = 20, 40
LOW_HZ, HIGH_HZ = 350.0, 2_500.0
BAND_HZ = 200.0, 3_400.0
# Half of a Hann window's main lobe at this length is 50 Hz.
LOBE_HZ = 60.0
# Of the energy of the band; a sine through mu-law has 0.99, a sung vowel 0.4 to 0.7.
LEAST_SHARE = 0.85
# A sine that is kept in place by an oscillator moves by less than a hertz; noise moves the peak by more.
STEADY_HZ = 12.0
# Nothing that is meant to be heard is softer.
LEAST_DBFS = -45.0


@dataclass(frozen=True, slots=True)
class Beep:
    """One that has ended.

    Attributes:
        start_ms, end_ms: of the line.
        hz: how high.
    """

    start_ms: int
    end_ms: int
    hz: float


class BeepDetector:
    """Of one line.

    Args:
        rate_hz: of the samples.
        shortest_ms: a shorter tone is none; what is measured has up to a window more than what sounds.
        longest_ms: of a longer one too: a line that is engaged, or a fax.
    """

    def __init__(self, rate_hz: int, *, shortest_ms: int = 160, longest_ms: int = 3_000) -> None:
        self._hop = rate_hz * HOP_MS // 1000
        self._window = rate_hz * WINDOW_MS // 1000
        self._shape = np.hanning(self._window)
        self._size = 1 << (2 * self._window - 1).bit_length()
        hertz = np.fft.rfftfreq(self._size, 1 / rate_hz)
        self._hertz = hertz
        self._in_band = (hertz >= BAND_HZ[0]) & (hertz <= BAND_HZ[1])
        self._shortest_ms, self._longest_ms = shortest_ms, longest_ms
        self._held = np.zeros(0, np.float32)
        self._at_ms = 0
        self._start_ms = self._end_ms = 0
        self._hz: float | None = None

    @property
    def is_on(self) -> bool:
        """A tone sounds that may become a beep."""
        return self._hz is not None and self._end_ms - self._start_ms >= self._shortest_ms

    def feed(self, samples: np.ndarray) -> list[Beep]:
        """More of the line.

        samples: float32, (any,), in [-1, 1].
        """
        held = np.concatenate((self._held, samples)) if len(self._held) else samples
        beeps: list[Beep] = []
        while len(held) >= self._window:
            beep = self._step(self._tone_hz(held[: self._window]))
            if beep is not None:
                beeps.append(beep)
            held = held[self._hop :]
            self._at_ms += HOP_MS
        self._held = np.array(held, np.float32)
        return beeps

    def _step(self, hz: float | None) -> Beep | None:
        if hz is not None and self._hz is not None and abs(hz - self._hz) <= STEADY_HZ:
            self._end_ms = self._at_ms + WINDOW_MS
            return None
        over, self._hz = self._hz, hz
        long_ms = self._end_ms - self._start_ms
        beep = None
        if over is not None and self._shortest_ms <= long_ms <= self._longest_ms:
            beep = Beep(self._start_ms, self._end_ms, over)
        self._start_ms, self._end_ms = self._at_ms, self._at_ms + WINDOW_MS
        return beep

    def _tone_hz(self, window: np.ndarray) -> float | None:
        """How high the only tone is; None where there is another sound, or none."""
        level = float(np.sqrt(np.mean(window**2)))
        if level < 10 ** (LEAST_DBFS / 20):
            return None
        power = np.abs(np.fft.rfft(window * self._shape, self._size)) ** 2 * self._in_band
        peak = float(self._hertz[int(np.argmax(power))])
        if not LOW_HZ <= peak <= HIGH_HZ:
            return None
        near = np.abs(self._hertz - peak) <= LOBE_HZ
        return peak if power[near].sum() >= LEAST_SHARE * power.sum() else None
