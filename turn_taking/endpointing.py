"""When is the caller's turn over?

The decision weighs two costs: answering late is felt on every turn, answering early cuts somebody off. The
wait after the last voice is therefore a function of how complete the turn sounds (a model's probability,
heard) and how complete it reads (its last words): short after a complete clause, long after a conjunction or
a filler.

Events and times come in, at most one ``Endpoint`` per turn goes out. All times are milliseconds on the
session clock. The final transcript gates the decision, so that the answer is to what was said: it is waited
for a bounded time only. A turn in which nothing was understood ends as ``EMPTY`` after ``empty_ms``, so that
a cough never holds the floor.
"""

from dataclasses import dataclass
from enum import Enum

from pydantic import BaseModel, ConfigDict, Field, model_validator

# A clause rarely ends on these: the speaker has more to say. Closed classes of English (conjunctions,
# determiners, possessives, contracted subjects). Prepositions and auxiliaries are left out: questions end on
# them ("what is it for").
HANGING_WORDS = frozenset(
    "a an and the but or so because if when while although though than as of my your his her our their "
    "its these those i'm i'd i'll we're we'd we'll you're they're which whose i we".split()
)
# A sentence may end on these (prepositions, auxiliaries, question words, pronouns after a verb), but when it
# also sounds unfinished it goes on: two weak signs together are a strong one.
TRAILING_WORDS = frozenset(
    "for to of with about from in on at by into is are was do does did can could will would should have has "
    "when how what where who that them him her me you us one if".split()
)
FILLERS = frozenset("uh um er erm hmm mm ah eh like well".split())


class EndpointSettings(BaseModel):
    """How long to wait. The defaults are for a web conversation; a bank's phone line may wait longer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_silence_ms: int = Field(
        180, ge=100, le=2_000, description="wait after a turn that is surely complete"
    )
    max_silence_ms: int = Field(640, ge=100, le=5_000, description="wait after a turn that sounds incomplete")
    hanging_silence_ms: int = Field(
        900, ge=100, le=10_000, description="wait after a conjunction, an article or a filler"
    )
    complete_probability: float = Field(
        0.5, gt=0, lt=1, description="from here on the turn counts as complete"
    )
    unfinished_probability: float = Field(
        0.3,
        ge=0,
        lt=1,
        description="below this the turn sounds unfinished, and a word that may trail off hangs",
    )
    hanging_confidence: float = Field(
        0.15,
        ge=0,
        le=1,
        description="a last word that was understood worse than this says nothing about the turn",
    )
    onset_hold_ms: int = Field(
        150, ge=0, le=1_000, description="a possible voice puts the end of the turn off for this long"
    )
    transcript_wait_ms: int = Field(700, ge=0, le=10_000, description="longest wait for the final words")
    empty_ms: int = Field(
        1_500, ge=200, le=10_000, description="silence after which an unintelligible turn ends"
    )

    @model_validator(mode="after")
    def _ordered(self) -> "EndpointSettings":
        if not self.min_silence_ms <= self.max_silence_ms <= self.hanging_silence_ms:
            raise ValueError("expected min_silence_ms <= max_silence_ms <= hanging_silence_ms")
        return self


class EndpointKind(Enum):
    """How a turn ended."""

    COMPLETE = "complete"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The decision that the turn is over.

    Attributes:
        at_ms: when it was taken.
        silence_ms: silence that had passed by then.
        completeness: the probability that it was based on, None when none arrived in time.
        kind: whether there are words to answer.
    """

    at_ms: int
    silence_ms: int
    completeness: float | None
    kind: EndpointKind


def ends_hanging(text: str) -> bool:
    """Whether the words end inside a clause or on a hesitation. Case and punctuation do not matter."""
    word = _last_word(text)
    return word in FILLERS or word in HANGING_WORDS


def _last_word(text: str) -> str:
    words = text.lower().strip(" .,!?;:-").split()
    return words[-1] if words else ""


class Endpointer:
    """Decides when one caller's turn is over."""

    def __init__(self, settings: EndpointSettings | None = None) -> None:
        self._settings = settings or EndpointSettings()
        self._voice = False
        self._fell_silent_ms: int | None = None
        self.reset()

    def reset(self) -> None:
        """Forget the turn: the next voice starts another."""
        self._silent_since_ms: int | None = None
        self._completeness: float | None = None
        self._completeness_due = False
        self._text = ""
        self._last_word_confidence = 0.0
        self._transcript_due_ms: int | None = None
        self._hold_until_ms: int | None = None
        self._done = False

    @property
    def text(self) -> str:
        """What was understood in this turn so far."""
        return self._text

    def on_voice_started(self, at_ms: int) -> None:
        """The caller speaks (again): whatever was concluded from the pause is void."""
        self._voice = True
        self._silent_since_ms = None
        self._completeness = None
        self._completeness_due = False
        self._transcript_due_ms = None
        self._hold_until_ms = None
        self._done = False

    def on_maybe_voice(self, at_ms: int) -> None:
        """Something that may be the caller's voice began. Voice activity needs a while to be sure; a turn
        that ended meanwhile would cut the caller off.
        """
        self._hold_until_ms = at_ms + self._settings.onset_hold_ms

    def on_voice_stopped(self, at_ms: int, *, silence_ms: int) -> None:
        """The caller fell silent ``silence_ms`` before ``at_ms``. A completeness estimate and words are
        expected.
        """
        self._voice = False
        self._silent_since_ms = self._fell_silent_ms = at_ms - silence_ms
        self._completeness = None
        self._completeness_due = True
        self._transcript_due_ms = at_ms + self._settings.transcript_wait_ms

    def is_complete(self, probability: float) -> bool:
        """Whether more evidence could not shorten the wait any further."""
        return probability >= self._settings.complete_probability

    def on_completeness(self, probability: float) -> None:
        """How complete the turn sounds, 0..1."""
        self._completeness = probability
        self._completeness_due = False

    def on_transcript(self, at_ms: int, text: str, *, last_word_confidence: float = 1.0) -> None:
        """Final words of the speech that just ended; they add to those of earlier pauses. May be empty.

        Words may come when the turn has long ended, or without a voice that anybody noticed: then they are a
        turn of their own, and the silence behind it began when the voice did end. Recognisers fill noise with
        short words ("the", "and"): the last word counts as far as it was understood.
        """
        if text:
            self._last_word_confidence = last_word_confidence
            if not self._voice and self._silent_since_ms is None:
                self._silent_since_ms = self._fell_silent_ms if self._fell_silent_ms is not None else at_ms
        self._text = f"{self._text} {text}".strip()
        self._transcript_due_ms = None

    def wait_ms(self) -> int:
        """Silence after which the turn is over, from what is known now."""
        chosen = self._settings
        if self._last_word_confidence >= chosen.hanging_confidence and ends_hanging(self._text):
            return chosen.hanging_silence_ms
        sounds_unfinished = self._completeness is not None and (
            self._completeness < chosen.unfinished_probability
        )
        if sounds_unfinished and _last_word(self._text) in TRAILING_WORDS:
            return chosen.hanging_silence_ms
        if self._completeness is None:
            return chosen.max_silence_ms
        # The estimate is graded, so the wait is: a threshold would treat 0.79 as 0.01.
        share = min(1.0, self._completeness / chosen.complete_probability)
        return round(chosen.max_silence_ms - (chosen.max_silence_ms - chosen.min_silence_ms) * share)

    def next_deadline_ms(self) -> int | None:
        """When ``on_deadline`` is to be called, None while the caller speaks or the turn is decided."""
        if self._silent_since_ms is None or self._done:
            return None
        chosen = self._settings
        if not self._text:
            return max(self._silent_since_ms + chosen.empty_ms, self._hold_until_ms or 0)
        due_ms = self._silent_since_ms + self.wait_ms()
        if self._transcript_due_ms is not None:
            due_ms = max(due_ms, self._transcript_due_ms)
        return max(due_ms, self._hold_until_ms or 0)

    def on_deadline(self, at_ms: int) -> Endpoint | None:
        """The decision, when it is due at ``at_ms``; at most once per turn."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or self._silent_since_ms is None or at_ms < deadline_ms:
            return None
        self._done = True
        kind = EndpointKind.COMPLETE if self._text else EndpointKind.EMPTY
        return Endpoint(at_ms, at_ms - self._silent_since_ms, self._completeness, kind)
