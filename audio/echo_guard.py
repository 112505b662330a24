"""Echo or caller? What the levels of microphone and reference say, band by band.

    explained     as loud as what is played would be in this room, or quieter: echo
    unexplained   louder than that: a caller

An echo canceller needs a second of sound before it is any good, and closes on callers who talk over the bot.
Levels are known much sooner: how loudly the room returns each band is learnt in some frames and without
phases (as in Avendano, "Acoustic echo suppression in the STFT domain", WASPAA 2001). So the guard tops up
what the canceller takes away while everything is explained, and lets the microphone pass it by while much is
not.

Pure: frames in, verdicts out. What is done with them is the caller's business.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from core.errors import ShapeError

BANDS = 14
LOW_HZ, HIGH_HZ = 250.0, 6_500.0
# The echo lies up to so many frames behind its reference, and then falls by 60 dB in 400 ms.
BEHIND_FRAMES = 4
TAIL = 10 ** (-0.15)
# Power per bin of the reference from which on a band sounds, and of a microphone that is not silent.
SOUND_POWER = 1e-9
LEAST_POWER = 1e-12
LOUDEST_NOISE = 1e-6
# The return that is learnt is the one that nine of ten frames do not reach; what is far above it is a caller,
# and moves it by hardly anything. The first frames only learn.
QUANTILE = 0.9
STEP_DB = 0.15
FIRST_FALL_DB = 0.2
SETTLE_FRAMES = 40
FIRST_RETURN_DB = -60.0
CALLER_DB, CALLER_STEP_DB = 6.0, 0.02
# Expected are twice the echo and four times the noise: what is just louder is chance.
ECHO_MARGIN, NOISE_MARGIN = 2.0, 4.0
# What the canceller achieves in three of four frames, and how fast that is learnt.
ACHIEVED_QUANTILE, ACHIEVED_STEP_DB = 0.25, 0.6
# Echo loss that is topped up to: at first, and when the canceller has had 4 s of sound to learn from.
FIRST_WANTED_DB, LAST_WANTED_DB = 42.0, 38.0
CONVERGED_FRAMES = 400
# What it leaves says as much as the levels do when it has had 2.5 s and takes away so much in three of four
# frames. It never does where the echo is louder than what is played.
TRUSTED_FRAMES, TRUSTED_DB = 250, 20.0
NOTHING_PLAYED_DB = 99.0
# Evidence of a caller is the unexplained share, and what the canceller leaves of what is heard at a weight
# that grows with the trust in it: a converged one takes 15 dB and more away in 99 of 100 frames of echo, and
# less than 2 dB in half of those of a caller. Shares below ``LEAST_EVIDENCE_DB`` all say the same.
LEFT_WEIGHT = 0.5
LEAST_EVIDENCE_DB, LEAST_LEFT_DB = -30.0, -45.0
# The evidence from which on a caller talks: at first, when the reverberation of a long vowel may be louder
# than all that was learnt; later, by the share alone; and with a canceller that is trusted. Of 22,000 frames
# of echo in ``evals.echo`` none is above the last two; of callers who are 3 dB louder than the echo 71 and 91
# of 100 frames are.
FIRST_CALLER_DB, LEVELS_CALLER_DB, TRUSTED_CALLER_DB = 7.0, -2.0, -20.0
# A single frame may be chance: so many are judged together. A caller who has begun needs less to go on.
SUM_FRAMES = 3
GOES_ON_DB = 8.0
# Nor does one who has talked for so many frames end with a syllable that is no louder than the echo: they are
# held open for so many times as long.
LONG_FRAMES, LONG_HOLD = 30, 2
# What is this much quieter than the echo of the last tenths of a second is its reverberation: the share of it
# that counts as explained in any case, and how that fades in a frame (by 13 dB a second).
LATELY_SHARE, FADE = 0.2, 0.97


@dataclass(frozen=True, slots=True)
class Judged:
    """One frame.

    Attributes:
        unexplained_db: what is not explained, over what is; ``NOTHING_PLAYED_DB`` without a reference.
        is_open: somebody talks over the bot, or did a moment ago, or nothing is played.
        top_up_db: what is missing to the echo loss that is wanted; 0 for a caller.
    """

    unexplained_db: float
    is_open: bool
    top_up_db: float


class EchoGuard:
    """One caller. Not thread-safe.

    Args:
        rate_hz: of the frames.
        frame_samples: length of a frame.
        hold_frames: a caller is taken to go on for so long.
    """

    def __init__(
        self,
        rate_hz: int,
        frame_samples: int,
        *,
        hold_frames: int = 12,
    ) -> None:
        self._frame = frame_samples
        self._hold_frames = hold_frames
        size = 2 * frame_samples
        self._window = np.hanning(size + 1)[:-1].astype(np.float32)
        hz = np.fft.rfftfreq(size, 1 / rate_hz)
        edges = np.searchsorted(hz, np.geomspace(LOW_HZ, min(HIGH_HZ, 0.45 * rate_hz), BANDS + 1))
        self._starts, self._last = edges[:-1], int(edges[-1])
        self._widths = np.diff(edges)
        self._signals = np.zeros((2, size), dtype=np.float32)
        self._recent: deque[np.ndarray] = deque(maxlen=BEHIND_FRAMES)
        self._sums: deque[tuple[float, float]] = deque(maxlen=SUM_FRAMES)
        self._through: deque[tuple[float, float]] = deque(maxlen=SUM_FRAMES)
        self._tail = np.zeros(BANDS)
        self._noise = np.full(BANDS, SOUND_POWER)
        self.forget()

    def forget(self) -> None:
        """The echo path is another one."""
        self._return_db = np.full(BANDS, FIRST_RETURN_DB)
        self._learnt = np.zeros(BANDS)
        self._achieved_db = 0.0
        self._hold = self._talked = 0
        self._lately = 0.0

    def judge(self, near: np.ndarray, far: np.ndarray, left: np.ndarray) -> Judged:
        """A frame of the microphone, of what was played just before, and of what the canceller left.

        near, far, left: float32, (frame_samples,), in [-1, 1].

        Raises:
            ShapeError: another length.
        """
        frame = self._frame
        if near.shape != (frame,) or far.shape != (frame,) or left.shape != (frame,):
            raise ShapeError(f"expected ({frame},), got {near.shape}, {far.shape} and {left.shape}")
        self._signals[:, :frame] = self._signals[:, frame:]
        self._signals[0, frame:] = near
        self._signals[1, frame:] = far
        spectra = np.fft.rfft(self._signals * self._window)[:, : self._last]
        powers = (spectra.real**2 + spectra.imag**2) / (2 * frame) ** 2
        heard, played = np.add.reduceat(powers, self._starts, axis=1) / self._widths
        self._recent.append(played)
        self._tail = np.maximum(np.max(self._recent, axis=0), self._tail * TAIL)
        sounding = self._tail > SOUND_POWER
        if not sounding.any():
            self._hold = self._talked = 0
            falls = heard < self._noise
            self._noise += np.where(falls, 0.3, 0.02) * (np.minimum(heard, LOUDEST_NOISE) - self._noise)
            return Judged(NOTHING_PLAYED_DB, True, 0.0)
        expected = ECHO_MARGIN * self._tail * 10 ** (self._return_db / 10) + NOISE_MARGIN * self._noise
        # A band that is not known yet proves nothing.
        known = self._widths * (self._learnt >= SETTLE_FRAMES)
        explained_now = float(expected @ self._widths)
        self._lately = max(explained_now, self._lately * FADE)
        self._sums.append((float(np.maximum(0.0, heard - expected) @ known), explained_now))
        unexplained, explained = (sum(parts) for parts in zip(*self._sums, strict=True))
        explained = max(explained, len(self._sums) * LATELY_SHARE * self._lately)
        unexplained_db = 10 * float(np.log10(max(unexplained, LEAST_POWER) / explained))
        self._through.append((float(np.vdot(near, near)), float(np.vdot(left, left))))
        settled = np.count_nonzero(self._learnt >= SETTLE_FRAMES) >= BANDS // 2
        experience = min(1.0, float(self._learnt.max()) / CONVERGED_FRAMES)
        trust = min(1.0, float(self._learnt.max()) / TRUSTED_FRAMES)
        trust = min(trust, max(0.0, self._achieved_db / TRUSTED_DB))
        begins_db = FIRST_CALLER_DB + (LEVELS_CALLER_DB - FIRST_CALLER_DB) * experience
        begins_db += (TRUSTED_CALLER_DB - begins_db) * trust
        needed_db = begins_db - (GOES_ON_DB if self._hold else 0.0)
        evidence_db = max(unexplained_db, LEAST_EVIDENCE_DB) + LEFT_WEIGHT * trust * self._left_db()
        is_caller = settled and evidence_db >= needed_db
        self._hold = max(0, self._hold - 1)
        if is_caller:
            self._talked += 1
            self._hold = self._hold_frames * (LONG_HOLD if self._talked >= LONG_FRAMES else 1)
        elif not self._hold:
            self._talked = 0
        self._learn_return(heard, sounding)
        if self._hold:
            return Judged(unexplained_db, True, 0.0)
        self._learn_achieved(near, left)
        wanted_db = FIRST_WANTED_DB + (LAST_WANTED_DB - FIRST_WANTED_DB) * experience
        return Judged(unexplained_db, False, max(0.0, wanted_db - self._achieved_db))

    def _left_db(self) -> float:
        """What the canceller left of the last frames, over what was heard in them; at most 0 dB."""
        heard, left = (sum(parts) for parts in zip(*self._through, strict=True))
        return float(
            np.clip(10 * np.log10(max(left, LEAST_POWER) / max(heard, LEAST_POWER)), LEAST_LEFT_DB, 0.0)
        )

    def _learn_return(self, heard: np.ndarray, sounding: np.ndarray) -> None:
        echo = np.maximum(heard - self._noise, LEAST_POWER)
        over_db = 10 * np.log10(echo / np.maximum(self._tail, LEAST_POWER)) - self._return_db
        moved_db = np.where(over_db > 0, STEP_DB * QUANTILE, -STEP_DB * (1 - QUANTILE))
        # While somebody talks, what is a little louder is their doing too.
        caller_db = 0.0 if self._hold else CALLER_DB
        moved_db = np.where(over_db > caller_db, CALLER_STEP_DB, moved_db)
        # At first the loudest counts: a return that is taken for too low would let echo pass for a caller.
        moved_db = np.where(self._learnt < SETTLE_FRAMES, np.maximum(over_db, -FIRST_FALL_DB), moved_db)
        self._return_db += np.where(sounding, moved_db, 0.0)
        self._learnt += sounding

    def _learn_achieved(self, near: np.ndarray, left: np.ndarray) -> None:
        heard, rest = float(np.vdot(near, near)), float(np.vdot(left, left))
        if heard < SOUND_POWER * self._frame:
            return
        achieved_db = 10 * float(np.log10(heard / max(rest, LEAST_POWER)))
        if achieved_db > self._achieved_db:
            self._achieved_db += ACHIEVED_STEP_DB * ACHIEVED_QUANTILE
        else:
            self._achieved_db -= ACHIEVED_STEP_DB * (1 - ACHIEVED_QUANTILE)
