"""Estimation of the delay and clock drift of the echo between loudspeaker and microphone.

Both signals are resampled to 4 kHz and correlated over the last second and more. Each frequency has the same
weight, so that a voice's pitch does not look like an echo of itself. This is GCC-PHAT: Knapp and Carter, "The
generalized correlation method for estimation of time delay", IEEE Trans. ASSP 24 (1976). The highest peak is
the direct sound. It is accepted when it stands out and stays in place. Two clocks that drift apart move it
steadily: the slope of its place, between samples, is the drift.

Inputs: frames of playback, at the places of the microphone's frames and without any delay, and the
microphone's frames. Output: an estimate, about fifteen times a second. Each costs some FFTs of 4096 points;
the frames in between cost next to nothing.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from parley.audio.resample import Resampler

RATE_HZ = 4_000
SIZE = 4_096
NEAR_SAMPLES = 1_024
HOP_SAMPLES = 256
LOW_HZ, HIGH_HZ = 200.0, 1_800.0
# Factor by which older correlations decay per hop: they halve in 0.5 s.
FORGET = 0.915
# Mean square below which a signal is silence: -60 dBFS.
SILENCE_POWER = 1e-6
# The microphone has a signal when it is this far above its noise, which is the lowest level measured and
# rises from there by 3 dB a second. Speech must not raise it: audio that counts as noise is ignored.
ABOVE_NOISE, NOISE_RISE, LEAST_POWER = 3.0, 1.045, 1e-9
# A peak is the echo when it is this many times the RMS of all lags (noise alone reaches 4),
STANDS_OUT = 9.0
# and for this many hops within a millisecond.
STEADY_HOPS = 4
STEADY_SAMPLES = 4.0
# Least and greatest duration of places from which the slope is computed.
DRIFT_FROM_S = 3.0
DRIFT_OVER_S = 20.0
# Crystals are within 100 ppm each.
MOST_PPM = 400.0


@dataclass(frozen=True, slots=True)
class EchoDelay:
    """Estimate of the echo.

    Attributes:
        delay_ms: delay of its first strong sound.
        stands_out: height of the peak over the RMS of all lags.
        drift_ppm: rate at which the delay grows; None while unknown.
    """

    delay_ms: float
    stands_out: float
    drift_ppm: float | None


class DelayTracker:
    """Tracker of the echo's delay on one call. Not thread-safe.

    Args:
        rate_hz: rate of the frames.
        longest_ms: longest delay of the echo; at most 768.
    """

    def __init__(self, rate_hz: int, *, longest_ms: int = 700) -> None:
        if not 0 < longest_ms <= (SIZE - NEAR_SAMPLES) * 1000 // RATE_HZ:
            raise ValueError(f"longest_ms {longest_ms}")
        self._longest = longest_ms * RATE_HZ // 1000
        self._to_slow = Resampler(rate_hz, RATE_HZ), Resampler(rate_hz, RATE_HZ)
        self._far = np.zeros(SIZE, dtype=np.float32)
        self._near = np.zeros(SIZE, dtype=np.float32)
        # Frames are resampled to 4 kHz a hop at a time, which costs a sixth of doing so for every frame.
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._hop = HOP_SAMPLES * rate_hz // RATE_HZ
        self._fresh = 0
        self._seen = 0
        self._window = np.hanning(NEAR_SAMPLES).astype(np.float32)
        hz = np.fft.rfftfreq(SIZE, 1 / RATE_HZ)
        self._band = ((hz >= LOW_HZ) & (hz <= HIGH_HZ)).astype(np.float32)
        self.reset()

    def reset(self) -> None:
        """Discard measurements, because the echo path has changed."""
        self._cross = np.zeros(SIZE // 2 + 1, dtype=np.complex64)
        self._places: deque[tuple[float, float]] = deque()
        self._steady = 0
        self._last: float | None = None
        self._noise = 1.0

    def shifted(self, earlier_s: float) -> None:
        """Correct for places of the microphone that were too late by ``earlier_s``; measurements are kept."""
        earlier = earlier_s * RATE_HZ
        whole = min(round(earlier), SIZE)
        self._far[whole:] = self._far[: SIZE - whole].copy()
        self._far[:whole] = 0.0
        if whole > SIZE - self._longest:
            # A lag below zero would wrap to the other end, into the range that is searched.
            self.reset()
            return
        self._cross *= np.exp(2j * np.pi * np.arange(SIZE // 2 + 1) * earlier / SIZE).astype(np.complex64)
        self._places = deque((at_s, place - earlier) for at_s, place in self._places)
        if self._last is not None:
            self._last -= earlier

    def feed(self, far: np.ndarray, near: np.ndarray) -> EchoDelay | None:
        """Process a frame; return a new estimate when there is a reliable one.

        far, near: float32, (samples,), in [-1, 1], of the same length.
        """
        self._waiting.append((far, near))
        self._fresh += len(far)
        if self._fresh < self._hop:
            return None
        fars, nears = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting.clear()
        self._fresh = 0
        slow_far, slow_near = self._to_slow[0].feed(fars), self._to_slow[1].feed(nears)
        count = len(slow_far)
        self._far[:-count], self._near[:-count] = self._far[count:], self._near[count:]
        self._far[-count:], self._near[-count:] = slow_far, slow_near
        self._seen += count
        return self._estimate()

    def _estimate(self) -> EchoDelay | None:
        near = self._near[-NEAR_SAMPLES:]
        if np.vdot(self._far, self._far) < SILENCE_POWER * SIZE / 4:
            return None
        heard = float(np.vdot(near, near)) / NEAR_SAMPLES
        self._noise = max(LEAST_POWER, min(heard, self._noise * NOISE_RISE))
        if heard < ABOVE_NOISE * self._noise:
            return None
        padded = np.zeros(SIZE, dtype=np.float32)
        padded[-NEAR_SAMPLES:] = near * self._window
        cross = np.conj(np.fft.rfft(self._far)) * np.fft.rfft(padded)
        self._cross *= FORGET
        self._cross += self._band * cross / np.maximum(np.abs(cross), 1e-9)
        lags = np.fft.irfft(self._cross, SIZE)
        place = int(np.argmax(lags[1 : self._longest])) + 1
        stands_out = float(lags[place] / np.sqrt(np.mean(lags * lags)))
        before, peak, after = lags[place - 1 : place + 2]
        exact = place + 0.5 * float((before - after) / (before - 2 * peak + after))
        steady = self._last is not None and abs(exact - self._last) < STEADY_SAMPLES
        self._last = exact
        if stands_out < STANDS_OUT or not steady:
            self._steady = 0 if not steady else self._steady
            return None
        self._steady += 1
        if self._steady < STEADY_HOPS:
            return None
        return EchoDelay(1000 * exact / RATE_HZ, stands_out, self._drift_ppm(exact))

    def _drift_ppm(self, exact: float) -> float | None:
        now_s = self._seen / RATE_HZ
        if self._places and abs(exact - self._places[-1][1]) > STEADY_SAMPLES:
            self._places.clear()
        self._places.append((now_s, exact))
        while now_s - self._places[0][0] > DRIFT_OVER_S:
            self._places.popleft()
        if now_s - self._places[0][0] < DRIFT_FROM_S:
            return None
        seconds, places = np.array(self._places).T
        slope = np.polyfit(seconds - seconds.mean(), places, 1)[0] / RATE_HZ
        return float(np.clip(slope * 1e6, -MOST_PPM, MOST_PPM))
