"""Settings of ``barge_in`` (``hearing.barge_in``). Lengths are those of audio."""

from pydantic import Field, model_validator

from core.strict_model import StrictModel
from core.tuning import tuned
from turn_taking.looks import LookSettings
from turn_taking.utterances import UtteranceSettings, UtteranceTuning


class BargeInSettings(StrictModel):
    """Conditions under which a voice is an interruption.

    ``confirm_ms`` is the longest hum: a caller who hums is not cut, and a caller who speaks is cut by words
    before that.
    """

    confirm_ms: int = Field(
        700, ge=300, le=1_500, description="a voice over the bot of more than this is meant, and cuts it off"
    )
    protected_yields_to_stop: bool = Field(
        True, description="a stop word ends what may not be interrupted (``bot.greeting_interruptible``)"
    )
    looks: bool = Field(
        False, description="early looks at a voice, where the recogniser can; false: its words decide"
    )
    utterances: UtteranceSettings = UtteranceSettings()


class BargeInTuning(BargeInSettings):
    """Barge-in settings including the values that no deployment sets.

    LiveKit cuts after 500 ms of voice and resumes after 2 s. In the first 3 s of a call both LiveKit and
    Unmute ignore a voice without words (``warm_up_ms``, for a canceller that has to converge).
    """

    look_bounds: LookSettings = LookSettings()
    duck_db: float = Field(-12.0, ge=-60, le=0, description="gain of the bot's voice while somebody speaks")
    duck_longest_ms: int = Field(
        3_000, ge=500, le=30_000, description="a caller who coughs again and again is ducked for so long"
    )
    maybe_ms: int = Field(
        200, ge=0, le=1_000, description="what may be a voice is taken for none when none follows; 0: no duck"
    )
    maybe_rest_ms: int = Field(
        1_500, ge=0, le=10_000, description="after such a mistake the next maybe does not duck"
    )
    end_lag_ms: int = Field(96, ge=0, le=1_000, description="how late a possible end of the voice is noticed")
    pause_hold_ms: int = Field(
        96, ge=0, le=1_000, description="from a possible end to the certainty that the voice ended"
    )
    # Not more by default: a voice that begins after the first sound may be its echo.
    early_ms: int = Field(
        0, ge=0, le=2_000, description="a voice from before this much has left goes on with the turn"
    )
    early_confirm_ms: int = Field(300, ge=50, le=3_000, description="``confirm_ms`` of such a voice")
    listener_confirm_ms: int = Field(
        900,
        ge=100,
        le=3_000,
        description="``confirm_ms`` of a voice whose unsure words begin like a listener's",
    )
    confirm_growth_ms: int = Field(
        200, ge=0, le=1_000, description="``confirm_ms`` grows by this with each false interruption in a row"
    )
    confirm_longest_ms: int = Field(1_500, ge=100, le=5_000, description="and not beyond this")
    # Of 9 hums and "right"s that PocketSphinx wrote as other words, some have one word above this, none two.
    sure_confidence: float = Field(
        0.85,
        ge=0,
        le=1,
        description="words of a short voice that are all this sure count whatever a spotter says",
    )
    # Chosen on 36 tuning calls of ``evals.turns --audio``: a listener's words are judged below the first, and
    # hums that a grammar took for a command below the second.
    floor_log_odds: float = Field(
        0.2, ge=-20, le=20, description="a short voice that wants the floor by these odds is meant"
    )
    command_floor_log_odds: float = Field(
        -1.0, ge=-20, le=20, description="below these a spotted command was something else"
    )
    confirm_words: int = Field(2, ge=1, le=10, description="so many understood words are meant")
    words_wait_ms: int = Field(
        450,
        ge=0,
        le=3_000,
        description="from the noticed end of a short voice to its last words, p99, and to what was spotted",
    )
    resume_ms: int = Field(
        2_000, ge=200, le=10_000, description="silence without words after which a cut was for nothing"
    )
    taken_ms: int = Field(
        1_500, ge=200, le=10_000, description="a voice that goes on for so long after the cut was meant"
    )
    undecided_ms: int = Field(
        10_000, ge=1_000, le=60_000, description="after a cut it is decided by then whether it was meant"
    )
    warm_up_ms: int = Field(
        0, ge=0, le=10_000, description="no voice alone cuts until the echo canceller has converged"
    )
    near_end_looks: int = Field(
        2, ge=1, le=20, description="so many verdicts in a row take back that a voice is the bot's own"
    )
    answer_window_ms: int = Field(
        4_000, ge=0, le=60_000, description='for so long behind a question "yeah" is an answer'
    )
    protected_longest_ms: int = Field(30_000, ge=1_000, le=600_000, description="protection ends by itself")
    reply_wait_ms: int = Field(
        60_000, ge=1_000, le=600_000, description="a reply that is not heard by then does not come"
    )
    reply_longest_ms: int = Field(
        600_000, ge=10_000, le=3_600_000, description="a reply whose end is not reported has ended by then"
    )

    @model_validator(mode="after")
    def _ordered(self) -> "BargeInTuning":
        if not self.early_confirm_ms <= self.confirm_ms <= self.confirm_longest_ms:
            raise ValueError("expected early_confirm_ms <= confirm_ms <= confirm_longest_ms")
        if self.resume_ms >= self.undecided_ms or self.taken_ms >= self.undecided_ms:
            raise ValueError("expected resume_ms and taken_ms < undecided_ms")
        return self

    @property
    def sounds(self) -> UtteranceTuning:
        """Thresholds that classify utterances, including those that no deployment sets."""
        return tuned(UtteranceTuning, self.utterances)
