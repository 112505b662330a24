"""Baseline policy that ``predictive`` replaced: a priced wait on a sum of separate likelihood ratios.

The sum of the log odds of ``evidence``, the caller's share of holds and the caller's law of pauses enter the
same least-cost rule as in the product (``turn_taking.endpointing.policies.PricedPolicy``). The product uses a
regression instead of the ratios.

Pure.
"""

from collections.abc import Sequence

from parley.language.cue_words import QuestionKind
from parley.turn_taking.endpointing.endpointer import EndpointTuning, Grounds
from parley.turn_taking.endpointing.evidence_voice import VoiceEnd
from parley.turn_taking.endpointing.policies import SCORE_DOUBT, Price, PricedPolicy
from research.turn_taking.contours import Contour, contour_of
from research.turn_taking.evidence import (
    EvidenceSettings,
    Heard,
    asked_log_odds,
    contour_log_odds,
    score_log_odds,
    voice_log_odds,
    words_log_odds,
)

CUT_COST_MS = 4_000.0
LONGEST_MS = 3_000


class BoundaryPolicy(PricedPolicy):
    """Policy that chooses the wait with the lowest expected cost on all evidence.

    Args:
        evidence: weight of each sign.
        price: of a wait.
        looks_ms: silences after which the model is run again, while the turn is still open.
        learn: true when waits follow this caller's earlier pauses in this call.
        doubt: with ``learn``, the probability that the score does not fit the speech of a call.
        contour: true when the end of the pitch counts.
        voice: true when the end of the voice counts; use it instead of ``contour``, which covers the same
            pitch.
    """

    def __init__(
        self,
        evidence: EvidenceSettings | None = None,
        price: Price | None = None,
        *,
        looks_ms: Sequence[int] = (),
        learn: bool = False,
        doubt: float = SCORE_DOUBT,
        contour: bool = False,
        voice: bool = False,
    ) -> None:
        price = price or Price(CUT_COST_MS, LONGEST_MS)
        super().__init__(EndpointTuning(learn=learn), price, looks_ms=looks_ms, doubt=doubt)
        self._evidence = evidence or EvidenceSettings()
        self._wants_contour, self._wants_voice_end = contour, voice
        self._contour: Contour | None = None
        self._read: tuple[str, float, QuestionKind, bool, float] | None = None

    @property
    def wants_voice_end(self) -> bool:
        """Return whether ``on_voice_end`` has any effect."""
        return self._wants_voice_end or self._wants_contour

    def reset(self) -> None:
        """Forget the turn: the next voice starts another."""
        super().reset()
        self._contour = None

    def on_voice_started(self, at_ms: int) -> None:
        """Record that the caller speaks (again); conclusions from the pause are void."""
        super().on_voice_started(at_ms)
        self._contour = None

    def on_voice_end(self, end: VoiceEnd) -> None:
        """Take the end of the voice, and that of the pitch where it was measured."""
        super().on_voice_end(end)
        self._contour = contour_of(end)

    def _grounds(self, completeness: float | None, filler_log_odds: float | None) -> Grounds:
        otherwise = self._caller.end_log_odds + self._words(self._is_filler(filler_log_odds))
        if self._wants_contour:
            otherwise += contour_log_odds(Heard(self._text, contour=self._contour), self._evidence)
        if self._wants_voice_end:
            otherwise += voice_log_odds(self._signs(), self._evidence.voice)
        return Grounds(score_log_odds(completeness, self._evidence), otherwise)

    def _words(self, is_filler: bool) -> float:
        """Return the log odds of the words, or of the sound of a filler, and of the bot's question."""
        now = self._text, self._last_word_confidence, self._asked, is_filler
        if self._read is None or self._read[:4] != now:
            heard = Heard(
                self._text,
                asked=self._asked,
                last_word_confidence=self._last_word_confidence,
                is_filler=is_filler,
            )
            self._read = *now, words_log_odds(heard, self._evidence) + asked_log_odds(heard, self._evidence)
        return self._read[4]
