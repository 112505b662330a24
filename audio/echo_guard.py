"""Echo guard: tells echo from caller by the levels of microphone and reference, band by band.

    explained     as loud as what is played would be in this room, or quieter: echo
    unexplained   louder than that: a caller

An echo canceller needs a second of sound before it works well, and suppresses callers who talk over the bot.
Levels are available much sooner. The level at which the room returns each band is learnt in some frames and
without phases, as in Avendano, "Acoustic echo suppression in the STFT domain", WASPAA 2001. The guard
therefore adds suppression to the canceller's while everything is explained, and bypasses the canceller while
much is not.

Pure: takes frames, returns verdicts. The caller of the API applies them.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from parley.core.errors import ShapeError

BANDS = 14
LOW_HZ, HIGH_HZ = 250.0, 6_500.0
# The echo comes up to this many frames after its reference, and then decays by 60 dB in 400 ms.
BEHIND_FRAMES = 4
TAIL = 10 ** (-0.15)
# Power per bin at which a band of the reference counts as sounding, and least power of a microphone.
SOUND_POWER = 1e-9
LEAST_POWER = 1e-12
LOUDEST_NOISE = 1e-6
# The learnt return is the one that nine of ten frames do not reach. A level far above it is a caller's, and
# hardly changes it. The first frames only learn.
QUANTILE = 0.9
STEP_DB = 0.15
FIRST_FALL_DB = 0.2
SETTLE_FRAMES = 40
FIRST_RETURN_DB = -60.0
CALLER_DB, CALLER_STEP_DB = 6.0, 0.02
# The expected level is twice the echo plus four times the noise: slightly louder frames are chance.
ECHO_MARGIN, NOISE_MARGIN = 2.0, 4.0
# Quantile of the loss that the canceller achieves (in three of four frames), and the step of its estimate.
ACHIEVED_QUANTILE, ACHIEVED_STEP_DB = 0.25, 0.6
# Total echo loss that canceller and guard achieve together: at first, and after 4 s of sound to adapt to.
FIRST_WANTED_DB, LAST_WANTED_DB = 42.0, 38.0
CONVERGED_FRAMES = 400
# The canceller's output is as reliable as the levels once it has had 2.5 s and achieves this loss in three of
# four frames. It is never reliable where the echo is louder than what is played.
TRUSTED_FRAMES, TRUSTED_DB = 250, 20.0
NOTHING_PLAYED_DB = 99.0
# Evidence of a caller is the unexplained share, plus the share that the canceller leaves, with a weight that
# grows with the trust in it. A converged canceller removes 15 dB and more in 99 of 100 frames of echo, and
# less than 2 dB in half of the frames of a caller. Shares below ``LEAST_EVIDENCE_DB`` are equivalent.
LEFT_WEIGHT = 0.5
LEAST_EVIDENCE_DB, LEAST_LEFT_DB = -30.0, -45.0
# Evidence at which a caller talks. At first the reverberation of a long vowel may be louder than all that was
# learnt; later the unexplained share decides alone; then a trusted canceller helps. Of 22,000 frames of echo
# in ``evals.echo`` none is above the last two; of callers who are 3 dB louder than the echo 71 and 91 of 100
# frames are.
FIRST_CALLER_DB, LEVELS_CALLER_DB, TRUSTED_CALLER_DB = 7.0, -2.0, -20.0
# A single frame may be chance, so this many are judged together. A caller who has begun needs less evidence
# to continue.
SUM_FRAMES = 3
GOES_ON_DB = 8.0
# A caller who has talked for this many frames does not end with a syllable that is no louder than the echo.
# The guard then stays open for a multiple of the usual time.
LONG_FRAMES, LONG_HOLD = 30, 2
# Reverberation of the echo of the last tenths of a second: the share of that echo that always counts as
# explained, and its decay per frame (by 13 dB a second).
LATELY_SHARE, FADE = 0.2, 0.97


@dataclass(frozen=True, slots=True)
class Judged:
    """Verdict on one frame.

    Attributes:
        unexplained_db: unexplained power relative to the explained; ``NOTHING_PLAYED_DB`` without a
            reference.
        is_open: a caller talks over the bot, or did a moment ago, or nothing is played.
        top_up_db: suppression that is missing to the wanted echo loss; 0 for a caller.
    """

    unexplained_db: float
    is_open: bool
    top_up_db: float


class EchoGuard:
    """Echo guard of one call. Not thread-safe.

    Args:
        rate_hz: rate of the frames.
        frame_samples: length of a frame.
        hold_frames: number of frames for which the guard stays open after the last evidence of a caller.
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
        """Discard what was learnt, because the echo path has changed."""
        self._return_db = np.full(BANDS, FIRST_RETURN_DB)
        self._learnt = np.zeros(BANDS)
        self._achieved_db = 0.0
        self._hold = self._talked = 0
        self._lately = 0.0

    def judge(self, near: np.ndarray, far: np.ndarray, left: np.ndarray) -> Judged:
        """Judge a frame.

        near, far, left: float32, (frame_samples,), in [-1, 1]: the microphone, what was played just before,
        and the output of the canceller.

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
        # A band that has not settled yet is no evidence.
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
        """Return the canceller's output relative to its input over the last frames, in dB; at most 0."""
        heard, left = (sum(parts) for parts in zip(*self._through, strict=True))
        return float(
            np.clip(10 * np.log10(max(left, LEAST_POWER) / max(heard, LEAST_POWER)), LEAST_LEFT_DB, 0.0)
        )

    def _learn_return(self, heard: np.ndarray, sounding: np.ndarray) -> None:
        echo = np.maximum(heard - self._noise, LEAST_POWER)
        over_db = 10 * np.log10(echo / np.maximum(self._tail, LEAST_POWER)) - self._return_db
        moved_db = np.where(over_db > 0, STEP_DB * QUANTILE, -STEP_DB * (1 - QUANTILE))
        # While a caller talks, slightly louder levels are theirs too.
        caller_db = 0.0 if self._hold else CALLER_DB
        moved_db = np.where(over_db > caller_db, CALLER_STEP_DB, moved_db)
        # At first the loudest level counts: a return estimated too low would let echo pass for a caller.
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
