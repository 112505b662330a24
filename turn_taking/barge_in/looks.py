"""Sequential test of a voice over the bot: at each early look take the floor, leave it, or look again.

Inputs: for each look, the log odds that a voice interrupts (``models.stt.looks``). Output: a ``LookVerdict``.
The longer a voice lasts, the more certain the odds are, and the longer a caller talks against the bot. So
each look has two bounds, and odds between them lead to another look. After the last look the words decide.

The module is pure. The bounds belong to the lines that give the odds: ``research.turn_taking.looks`` chooses
both.
"""

from enum import Enum

from pydantic import Field, model_validator

from parley.core.strict_model import StrictModel


class LookVerdict(Enum):
    """Result of one look."""

    TAKE = "the caller interrupts"
    LEAVE = "the caller only listens, or it is no caller"
    AGAIN = "not sure yet"


class LookSettings(StrictModel):
    """Bounds of the log odds, one for each look in order."""

    take_log_odds: tuple[float, ...] = Field(
        default=(1.45, 2.17, 1.37, 1.91, 2.56), description="log odds from which the voice interrupts"
    )
    leave_log_odds: tuple[float, ...] = Field(
        default=(-3.36, -2.71, -2.35, -2.02, -2.92),
        description="log odds up to which the bot goes on speaking",
    )
    left_confirm_ms: int = Field(
        default=1_200,
        ge=300,
        le=5_000,
        description="length from which a voice that did not interrupt at first is an interruption",
    )

    @model_validator(mode="after")
    def _ordered(self) -> "LookSettings":
        if len(self.take_log_odds) != len(self.leave_log_odds):
            raise ValueError("expected as many take_log_odds as leave_log_odds")
        if any(take <= leave for take, leave in zip(self.take_log_odds, self.leave_log_odds, strict=True)):
            raise ValueError("expected every take_log_odds above its leave_log_odds")
        return self

    def verdict(self, look: int, log_odds: float) -> LookVerdict:
        """Return the verdict of one look; a look without bounds decides nothing."""
        if not 0 <= look < len(self.take_log_odds):
            return LookVerdict.AGAIN
        if log_odds >= self.take_log_odds[look]:
            return LookVerdict.TAKE
        return LookVerdict.LEAVE if log_odds <= self.leave_log_odds[look] else LookVerdict.AGAIN
