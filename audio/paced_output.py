"""When does which piece of the bot's voice leave: as it is heard, and a little ahead.

An engine gives a second of speech at once, or some at every tick. Whoever hands that on as it comes builds a
queue that only an interruption empties, and that grows for ever when the engine is faster than time. Here it
waits, and leaves in pieces of ``piece_ms``, each ``lead_ms`` before it is to be heard: what has left cannot
be taken back, so the lead is what is heard of a bot that yields.

A stretch of speech begins when audio comes and nothing waits, and its pieces are due at times counted in
samples from there: nothing drifts. Audio that comes too late for its piece begins a new stretch, which is
counted: somebody heard a hole. An engine that gives a unit in each unit never makes up for it, and all that
it says from there on would be late by as much: so much silence is left out of what follows, a quiet piece of
10 ms at a time, where there is some.

Pure: times come in, in microseconds on any clock.
"""

from collections import deque

import numpy as np

from core.errors import ShapeError

_US_PER_S = 1_000_000
SLICES_PER_S = 100
# Softer than this a slice is silence (-50 dBFS).
QUIET_PEAK = 0.003


class PacedOutput:
    """The voice of one bot. Not thread-safe.

    Args:
        rate_hz: of the audio.
        piece_ms: length of a piece.
        lead_ms: a piece leaves so long before it is due.
        longest_ms: more than this does not wait; what comes then is lost, and counted.
        at_once: pieces leave as they come, for whoever plays them when they are due.

    Attributes:
        sent_samples: so many have left.
        lost_samples: so many came when too many waited.
        holes: so often speech went on later than it was due.
        caught_up_samples: of silence that were left out behind holes.
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
            raise ShapeError("a lead and what may wait are at least a piece")
        self._rate_hz = rate_hz
        self._piece = rate_hz * piece_ms // 1000
        self._lead_us = lead_ms * 1000
        self._at_once = at_once
        self._most = rate_hz * longest_ms // 1000
        self._parts: deque[np.ndarray] = deque()
        self._held = 0
        # The stretch that is on: when its first sample is heard, and how many of it have left.
        self._began_us: int | None = None
        self._left = 0
        # The last audio is over: what is shorter than a piece leaves as well.
        self._is_ended = True
        self._slice = max(1, rate_hz // SLICES_PER_S)
        # So much later than it would have been without holes is what is said now.
        self._late = 0
        self._pauses = False
        self.sent_samples = self.lost_samples = self.holes = self.caught_up_samples = 0

    @property
    def rate_hz(self) -> int:
        """Of the audio."""
        return self._rate_hz

    @property
    def held_samples(self) -> int:
        """What waits to leave."""
        return self._held

    @property
    def heard_until_us(self) -> int | None:
        """When the last sample that has left is heard; None when nothing of a stretch has."""
        return None if self._began_us is None else self._due_us()

    def push(self, audio: np.ndarray, now_us: int, *, is_last: bool = False) -> int:
        """What is to be said next; how many samples of it are left out, because what is said is late.

        Args:
            audio: float32, (samples,), in [-1, 1].
            now_us: when.
            is_last: nothing follows directly: what is left of a piece does not wait for more.

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
            # Whoever speaks pauses to think: what follows is not late.
            self._pauses = True
        self._is_ended = self._is_ended or is_last
        return left_out

    def next_due_us(self) -> int | None:
        """When the next piece leaves; None while none can."""
        if not self._is_ready or self._began_us is None:
            return None
        return (self._began_us if self._at_once else self._due_us()) - self._lead_us

    def take(self, now_us: int) -> np.ndarray | None:
        """The next piece, when it is due: float32, (samples,); the last one of a stretch may be shorter."""
        due_us = self.next_due_us()
        if due_us is None or now_us < due_us:
            return None
        piece = self._first(min(self._piece, self._held))
        self._left += len(piece)
        self.sent_samples += len(piece)
        return piece

    def clear(self) -> int:
        """The bot yields: so many samples that waited are never said. What has left is not here any more."""
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
        """A stretch begins where none is on, or where what was said has been heard to its end."""
        if self._began_us is not None:
            # What is less than a piece waits for this, and is as late as it is.
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
        """The same without quiet slices, as many as make up for what is late."""
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
