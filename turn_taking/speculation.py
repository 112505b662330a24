"""Guess the words of the caller's turn, should this pause be its end.

Inputs: pauses and voices as voice activity reports them, and the recogniser's partial and final words.
Output: the text that the turn would have if it ended now, at most ``guesses`` times a turn when final words
come and as often at other moments. A guess costs one request to the model and nothing else: its answer is
held until the turn has ended with the same words, and is discarded otherwise. So a guess is made as early as
there are words to guess, which is when the voice may have ended, and again when the words change. The words
that were not guessed (``so_far``) are for models that can read a question before it is whole.

Words are used as they are: a partial of the embedded recogniser equals its final in two turns of three, and
in one of two 100 ms into a pause. Nothing is guessed before the turn is open: words over the bot may not be
meant, and they belong to the turn when they are. The module is pure; all state is that of the turn.
"""

from typing import Literal

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.core.tuning import tuned


class SpeculationSettings(StrictModel):
    """Conditions for requests to the model before the turn is over."""

    on: Literal["off", "finals", "partials"] = Field(
        "partials",
        description="words to speculate on; with ``partials`` each changed partial of a pause may cost a "
        "request, with ``finals`` each pause costs one",
    )
    reads_ahead: bool = Field(
        True, description="a model of this deployment reads the turn while it is being spoken"
    )


class SpeculationTuning(SpeculationSettings):
    """Settings, completed by values that no deployment sets: ``on`` is what its requests cost."""

    # A turn has a pause or two, and a partial changes once or twice in each.
    guesses: int = Field(
        3,
        ge=1,
        le=20,
        description="requests that one turn may cost when final words arrive, and as many at other moments",
    )


class Guesser:
    """Guesses of one call.

    Args:
        settings: which words are guessed, and how often; None for the defaults.
    """

    def __init__(self, settings: SpeculationSettings | None = None) -> None:
        self._settings = tuned(SpeculationTuning, settings)
        self.reset()

    def reset(self) -> None:
        """Forget the turn: the next words belong to another one."""
        self._said = ""
        self._partial = ""
        self._quiet = False
        self._open = False
        self._guess: str | None = None
        # Counted separately: the final words are worth most, and the pauses before them spend the others.
        self._made = {"partials": 0, "finals": 0}

    def on_turn(self) -> str | None:
        """Open the turn and return the text to guess, if any; voice and words may have come before that."""
        self._open = True
        return self._next()

    def on_abandoned(self) -> bool:
        """Abandon the open turn; return whether this voids a guess."""
        void = self._guess is not None
        self.reset()
        return void

    def on_voice(self) -> bool:
        """Register that the caller speaks; return whether this voids a guess."""
        self._quiet = False
        void, self._guess = self._guess is not None, None
        return void

    def on_pause(self) -> str | None:
        """Register that the voice has ended or may have; return the text to guess, if it is a new one."""
        self._quiet = True
        return self._next()

    def on_resume(self) -> None:
        """Register that the voice had not ended: its words will show whether the guess still holds."""
        self._quiet = False

    def on_partial(self, text: str) -> str | None:
        """Register partial words since the last final ones; return the text to guess, if it is a new one."""
        self._partial = text
        return self._next()

    def on_final(self, text: str) -> str | None:
        """Register final words, which add to those before; return the text to guess, if it is a new one."""
        self._said = f"{self._said} {text}".strip()
        self._partial = ""
        return self._next(is_final=True)

    @property
    def so_far(self) -> str | None:
        """Words of the open turn that were not guessed; None without any, or when nothing is read ahead."""
        if not self._open or not self._settings.reads_ahead:
            return None
        text = f"{self._said} {self._partial}".strip()
        return text if text and text != self._guess else None

    def _next(self, *, is_final: bool = False) -> str | None:
        chosen = self._settings
        kind = "finals" if is_final else "partials"
        if not (self._open and self._quiet) or chosen.on == "off" or self._made[kind] >= chosen.guesses:
            return None
        if self._partial and chosen.on == "finals":
            return None
        text = f"{self._said} {self._partial}".strip()
        if not text or text == self._guess:
            return None
        self._guess = text
        self._made[kind] += 1
        return text
