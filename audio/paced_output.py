"""Paced output of the bot's voice: pieces leave at the rate at which they are played, a little ahead.

An engine returns a second of speech at once, or some at every tick. Forwarding it at once would build a queue
that only an interruption empties, and that grows without end when the engine is faster than real time. Here
audio waits and leaves in pieces of ``piece_ms``, each ``lead_ms`` before it is due. Audio that has left
cannot be taken back, so the lead is the speech that a caller still hears after the bot yields.

A stretch of speech begins when audio comes and nothing waits. Its pieces are due at times counted in samples
from there, so nothing drifts. Audio that comes too late for its piece begins a new stretch and is counted:
the caller heard a gap. An engine that makes one unit of speech per unit of time never catches up, and all
later speech would be late by the gap. The same duration of silence is therefore left out of the following
speech, a quiet piece of 10 ms at a time, where there is some.

Pure: times are arguments, in microseconds on any clock.
"""

from collections import deque

import numpy as np

from parley.core.errors import ShapeError

_US_PER_S = 1_000_000
SLICES_PER_S = 100
# A slice with a lower peak is silence (-50 dBFS).
QUIET_PEAK = 0.003


class PacedOutput:
    """Paced output of one bot's voice. Not thread-safe.

    Args:
        rate_hz: rate of the audio.
        piece_ms: length of a piece.
        lead_ms: time by which a piece leaves before it is due.
        longest_ms: longest audio that waits; further audio is lost and counted.
        at_once: pieces leave as they come, for a receiver that plays them when they are due.

    Attributes:
        sent_samples: number of samples that have left.
        lost_samples: number of samples that came while too many waited.
        holes: number of times that speech continued later than it was due.
        caught_up_samples: number of samples of silence left out after holes.
    """

    def __init__(
        self,
        rate_hz: int,
        *,
        piece_ms: int = 20,
        lead_ms: int = 40,
        longest_ms: int = 10_000,
        at_once: bool = False,
    ) -> None:
        if lead_ms < piece_ms or longest_ms < piece_ms:
            raise ShapeError("expected lead and waiting limit of at least one piece")
        self._rate_hz = rate_hz
        self._piece = rate_hz * piece_ms // 1000
        self._lead_us = lead_ms * 1000
        self._at_once = at_once
        self._most = rate_hz * longest_ms // 1000
        self._parts: deque[np.ndarray] = deque()
        self._held = 0
        # Current stretch: the time at which its first sample is due, and the number of its samples that have
        # left.
        self._began_us: int | None = None
        self._left = 0
        # Set after the last audio: a remainder shorter than a piece leaves as well.
        self._is_ended = True
        self._slice = max(1, rate_hz // SLICES_PER_S)
        # Number of samples by which speech is late because of holes.
        self._late = 0
        self._pauses = False
        self.sent_samples = self.lost_samples = self.holes = self.caught_up_samples = 0

    @property
    def rate_hz(self) -> int:
        """Sample rate of the audio."""
        return self._rate_hz

    @property
    def held_samples(self) -> int:
        """Number of samples that wait to leave."""
        return self._held

    @property
    def heard_until_us(self) -> int | None:
        """Time at which the last sample that has left is played; None outside a stretch."""
        return None if self._began_us is None else self._due_us()

    def push(self, audio: np.ndarray, now_us: int, *, is_last: bool = False) -> int:
        """Append audio to be spoken; return the number of its samples left out because speech is late.

        Args:
            audio: float32, (samples,), in [-1, 1].
            now_us: current time.
            is_last: nothing follows directly, so a remainder of a piece does not wait for more.

        Raises:
            ShapeError: another shape or dtype.
        """
        if audio.ndim != 1 or audio.dtype != np.float32:
            raise ShapeError(f"expected float32, (samples,), got {audio.dtype}, {audio.shape}")
        fits = audio[: max(0, self._most - self._held)]
        self.lost_samples += len(audio) - len(fits)
        left_out = 0
        if len(fits):
            self._begin(now_us)
            wanted = fits.copy() if not self._late else self._without_silence(fits)
            left_out = len(fits) - len(wanted)
            self._parts.append(wanted)
            self._held += len(wanted)
            self._is_ended = self._pauses = False
        elif not is_last:
            # An empty piece is a pause of the speaker: the audio after it is not late.
            self._pauses = True
        self._is_ended = self._is_ended or is_last
        return left_out

    def next_due_us(self) -> int | None:
        """Return the time at which the next piece leaves; None while none can."""
        if not self._is_ready or self._began_us is None:
            return None
        return (self._began_us if self._at_once else self._due_us()) - self._lead_us

    def take(self, now_us: int) -> np.ndarray | None:
        """Return the next piece if it is due: float32, (samples,); the last one of a stretch may be
        shorter.
        """
        due_us = self.next_due_us()
        if due_us is None or now_us < due_us:
            return None
        piece = self._first(min(self._piece, self._held))
        self._left += len(piece)
        self.sent_samples += len(piece)
        return piece

    def clear(self) -> int:
        """Drop waiting audio because the bot yields; return the number of samples dropped."""
        dropped, self._held = self._held, 0
        self._parts.clear()
        self._began_us, self._left, self._is_ended = None, 0, True
        self._late = 0
        self._pauses = False
        return dropped

    @property
    def _is_ready(self) -> bool:
        return self._held >= self._piece or (self._held > 0 and (self._is_ended or self._at_once))

    def _begin(self, now_us: int) -> None:
        """Begin a stretch if none is under way or the previous one has been played to its end."""
        if self._began_us is not None:
            # A remainder of less than a piece waits for this audio and is late with it.
            if self._is_ready or now_us <= self._due_us():
                return
            if self._is_ended:
                self._late = 0
            elif not self._pauses:
                self.holes += 1
                late_us = now_us + self._lead_us - self._due_us()
                self._late += late_us * self._rate_hz // _US_PER_S
        self._began_us, self._left = now_us + self._lead_us, 0

    def _without_silence(self, audio: np.ndarray) -> np.ndarray:
        """Return the audio without quiet slices, up to the duration by which speech is late."""
        slices = min(len(audio), self._late) // self._slice
        whole = len(audio) // self._slice * self._slice
        if not slices or not whole:
            return audio.copy()
        quiet = np.abs(audio[:whole]).reshape(-1, self._slice).max(axis=1) < QUIET_PEAK
        out = np.flatnonzero(quiet)[:slices]
        stays = np.ones(len(audio), bool)
        for place in out:
            stays[place * self._slice : (place + 1) * self._slice] = False
        left_out = len(out) * self._slice
        self._late -= left_out
        self.caught_up_samples += left_out
        return audio[stays]

    def _due_us(self) -> int:
        began_us = self._began_us if self._began_us is not None else 0
        return began_us + self._left * _US_PER_S // self._rate_hz

    def _first(self, samples: int) -> np.ndarray:
        taken: list[np.ndarray] = []
        self._held -= samples
        while samples:
            part = self._parts.popleft()
            if len(part) > samples:
                self._parts.appendleft(part[samples:])
                part = part[:samples]
            taken.append(part)
            samples -= len(part)
        return np.concatenate(taken)
