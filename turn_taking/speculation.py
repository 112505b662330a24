"""What is the caller going to have said, should this pause be the end of the turn?

In: pauses and voices as voice activity reports them, the recogniser's words, partial and final. Out: the text
that the turn would have if it ended now, at most ``guesses`` times a turn when final words come and as often
at other moments. A guess costs a question to the
model and nothing else: its answer is held until the turn has ended with the same words, and is thrown away
otherwise. So a guess is made as early as there is something to guess, which is when the voice may have ended,
and again when the words changed. The words that were not guessed (``so_far``) are for models that can read a
question before it is whole.

Words are taken as they are: a partial of the embedded recogniser is what its final says in two turns of
three, 100 ms into a pause in one of two. Nothing is guessed before the turn is open: what is said over the
bot may not be meant, and its words belong to the turn when it is. Pure; all state is that of the turn.
"""

from typing import Literal

from pydantic import Field

from core.strict_model import StrictModel


class SpeculationSettings(StrictModel):
    """When the model is asked before the turn is over."""

    on: Literal["off", "finals", "partials"] = Field(
        "partials",
        description="which words are asked about; each changed partial of a pause may cost a question, "
        "finals cost one for each pause",
    )
    reads_ahead: bool = Field(
        True, description="a model of this deployment reads what is said while it is said"
    )
    guesses: int = Field(
        3,
        ge=1,
        le=20,
        description="questions that one turn may cost when final words come, and as many at other moments",
    )


class Guesser:
    """Of one call.

    Args:
        settings: see the model.
    """

    def __init__(self, settings: SpeculationSettings | None = None) -> None:
        self._settings = settings or SpeculationSettings()
        self.reset()

    def reset(self) -> None:
        """The next words belong to another turn."""
        self._said = ""
        self._partial = ""
        self._quiet = False
        self._open = False
        self._guess: str | None = None
        # Counted apart: the final words are worth most, and the pauses before them spend the others.
        self._made = {"partials": 0, "finals": 0}

    def on_turn(self) -> str | None:
        """The turn is open; voice and words may have come before that."""
        self._open = True
        return self._next()

    def on_abandoned(self) -> bool:
        """The open turn was none; whether a guess is void by that."""
        void = self._guess is not None
        self.reset()
        return void

    def on_voice(self) -> bool:
        """The caller speaks; whether a guess is void by that."""
        self._quiet = False
        void, self._guess = self._guess is not None, None
        return void

    def on_pause(self) -> str | None:
        """The voice may have ended, or has: the text to guess, if it is a new one."""
        self._quiet = True
        return self._next()

    def on_resume(self) -> None:
        """It had not: what it says will show whether the guess still holds."""
        self._quiet = False

    def on_partial(self, text: str) -> str | None:
        """What is understood so far of the words behind the last final ones."""
        self._partial = text
        return self._next()

    def on_final(self, text: str) -> str | None:
        """Final words; they add to those before."""
        self._said = f"{self._said} {text}".strip()
        self._partial = ""
        return self._next(is_final=True)

    @property
    def so_far(self) -> str | None:
        """What the open turn has said, and was not guessed; None without words."""
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
