"""Settings of ``barge_in`` (``hearing.barge_in``). Lengths are those of audio."""

from pydantic import Field, model_validator

from parley.core.strict_model import StrictModel
from parley.core.tuning import tuned
from parley.turn_taking.barge_in.looks import LookSettings
from parley.turn_taking.utterances import UtteranceSettings, UtteranceTuning


class BargeInSettings(StrictModel):
    """Conditions under which a voice is an interruption.

    ``confirm_ms`` is the longest hum: a caller who hums is not cut, and a caller who speaks is cut by words
    before that.
    """

    confirm_ms: int = Field(
        700,
        ge=300,
        le=1_500,
        description="length above which a voice over the bot is an interruption and stops the bot",
    )
    looks: bool = Field(
        False,
        description="judge a voice before its words arrive, if the recogniser supports it; false: its words "
        "decide",
    )
    utterances: UtteranceSettings = UtteranceSettings()


class BargeInTuning(BargeInSettings):
    """Barge-in settings including the values that no deployment sets.

    LiveKit cuts after 500 ms of voice and resumes after 2 s. In the first 3 s of a call both LiveKit and
    Unmute ignore a voice without words (``warm_up_ms``, for a canceller that has to converge).
    """

    # A caller who says "stop" is obeyed in every state. What has to be heard to its end, by law, is
    # ``bot.disclosure`` or ``recording.announcement``, which no word interrupts.
    protected_yields_to_stop: bool = Field(
        True, description="a stop word interrupts a protected reply too (``bot.greeting_interruptible``)"
    )
    look_bounds: LookSettings = LookSettings()
    duck_db: float = Field(-12.0, ge=-60, le=0, description="gain of the bot's voice while the caller speaks")
    duck_longest_ms: int = Field(
        3_000, ge=500, le=30_000, description="longest ducking for a caller who coughs repeatedly"
    )
    maybe_ms: int = Field(
        200,
        ge=0,
        le=1_000,
        description="time after which a possible voice without a confirmed voice counts as none; 0: no "
        "ducking for a possible voice",
    )
    maybe_rest_ms: int = Field(
        1_500,
        ge=0,
        le=10_000,
        description="time after such a mistake in which a possible voice does not duck the bot",
    )
    end_lag_ms: int = Field(
        96, ge=0, le=1_000, description="delay with which a possible end of the voice is detected"
    )
    pause_hold_ms: int = Field(
        96, ge=0, le=1_000, description="time from a possible end of the voice to a certain one"
    )
    # Not more by default: a voice that begins after the first sound may be its echo.
    early_ms: int = Field(
        0,
        ge=0,
        le=2_000,
        description="time from the start of a reply's playback; a voice that begins within it continues the "
        "caller's turn",
    )
    early_confirm_ms: int = Field(300, ge=50, le=3_000, description="``confirm_ms`` of such a voice")
    listener_confirm_ms: int = Field(
        900,
        ge=100,
        le=3_000,
        description="``confirm_ms`` of a voice whose uncertain words begin like a backchannel",
    )
    confirm_growth_ms: int = Field(
        200, ge=0, le=1_000, description="increase of ``confirm_ms`` with each false interruption in a row"
    )
    confirm_longest_ms: int = Field(1_500, ge=100, le=5_000, description="upper limit of that increase")
    # Of 9 hums and "right"s that PocketSphinx wrote as other words, some have one word above this, none two.
    sure_confidence: float = Field(
        0.85,
        ge=0,
        le=1,
        description="confidence of all words of a short voice from which they count, whatever a spotter "
        "reports",
    )
    # Chosen on 36 calls of ``research.turn_taking.overlaps``: a listener's words are judged below the first,
    # and hums that a grammar took for a command below the second.
    floor_log_odds: float = Field(
        0.2,
        ge=-20,
        le=20,
        description="log odds of wanting the floor from which a short voice is an interruption",
    )
    command_floor_log_odds: float = Field(
        -1.0,
        ge=-20,
        le=20,
        description="log odds of wanting the floor below which a spotted command is ignored",
    )
    confirm_words: int = Field(2, ge=1, le=10, description="understood words that make an interruption")
    words_wait_ms: int = Field(
        450,
        ge=0,
        le=3_000,
        description="time from the detected end of a short voice to its last words and to the spotter's "
        "result, p99",
    )
    follow_ms: int = Field(
        1_000,
        ge=0,
        le=5_000,
        description="time from the end of a short voice whose words were too unsure to interrupt to the "
        "beginning of a voice that takes the floor, whose turn has them too",
    )
    resume_ms: int = Field(
        2_000, ge=200, le=10_000, description="silence without words after which a cut was a mistake"
    )
    taken_ms: int = Field(
        1_500,
        ge=200,
        le=10_000,
        description="length of the voice after the cut from which the interruption was meant",
    )
    undecided_ms: int = Field(
        10_000,
        ge=1_000,
        le=60_000,
        description="time after a cut by which it has to be decided whether it was meant",
    )
    warm_up_ms: int = Field(
        0,
        ge=0,
        le=10_000,
        description="time for the echo canceller to converge, in which a voice alone does not interrupt",
    )
    near_end_looks: int = Field(
        2,
        ge=1,
        le=20,
        description="consecutive verdicts that withdraw the verdict that the voice is the bot's own",
    )
    answer_window_ms: int = Field(
        4_000, ge=0, le=60_000, description='time after a question of the bot in which "yeah" is an answer'
    )
    protected_longest_ms: int = Field(
        30_000, ge=1_000, le=600_000, description="longest protection of a reply"
    )
    reply_wait_ms: int = Field(
        60_000,
        ge=1_000,
        le=600_000,
        description="time within which a reply has to be heard, or it counts as lost",
    )
    reply_longest_ms: int = Field(
        600_000,
        ge=10_000,
        le=3_600_000,
        description="time after which a reply whose end is not reported has ended",
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
