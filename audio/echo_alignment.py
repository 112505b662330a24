"""Alignment of the echo reference: removes delay and clock drift before the canceller.

Every microphone frame has a place on the session's clock. Its reference frame lies ``delay`` earlier and is
read at the pace of the microphone's clock. Within ``REACH_MS`` the canceller finds the echo itself, and the
reference stays where it is: after every jump the canceller has to adapt anew. Beyond that the reference jumps
to ``LEAD_MS`` before the echo. Drift is removed by reading a little faster or slower, without a jump.

Until the delay is known, the microphone's signal cannot be distinguished from echo (``UNKNOWN``). The
exception is a call without echo (``NO_ECHO``), which is assumed in two cases. In the first, something loud
was played, its echo is overdue and the microphone was silent. In the second, much was played without a trace
of it at the microphone. A wrong assumption is corrected when the echo is found.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from parley.audio.echo_delay import DelayTracker, EchoDelay
from parley.audio.far_end import FarEnd, NearAxis

# Delay of the echo relative to its reference that the canceller covers.
REACH_MS = (3.0, 30.0)
LEAD_MS = 10.0
# Time over which an offset left by the drift is removed.
SLEW_S = 4.0
# Two clocks that differ by less count as one: the estimate is no better, and the canceller follows that
# itself.
SAME_CLOCK_PPM = 5.0
# Duration of sound without a trace of it after which no echo is assumed.
NO_ECHO_MS = 2_000
# An echo that is this much later than expected is overdue.
OVERDUE_MS = 60
# Duration and power (-30 dBFS) of playback whose echo would be noticed at -60 dBFS, 30 dB below it.
LOUD_MS, LOUD_POWER, HEARD_POWER = 30, 1e-3, 1e-6
# Mean square above which a frame of the reference counts as sound: -50 dBFS.
SOUND_POWER = 1e-5


class Knowledge(Enum):
    """State of the knowledge about the echo."""

    UNKNOWN = "unknown"
    ECHO = "echo"
    NO_ECHO = "no echo"


@dataclass(frozen=True, slots=True)
class Aligned:
    """Reference of one frame.

    Attributes:
        far: float32, (frame_samples,).
        moved: it does not continue the previous frame.
        played_lately: audio was played that may still be audible.
    """

    far: np.ndarray
    moved: bool
    played_lately: bool


class EchoAlignment:
    """Echo alignment of one call. Used by one thread at a time.

    Args:
        rate_hz: rate of both signals.
        longest_ms: longest delay of the echo.
        expected_ms: initial delay; 0 when unknown.

    Attributes:
        knowledge: state of the knowledge about the echo.
        echo: last estimate; None before the first.
    """

    def __init__(self, rate_hz: int, *, longest_ms: int = 700, expected_ms: float = 0.0) -> None:
        self._rate_hz = rate_hz
        self._far = FarEnd(rate_hz, keep_ms=longest_ms + 800)
        self._near = NearAxis(rate_hz)
        self._tracker = DelayTracker(rate_hz, longest_ms=longest_ms)
        self._longest_ms = longest_ms
        self._delay = expected_ms * rate_hz / 1000
        self._step = 1.0
        # Delay of the echo relative to its reference when it was found, in samples.
        self._behind: float | None = None
        self._overdue_ms = LOUD_MS + (expected_ms or longest_ms) + OVERDUE_MS
        self._sounded_ms = self._loud_ms = self._waited_ms = 0.0
        self._heard = False
        self._silent_ms = float(longest_ms)
        self._moved = False
        self.knowledge = Knowledge.UNKNOWN
        self.echo: EchoDelay | None = None

    def played(self, samples: np.ndarray, at_us: int) -> None:
        """Record audio that was played, as ``FarEnd.played`` does."""
        self._far.played(samples, at_us)

    def arrived(self, samples: int, at_us: int) -> int:
        """Record a piece of the microphone's stream; return the place of its first sample."""
        arrival = self._near.arrived(samples, at_us)
        if arrival.parted:
            self._forget()
        elif arrival.earlier:
            self._shift(arrival.earlier)
        return arrival.place

    def frame(self, near: np.ndarray, place: int) -> Aligned:
        """Return the reference of a frame of the microphone that begins at ``place``.

        near: float32, (samples,), in [-1, 1].
        """
        count = len(near)
        played = self._far.read(place, count)
        self._note_sound(played)
        if self.knowledge is Knowledge.UNKNOWN and self._has_no_echo(played, near):
            self.knowledge = Knowledge.NO_ECHO
        estimate = self._tracker.feed(played, near)
        if estimate is not None:
            self._steer(estimate)
        far = self._far.read(place - self._delay, count, self._step)
        self._delay += count * (1 - self._step)
        moved, self._moved = self._moved, False
        return Aligned(far, moved, self._silent_ms < self._longest_ms)

    def _note_sound(self, played: np.ndarray) -> None:
        frame_ms = 1000 * len(played) / self._rate_hz
        if np.vdot(played, played) >= SOUND_POWER * len(played):
            self._sounded_ms += frame_ms
            self._silent_ms = 0.0
        else:
            self._silent_ms += frame_ms

    def _has_no_echo(self, played: np.ndarray, near: np.ndarray) -> bool:
        frame_ms = 1000 * len(played) / self._rate_hz
        if np.vdot(played, played) >= LOUD_POWER * len(played):
            self._loud_ms += frame_ms
        if self._loud_ms:
            self._waited_ms += frame_ms
            self._heard |= bool(np.vdot(near, near) >= HEARD_POWER * len(near))
        overdue = self._loud_ms >= LOUD_MS and self._waited_ms >= self._overdue_ms
        return (overdue and not self._heard) or self._sounded_ms >= NO_ECHO_MS

    def _steer(self, estimate: EchoDelay) -> None:
        self.echo = estimate
        self.knowledge = Knowledge.ECHO
        place = estimate.delay_ms * self._rate_hz / 1000
        behind_ms = 1000 * (place - self._delay) / self._rate_hz
        if not REACH_MS[0] <= behind_ms <= REACH_MS[1]:
            self._delay = float(round(place - LEAD_MS * self._rate_hz / 1000))
            self._behind = None
            self._step = 1.0
            self._moved = True
        if self._behind is None:
            self._behind = place - self._delay
        if estimate.drift_ppm is not None:
            off = place - self._delay - self._behind
            late = estimate.drift_ppm * 1e-6 + off / (SLEW_S * self._rate_hz)
            self._step = 1 - late if abs(late) > SAME_CLOCK_PPM * 1e-6 else 1.0

    def _shift(self, earlier: int) -> None:
        """Correct for places of the microphone that were too late by ``earlier`` samples; the alignment is
        kept.
        """
        self._tracker.shifted(earlier / self._rate_hz)
        if self.knowledge is not Knowledge.ECHO:
            return
        # Without a known echo the canceller has not adapted to a place, so the reference may jump.
        delay = self._delay - earlier
        self._delay = max(0.0, delay)
        if delay < 0:
            self._behind = None
            self._moved = True

    def _forget(self) -> None:
        """Discard measurements over a gap in the microphone's stream."""
        self._tracker.reset()
        self._behind = None
        self._step = 1.0
        self._sounded_ms = self._loud_ms = self._waited_ms = 0.0
        self._heard = False
        self.knowledge = Knowledge.UNKNOWN
