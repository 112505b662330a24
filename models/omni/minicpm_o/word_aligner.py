"""Speech of MiniCPM-o as results of units: validated, and at most a unit of audio at a time.

Input: the result of the model, or of a server of it, for a unit. Output: a ``UnitResult``.

A unit of the model makes 26 pieces of 40 ms, and the last one of a turn empties its vocoder: up to a third of
a second too much. The surplus is spoken first in the next unit, even when the model listens in it; a turn is
over when all of it was spoken. A unit that makes less than a second has silence at the front, so that its
speech continues into the next one without a gap. That silence is kept, because otherwise the caller would
hear the gap in the middle of a word. It is removed only as far as surplus of the previous unit is spoken in
its place.
"""

from dataclasses import dataclass

import numpy as np

from parley.core.errors import EngineError
from parley.core.units import Vote
from parley.models.omni import SILENCE, UnitResult
from parley.models.omni.minicpm_o.settings import OUTPUT_RATE_HZ

# A unit makes 1.3 at most; audio longer than two has another rate, or is invalid.
MOST_UNITS = 2
# With 4 % too much in each unit, this much is left after a turn of four minutes.
MOST_WAITING_MS = 10_000


@dataclass(frozen=True, slots=True)
class UnitOutput:
    """Output of the model for a unit; fields as in ``UnitResult``. ``audio`` is ignored when it listens."""

    is_listen: bool
    text: str
    audio: np.ndarray
    end_of_turn: bool
    n_tokens: int = 0
    n_tts_tokens: int = 0
    cost_prefill_ms: float = 0.0
    cost_llm_ms: float = 0.0
    cost_tts_ms: float = 0.0
    kv_tokens: int = 0


class TurnAssembler:
    """Assembler of the turns of one conversation.

    Args:
        unit_ms: length of a unit.
        engine: registry name, for errors.
    """

    def __init__(self, unit_ms: int, *, engine: str) -> None:
        self._unit_samples = unit_ms * OUTPUT_RATE_HZ // 1000
        self._engine = engine
        self._waiting = SILENCE
        self._is_open = self._is_ending = False

    @property
    def is_open(self) -> bool:
        """True while a turn is being spoken."""
        return self._is_open

    def result(self, said: UnitOutput, *, forced: bool) -> UnitResult:
        """Return the result of a unit; ``forced`` makes it silent and abandons the current turn.

        Raises:
            EngineError: the audio is invalid, or longer than a unit can be.
        """
        if forced:
            spoke = self._is_open
            self._end()
            return self._made(said, Vote.YIELD if spoke else Vote.LISTEN, end_of_turn=spoke)
        if not said.is_listen:
            self._add(self._checked(said.audio))
            self._is_open, self._is_ending = True, said.end_of_turn
        elif self._is_open:
            # The model listens without ending its turn: no more audio of the turn comes.
            self._is_ending = True
        audio, self._waiting = self._waiting[: self._unit_samples], self._waiting[self._unit_samples :]
        ends = self._is_ending and not len(self._waiting)
        if ends:
            self._end()
        speaks = not said.is_listen or len(audio)
        return self._made(
            said,
            Vote.SPEAK if speaks else Vote.LISTEN,
            text="" if said.is_listen else said.text,
            audio=audio,
            end_of_turn=ends,
        )

    def _end(self) -> None:
        self._waiting = SILENCE
        self._is_open = self._is_ending = False

    def _add(self, audio: np.ndarray) -> None:
        if waiting := len(self._waiting):
            heard = np.flatnonzero(audio)
            pad = int(heard[0]) if len(heard) else len(audio)
            audio = audio[min(pad, waiting) :]
        self._waiting = np.concatenate((self._waiting, audio))
        if len(self._waiting) * 1000 > (MOST_WAITING_MS * OUTPUT_RATE_HZ + self._unit_samples * 1000):
            raise EngineError("more speech is queued than can be played", engine=self._engine)

    def _checked(self, audio: np.ndarray) -> np.ndarray:
        if audio.ndim != 1 or audio.dtype != np.float32:
            raise EngineError(f"a result of {audio.dtype}, {audio.shape} is not audio", engine=self._engine)
        if not np.isfinite(audio).all():
            raise EngineError("a result has non-finite values", engine=self._engine)
        if len(audio) > MOST_UNITS * self._unit_samples:
            raise EngineError(
                f"a result of {len(audio)} samples is longer than its unit", engine=self._engine
            )
        return audio.clip(-1.0, 1.0)

    @staticmethod
    def _made(
        said: UnitOutput,
        vote: Vote,
        *,
        text: str = "",
        audio: np.ndarray = SILENCE,
        end_of_turn: bool = False,
    ) -> UnitResult:
        return UnitResult(
            vote,
            text=text,
            audio=audio,
            end_of_turn=end_of_turn,
            n_tokens=said.n_tokens,
            n_tts_tokens=said.n_tts_tokens,
            cost_prefill_ms=said.cost_prefill_ms,
            cost_llm_ms=said.cost_llm_ms,
            cost_tts_ms=said.cost_tts_ms,
            kv_tokens=said.kv_tokens,
        )
