"""The list of what happens in a call.

Frames carry media and text through the pipeline; what *happens* is one of these events, published on the
stream of the call (``runtime.event_stream``). A stage publishes what it decides or notices and subscribes to
what it needs; it does not know its neighbours. ``docs/events.md`` lists who publishes and who subscribes.

Every event is stamped by its publisher on one clock, the one of the event loop (``at_ms``): it does not jump,
and a simulation moves it. Where an event carries a record of what was heard, the moments inside of that
record (``_us``) are on the session clock, because the record goes into the session.
"""

from dataclasses import dataclass
from enum import StrEnum

from core.timeline import HeardReply, HeardSoFar


@dataclass(frozen=True, slots=True)
class CallEvent:
    """Something that happened in a call. Subscribe to this class to receive every event.

    Attributes:
        at_ms: when, on the clock of the event loop.
    """

    at_ms: int


# The caller.


@dataclass(frozen=True, slots=True)
class CallerJoined(CallEvent):
    """The caller is connected; again when a client reconnects in the middle of the call."""


@dataclass(frozen=True, slots=True)
class VoiceSuspected(CallEvent):
    """A voice may have begun; voice activity is making sure."""


@dataclass(frozen=True, slots=True)
class VoicePaused(CallEvent):
    """The voice has paused and may have ended; voice activity is making sure."""


@dataclass(frozen=True, slots=True)
class VoiceResumed(CallEvent):
    """The voice goes on after such a pause."""


@dataclass(frozen=True, slots=True)
class VoiceStarted(CallEvent):
    """A voice has begun.

    Attributes:
        voiced_ms: how long it has been heard by now.
    """

    voiced_ms: int


@dataclass(frozen=True, slots=True)
class VoiceEnded(CallEvent):
    """The voice has ended.

    Attributes:
        silence_ms: how long it has been quiet by now.
    """

    silence_ms: int


@dataclass(frozen=True, slots=True)
class PartialWords(CallEvent):
    """The recogniser understands this so far; it may still change."""

    text: str


@dataclass(frozen=True, slots=True)
class FinalWords(CallEvent):
    """The recogniser has understood this.

    Attributes:
        confidences: 0..1, one for each word; None when the recogniser does not say.
    """

    text: str
    confidences: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class WordsAccepted(CallEvent):
    """Final words of the caller count for a turn."""


@dataclass(frozen=True, slots=True)
class WordsDiscarded(CallEvent):
    """The words since the last turn were not meant: no turn has them."""


@dataclass(frozen=True, slots=True)
class TextTyped(CallEvent):
    """The caller has typed a turn."""

    text: str


# The caller's turn.


@dataclass(frozen=True, slots=True)
class TurnStarted(CallEvent):
    """The caller's turn has begun."""


@dataclass(frozen=True, slots=True)
class PauseJudged(CallEvent):
    """It is known how complete the turn sounds in the present pause.

    Attributes:
        completeness: probability, 0..1.
    """

    completeness: float


@dataclass(frozen=True, slots=True)
class TurnEndDue(CallEvent):
    """It is known when the turn ends if the caller stays silent.

    Attributes:
        due_ms: on the clock of the event; None while it is not known.
    """

    due_ms: int | None


@dataclass(frozen=True, slots=True)
class TurnGuessed(CallEvent):
    """The turn may be over, with these words."""

    text: str


@dataclass(frozen=True, slots=True)
class GuessWithdrawn(CallEvent):
    """The turn goes on: the last guess is void."""


@dataclass(frozen=True, slots=True)
class TurnContinued(CallEvent):
    """The open turn has these words so far, and goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnEndDecided(CallEvent):
    """The caller's turn is over; its words may still be on their way.

    Attributes:
        silence_ms: the silence on which that was decided.
        completeness: how complete the turn sounded; None when that is not known.
        rule: which rule decided; empty where the stage has none.
    """

    silence_ms: int
    completeness: float | None
    rule: str = ""


@dataclass(frozen=True, slots=True)
class TurnEndRequested(CallEvent):
    """The caller's turn is to end now: its voice does not end, or the client says so.

    Attributes:
        waits_for_words: the words that are on their way belong to it.
    """

    waits_for_words: bool


@dataclass(frozen=True, slots=True)
class TurnEnded(CallEvent):
    """The caller's turn is over, with these words; without any it was none."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnTranscribed(CallEvent):
    """A realtime service has written down a turn, which may have ended before."""

    text: str


@dataclass(frozen=True, slots=True)
class QuestionDropped(CallEvent):
    """A turn is not asked, whatever was guessed about it."""


@dataclass(frozen=True, slots=True)
class QuestionReopened(CallEvent):
    """A turn whose wait was interrupted is still to be asked: the caller waits again."""


# What the caller waits for.


class Wait(StrEnum):
    """Reason for which a caller waits."""

    ANSWER = "answer"
    QUEUE = "queue"
    PERSON = "person"
    SCREENING = "screening"


@dataclass(frozen=True, slots=True)
class WaitBegan(CallEvent):
    """The caller waits: an answer is owed, every line is taken, a person's telephone rings."""

    reason: Wait


@dataclass(frozen=True, slots=True)
class WaitEnded(CallEvent):
    """The caller waits no longer: it is there, or does not come."""

    reason: Wait


@dataclass(frozen=True, slots=True)
class WaitMasked(CallEvent):
    """A phrase covers the silence before the answer."""


# What the model answers.


@dataclass(frozen=True, slots=True)
class ResponseStarted(CallEvent):
    """The model begins a response, which may be spoken, or only call tools."""


@dataclass(frozen=True, slots=True)
class ResponseText(CallEvent):
    """The next piece of a response."""

    text: str


@dataclass(frozen=True, slots=True)
class ResponseEnded(CallEvent):
    """A response of the model is over."""


@dataclass(frozen=True, slots=True)
class ToolsRenewed(CallEvent):
    """A client has named other tools of its own, or its text has changed what its rules permit."""


@dataclass(frozen=True, slots=True)
class ToolsCalled(CallEvent):
    """The model calls tools; the answer follows their results."""


@dataclass(frozen=True, slots=True)
class PhraseInserted(CallEvent):
    """A phrase that no model wrote goes to the voice."""


@dataclass(frozen=True, slots=True)
class AnsweredAhead(CallEvent):
    """The answer of the turn had been begun before the turn was over."""


@dataclass(frozen=True, slots=True)
class AnswerHeard(CallEvent):
    """The first sound of an answer has left.

    Attributes:
        latency_ms: since the last sound of the caller.
    """

    latency_ms: int


# A reply of the bot, from the first word of the model to the last packet.


@dataclass(frozen=True, slots=True)
class ReplyOpened(CallEvent):
    """The model begins to write a reply."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class ReplyWritten(CallEvent):
    """The model has written all of a reply."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class ReplyAnnounced(CallEvent):
    """The voice begins to synthesize a reply. Published again when the reply turns out to be protected.

    Attributes:
        protected: the reply may not be interrupted.
    """

    reply_id: str
    protected: bool


@dataclass(frozen=True, slots=True)
class ClauseAnnounced(CallEvent):
    """The voice is about to say the next clause of a reply."""

    reply_id: str
    text: str


@dataclass(frozen=True, slots=True)
class SpeechStarted(CallEvent):
    """The first clause of a stretch of speech is synthesized."""


@dataclass(frozen=True, slots=True)
class SpeechMade(CallEvent):
    """A piece of speech is on its way to the output."""


@dataclass(frozen=True, slots=True)
class ReplyStarted(CallEvent):
    """The first sound of a reply leaves. A reply may start that was never announced."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class WordsSpoken(CallEvent):
    """Words of the bot have passed the output; a voice without word times gives a sentence at a time."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyProgressed(CallEvent):
    """Another clause of a reply was heard."""

    heard: HeardSoFar


@dataclass(frozen=True, slots=True)
class ReplyFinished(CallEvent):
    """A reply was heard to its end, was cut off, or has no sound."""

    heard: HeardReply


@dataclass(frozen=True, slots=True)
class ReplyCorrected(CallEvent):
    """A client has said how much of a finished reply it played."""

    heard: HeardReply


@dataclass(frozen=True, slots=True)
class ReplyBrought(CallEvent):
    """A client says that the bot said this before."""

    text: str


@dataclass(frozen=True, slots=True)
class ClientDelayReported(CallEvent):
    """It is known how long the bot's audio takes to the caller's ear.

    Attributes:
        delay_ms: from the moment a packet leaves to its sound.
    """

    delay_ms: int


@dataclass(frozen=True, slots=True)
class UnplayedReported(CallEvent):
    """It is known how much of what has had its time a client that flushes does not play then.

    Attributes:
        unplayed_ms: of it, counted from its end.
    """

    unplayed_ms: int


@dataclass(frozen=True, slots=True)
class FloorTaken(CallEvent):
    """A reply is on, on its way or about to be resumed: the bot holds the floor."""


@dataclass(frozen=True, slots=True)
class FloorLeft(CallEvent):
    """The bot holds the floor no longer."""


@dataclass(frozen=True, slots=True)
class BotTurnEnded(CallEvent):
    """The bot's turn is over and in the context, as far as it was heard."""

    text: str
    interrupted: bool


# A voice over the bot.


@dataclass(frozen=True, slots=True)
class ReplyDucked(CallEvent):
    """A voice over the bot is weighed: the bot speaks lower."""


@dataclass(frozen=True, slots=True)
class ReplyRestored(CallEvent):
    """The voice was not meant: the bot speaks as loud as before."""


@dataclass(frozen=True, slots=True)
class ReplyCut(CallEvent):
    """The caller means it: the reply is flushed.

    Attributes:
        reason: what it was decided on.
        voice_ms: how long the voice has been heard; None where an engine decided.
    """

    reason: str
    voice_ms: int | None


@dataclass(frozen=True, slots=True)
class ReplyResumed(CallEvent):
    """The cut was for nothing: the rest of the reply is said."""

    from_word: int


# The call.


@dataclass(frozen=True, slots=True)
class CallAnswered(CallEvent):
    """It is known who answered a call that was placed.

    Attributes:
        by: "person", "voicemail", or "nobody" where no word was said.
    """

    by: str


@dataclass(frozen=True, slots=True)
class EnginesGivenUp(CallEvent):
    """Every speech model of the call has given up.

    Attributes:
        error: what the last one failed of.
    """

    error: Exception


@dataclass(frozen=True, slots=True)
class PauseExpired(CallEvent):
    """A client has paused a speech model for longer than is allowed."""


@dataclass(frozen=True, slots=True)
class CallEnding(CallEvent):
    """The call ends for this reason, which is not that the caller left.

    Attributes:
        reason: a word.
        message: a sentence for people.
    """

    reason: str
    message: str
