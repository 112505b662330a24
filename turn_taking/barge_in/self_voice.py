"""Decide whether the voice that was detected is the bot itself.

After an echo canceller two things can still sound like a caller: echo that the canceller has not learnt yet,
and the echo of a loudspeaker that is too loud for it. Both follow the played audio, in level and in rhythm,
and both contain the bot's own words. ``SelfVoice`` compares levels, frame by frame; ``OwnWords`` compares a
transcript with the bot's recent words. Neither stops a voice: barge-in uses them to exclude sounds that are
no caller.

The module is pure: events and times in, answers out.
"""

from collections import deque
from collections.abc import Iterable
from difflib import SequenceMatcher

import numpy as np
from pydantic import Field

from parley.core.strict_model import StrictModel

FRAME_MS = 10
# Reverberation and the canceller's own delay: played audio explains a sound that arrives up to so much later.
HOLD_MS = 120
# Below this level nothing is played.
SILENCE_DB = -55.0


class SelfVoiceSettings(StrictModel):
    """Thresholds for the bot's own voice."""

    look_ms: int = Field(default=320, ge=100, le=2_000, description="length of the analysed audio")
    first_return_db: float = Field(
        default=-18.0,
        ge=-80,
        le=20,
        description="assumed level of the residual echo, relative to the playback, before it is measured",
    )
    louder_db: float = Field(
        default=6.0,
        ge=0,
        le=40,
        description="level above the residual echo from which a voice is the caller's",
    )
    alike: float = Field(
        default=0.75, gt=0, lt=1, description="correlation from which two rhythms count as the same"
    )
    alike_louder_db: float = Field(
        default=14.0, ge=0, le=60, description="the same for a voice with the rhythm of the playback"
    )


class SelfVoice:
    """Comparison of the levels of one call.

    Learns the residual of the played audio after the canceller: the level, relative to the played audio,
    below which nine of ten frames lie. It moves by a fixed step, so that a caller's sentence raises it by
    little.
    """

    STEP_DB = 0.15
    QUANTILE = 0.9

    def __init__(self, settings: SelfVoiceSettings | None = None) -> None:
        self._settings = settings or SelfVoiceSettings()
        frames = self._settings.look_ms // FRAME_MS
        self._left: deque[float] = deque(maxlen=frames)
        self._far: deque[float] = deque(maxlen=frames + HOLD_MS // FRAME_MS)
        self.return_db = self._settings.first_return_db

    def on_frame(self, *, left_db: float, far_db: float) -> None:
        """Add levels of 10 ms: the residual after the canceller, and the played audio audible now."""
        self._left.append(left_db)
        self._far.append(far_db)
        loudest_db = self._held_db(len(self._far))
        if loudest_db > SILENCE_DB:
            over_db = left_db - loudest_db - self.return_db
            if over_db > 0 and over_db < self._settings.louder_db:
                self.return_db += self.STEP_DB * self.QUANTILE
            elif over_db <= 0:
                self.return_db -= self.STEP_DB * (1 - self.QUANTILE)

    def forget(self) -> None:
        """Forget all levels: no voice is the bot's own until new ones arrive."""
        self._left.clear()
        self._far.clear()

    def is_own(self) -> bool:
        """Return whether the played audio explains the last ``look_ms``."""
        settings = self._settings
        ends = range(len(self._far) - len(self._left) + 1, len(self._far) + 1)
        held = [self._held_db(end) for end in ends]
        over = [
            left_db - far_db - self.return_db
            for left_db, far_db in zip(self._left, held, strict=True)
            if far_db > SILENCE_DB
        ]
        # A stretch of the caller alone: where nothing is played there is nothing to compare.
        if not over or len(over) < len(self._left) // 2:
            return False
        louder_db = float(np.percentile(over, 75))
        if louder_db <= settings.louder_db:
            return True
        return louder_db <= settings.alike_louder_db and self.likeness() >= settings.alike

    def likeness(self) -> float:
        """Return the correlation of both rhythms, -1..1; 0 when one has none."""
        left = np.maximum(np.array(self._left), -90.0)
        far = np.maximum(np.array(self._far)[-len(left) :], -90.0) if len(left) else left
        if len(left) < 2 or left.std() < 1.0 or far.std() < 1.0:
            return 0.0
        return float(np.corrcoef(left, far)[0, 1])

    def _held_db(self, end: int) -> float:
        first = max(0, end - 1 - HOLD_MS // FRAME_MS)
        return max(self._far[at] for at in range(first, end)) if end else -120.0


class OwnWords:
    """Recent words of the bot, for comparison with a transcript.

    Args:
        keep_ms: how long a word may come back: echo, recognition and its delay.
        share: share from which words are the bot's own.
        least_words: fewer words decide nothing.
    """

    def __init__(self, *, keep_ms: int = 6_000, share: float = 0.7, least_words: int = 2) -> None:
        self._keep_ms = keep_ms
        self._share = share
        self._least_words = least_words
        self._said: deque[tuple[int, str]] = deque()

    def said(self, text: str, at_ms: int) -> None:
        """Record words of the bot, the last of them at ``at_ms``."""
        self._said.extend((at_ms, word) for word in _words(text))
        self._forget(at_ms)

    def explains(self, text: str, at_ms: int) -> bool:
        """Return whether words recognised at ``at_ms`` are those of the bot, in its order."""
        self._forget(at_ms)
        heard = _words(text)
        if len(heard) < self._least_words or not self._said:
            return False
        return self.share_of(heard) >= self._share

    def share_of(self, heard: list[str]) -> float:
        """Return the share of the words that stand in the same order among the bot's."""
        said = [word for _, word in self._said]
        matcher = SequenceMatcher(None, said, heard, autojunk=False)
        matched = sum(block.size for block in matcher.get_matching_blocks())
        return matched / len(heard) if heard else 0.0

    def _forget(self, at_ms: int) -> None:
        while self._said and at_ms - self._said[0][0] > self._keep_ms:
            self._said.popleft()


def _words(text: str) -> list[str]:
    return [word for word in (_letters(part) for part in text.lower().split()) if word]


def _letters(parts: Iterable[str]) -> str:
    return "".join(letter for letter in parts if letter.isalnum() or letter == "'")
