"""Detection of the beep of an answering machine: one steady tone on a telephone line.

A tone is one peak that holds nearly all of the energy between 200 and 3400 Hz and does not move. A voice has
a peak for each of its harmonics, and none of them stays in place. Keypad tones have two peaks. The
announcement of a carrier has three short tones in a row, and each is detected as a beep.

Pure: takes samples, returns the positions of beeps that have ended. Time is the sample count.
"""

from dataclasses import dataclass

import numpy as np

HOP_MS, WINDOW_MS = 20, 40
LOW_HZ, HIGH_HZ = 350.0, 2_500.0
BAND_HZ = 200.0, 3_400.0
# Half of a Hann window's main lobe at this length is 50 Hz.
LOBE_HZ = 60.0
# Share of the energy of the band; a sine through mu-law has 0.99, a sung vowel 0.4 to 0.7.
LEAST_SHARE = 0.85
# A sine from an oscillator moves by less than a hertz; noise moves the peak by more than this.
STEADY_HZ = 12.0
# No tone that is meant to be audible is softer.
LEAST_DBFS = -45.0


@dataclass(frozen=True, slots=True)
class Beep:
    """Beep that has ended.

    Attributes:
        start_ms, end_ms: position on the line.
        hz: frequency.
    """

    start_ms: int
    end_ms: int
    hz: float


class BeepDetector:
    """Beep detector of one line.

    Args:
        rate_hz: rate of the samples.
        shortest_ms: shorter tones are ignored; a measured tone is up to a window longer than the sound.
        longest_ms: longer tones are ignored: an engaged line, or a fax.
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
        """True while a tone sounds that may become a beep."""
        return self._hz is not None and self._end_ms - self._start_ms >= self._shortest_ms

    def feed(self, samples: np.ndarray) -> list[Beep]:
        """Process more of the line; return the beeps that ended in it.

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
        """Return the frequency of the only tone; None for any other sound or for silence."""
        level = float(np.sqrt(np.mean(window**2)))
        if level < 10 ** (LEAST_DBFS / 20):
            return None
        power = np.abs(np.fft.rfft(window * self._shape, self._size)) ** 2 * self._in_band
        peak = float(self._hertz[int(np.argmax(power))])
        if not LOW_HZ <= peak <= HIGH_HZ:
            return None
        near = np.abs(self._hertz - peak) <= LOBE_HZ
        return peak if power[near].sum() >= LEAST_SHARE * power.sum() else None
