"""Events of a call.

Frames carry media and text through the pipeline; everything that *happens* is one of these events, published
on the stream of the call (``runtime.event_stream``). A stage publishes its decisions and observations and
subscribes to the events that it needs; it has no reference to its neighbours. ``docs/reference/events.md``
lists publishers and subscribers.

The publisher stamps every event on one clock, that of the event loop (``at_ms``): it does not jump, and a
simulation moves it. An event may carry a record of what was heard. The moments inside such a record (``_us``)
are on the session clock, because the record goes into the session.
"""

from dataclasses import dataclass
from enum import StrEnum

from parley.core.failover import FailoverReason
from parley.core.media import WordTime
from parley.core.passage_notes import CitedPassage
from parley.core.pictures import CAMERA, Picture
from parley.core.speech_reports import SpeechReport
from parley.core.tiers import Medium, Tier
from parley.core.timeline import (
    Annotation,
    HeardReply,
    HeardSoFar,
    KnownVoice,
    OutsideReport,
    Source,
)
from parley.core.units import Tick
from parley.core.usage import PricedUsage, Stage, Usage


@dataclass(frozen=True, slots=True)
class CallEvent:
    """Something that happened in a call. Subscribe to this class to receive every event.

    Attributes:
        at_ms: moment on the clock of the event loop.
    """

    at_ms: int


# The caller.


@dataclass(frozen=True, slots=True)
class CallerJoined(CallEvent):
    """The caller is connected; published again when a client reconnects during the call."""


@dataclass(frozen=True, slots=True)
class CallerLeft(CallEvent):
    """The caller has disconnected; where the server ends the call, that is ``CallEnding`` instead."""


@dataclass(frozen=True, slots=True)
class VoiceSuspected(CallEvent):
    """A voice may have begun; voice activity detection is not yet certain."""


@dataclass(frozen=True, slots=True)
class VoicePaused(CallEvent):
    """The voice has paused and may have ended; voice activity detection is not yet certain."""


@dataclass(frozen=True, slots=True)
class VoiceResumed(CallEvent):
    """The voice continues after such a pause."""


@dataclass(frozen=True, slots=True)
class VoiceStarted(CallEvent):
    """A voice has begun.

    Attributes:
        voiced_ms: duration of the voice so far.
    """

    voiced_ms: int


@dataclass(frozen=True, slots=True)
class VoiceEnded(CallEvent):
    """The voice has ended.

    Attributes:
        silence_ms: duration of the silence so far.
    """

    silence_ms: int


@dataclass(frozen=True, slots=True)
class PartialWords(CallEvent):
    """The recogniser reports these words so far; they may still change."""

    text: str


@dataclass(frozen=True, slots=True)
class FinalWords(CallEvent):
    """The recogniser reports its final words.

    Attributes:
        confidences: 0..1, one per word; None when the recogniser reports none.
    """

    text: str
    confidences: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class UtteranceRead(CallEvent):
    """The embedded recogniser has read an utterance to its end; published in calls that are recorded.

    Attributes:
        recogniser: its name and settings; words of another one are other words.
        since_ms: time since the beginning of the utterance.
        audio_ms: length of its audio.
        took_ms: time from its end to the final words.
        partials: texts while it was spoken, each after the time since the beginning, in ms.
        text, words, confidence, floor_log_odds: its final transcript.
        heard_ms: length of the caller's audio that the recogniser had got when it began; None: not known.
    """

    recogniser: str
    since_ms: int
    audio_ms: int
    took_ms: int
    partials: tuple[tuple[int, str], ...]
    text: str
    words: tuple[WordTime, ...]
    confidence: float
    floor_log_odds: float | None
    heard_ms: int | None = None

    @property
    def began_ms(self) -> int:
        """Time at which the utterance began."""
        return self.at_ms - self.since_ms


@dataclass(frozen=True, slots=True)
class SpeechReported(CallEvent):
    """A specialist reports on the caller's speech, for the tier of an engine that decides about turns.

    Attributes:
        report: its words, or a finding about the present voice.
    """

    report: SpeechReport


@dataclass(frozen=True, slots=True)
class WordsOwed(CallEvent):
    """The recogniser owes the words of speech that is over, or owes none any more.

    Only from a recogniser that reports it. While it owes words, no turn ends and no caller is prompted.
    """

    is_owed: bool


@dataclass(frozen=True, slots=True)
class WordsAccepted(CallEvent):
    """Final words of the caller count for a turn."""


@dataclass(frozen=True, slots=True)
class WordsDiscarded(CallEvent):
    """The words since the last turn were not meant for the bot and belong to no turn."""


@dataclass(frozen=True, slots=True)
class AnnotationReported(CallEvent):
    """A specialist has reported something about the caller, or that it is alive.

    Attributes:
        stream: the specialist.
        annotation: its report, times on the session clock; None: nothing to report.
        identity: identifies the statement, when it may be revised.
        revision: counts up while it is.
        passed_us: no event before this moment is reported any more, on the session clock; None without a
            statement about that.
        judged_us: moment up to which everything is judged. It is before ``passed_us`` where a report about a
            stretch is an event at its end. None: the same.
    """

    stream: Source
    annotation: Annotation | None = None
    identity: str | None = None
    revision: int = 0
    passed_us: int | None = None
    judged_us: int | None = None


@dataclass(frozen=True, slots=True)
class SpecialistLeft(CallEvent):
    """A specialist reports nothing more, until it reports again.

    Attributes:
        stream: the specialist.
    """

    stream: Source


@dataclass(frozen=True, slots=True)
class VoicesLearnt(CallEvent):
    """The voices of a call's speakers are known better; only where voiceprints are asked for.

    Attributes:
        voices: of all known speakers.
    """

    voices: tuple[KnownVoice, ...]


@dataclass(frozen=True, slots=True)
class OutsideReportsReceived(CallEvent):
    """A program outside of this process reports what it perceived.

    Attributes:
        reports: in the order in which they were made, with times on the session clock.
    """

    reports: tuple[OutsideReport, ...]


@dataclass(frozen=True, slots=True)
class OutsideStreamEnded(CallEvent):
    """The last program has left that was connected to report in a stream.

    Attributes:
        stream: the specialist.
    """

    stream: Source


@dataclass(frozen=True, slots=True)
class TextTyped(CallEvent):
    """The caller has typed a turn."""

    text: str


@dataclass(frozen=True, slots=True)
class PicturesTaken(CallEvent):
    """A turn of the caller is committed with pictures: those they show, a shared screen, the camera."""

    pictures: tuple[Picture, ...]


# Personal data in the caller's words (``privacy``).


@dataclass(frozen=True, slots=True)
class SpeechHeld(CallEvent):
    """The caller speaks: of the audio from a moment on it is not decided yet whether its words are redacted.

    Attributes:
        since_ms: the moment, on the clock of the event.
    """

    since_ms: int


@dataclass(frozen=True, slots=True)
class SpeechSettled(CallEvent):
    """The redaction of the caller's audio up to a moment is decided.

    Attributes:
        until_ms: the moment, on the clock of the event.
        redacted: beginnings and ends of what is redacted in it, on the same clock.
    """

    until_ms: int
    redacted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PrivatePauseRequested(CallEvent):
    """A pause of everything that keeps the call is requested, or its end.

    Attributes:
        is_on: the pause is to begin, or goes on for its longest time from now.
        by: "operator", "tool" or "time".
    """

    is_on: bool
    by: str


@dataclass(frozen=True, slots=True)
class PrivatePauseBegan(CallEvent):
    """From here on nothing of the call is recorded or stored.

    Attributes:
        by: "operator" or "tool".
    """

    by: str


@dataclass(frozen=True, slots=True)
class PrivatePauseEnded(CallEvent):
    """The call is recorded and stored again.

    Attributes:
        by: "operator", "tool" or "time".
    """

    by: str


# The caller's turn.


@dataclass(frozen=True, slots=True)
class TurnStarted(CallEvent):
    """The caller's turn has begun."""


@dataclass(frozen=True, slots=True)
class TurnEstimated(CallEvent):
    """The completeness model has looked at a pause of the caller; published in calls that are recorded.

    Attributes:
        model: its name and settings; estimates of another one are other estimates.
        look: its occasion: the pause, its confirmation, or later in it.
        heard_ms: length of the caller's audio up to the look.
        complete: probability that the turn is complete, 0..1.
        filler_log_odds: log odds that it stops on a filler; None from a model without an estimate.
    """

    model: str
    look: str
    heard_ms: int
    complete: float
    filler_log_odds: float | None = None


@dataclass(frozen=True, slots=True)
class PauseJudged(CallEvent):
    """The completeness of the turn in the present pause has been estimated.

    Attributes:
        completeness: probability that the turn is complete, 0..1.
    """

    completeness: float


@dataclass(frozen=True, slots=True)
class TurnEndDue(CallEvent):
    """The moment at which the turn ends, if the caller stays silent, has been decided or withdrawn.

    Attributes:
        due_ms: on the clock of the event; None while it is undecided.
    """

    due_ms: int | None


@dataclass(frozen=True, slots=True)
class TurnGuessed(CallEvent):
    """The turn may be over, with these words."""

    text: str


@dataclass(frozen=True, slots=True)
class GuessWithdrawn(CallEvent):
    """The turn continues; the last guess is void."""


@dataclass(frozen=True, slots=True)
class TurnContinued(CallEvent):
    """The open turn has these words so far and continues."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnEndDecided(CallEvent):
    """The caller's turn is over; its words may still be on their way.

    Attributes:
        silence_ms: silence after which the end was decided.
        completeness: estimated completeness of the turn; None when there is no estimate.
        rule: name of the rule that decided; empty where the stage has none.
    """

    silence_ms: int
    completeness: float | None
    rule: str = ""


@dataclass(frozen=True, slots=True)
class TurnEndRequested(CallEvent):
    """The caller's turn is to end now: the voice does not end, or the client requests it.

    Attributes:
        waits_for_words: true when words that are still on their way belong to the turn.
    """

    waits_for_words: bool


@dataclass(frozen=True, slots=True)
class TurnEnded(CallEvent):
    """The caller's turn is over, with these words; without words there was no turn."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnTranscribed(CallEvent):
    """A realtime service has transcribed a turn, which may have ended earlier."""

    text: str


@dataclass(frozen=True, slots=True)
class QuestionSent(CallEvent):
    """A turn is sent to the model, with what it is shown of the conversation.

    Attributes:
        words: number of words of all that.
    """

    words: int


@dataclass(frozen=True, slots=True)
class QuestionDropped(CallEvent):
    """The turn is not sent to the model, whatever was guessed about it."""


@dataclass(frozen=True, slots=True)
class QuestionReopened(CallEvent):
    """A turn whose wait was interrupted is still to be answered; the caller waits again."""


# The tier of the session.


@dataclass(frozen=True, slots=True)
class TierChanged(CallEvent):
    """The session has changed its tier: the agent, a human, the way to either, or to another medium.

    Attributes:
        tier: the new tier.
        epoch: number of changes of the session.
        to: medium of a step that begins, goes on or has just ended; None for other changes.
    """

    tier: Tier
    epoch: int
    to: Medium | None = None


@dataclass(frozen=True, slots=True)
class VoiceChosen(CallEvent):
    """The client of the call has chosen another voice, which speaks from the next reply on.

    Attributes:
        voice: its name in ``speaking.voices``, or that of the deployment's own voice.
    """

    voice: str


@dataclass(frozen=True, slots=True)
class TextGiven(CallEvent):
    """A text that no model wrote is to be said to the caller.

    Attributes:
        text: the words.
        by_human: a human at the desk wrote it; otherwise the deployment.
    """

    text: str
    by_human: bool


@dataclass(frozen=True, slots=True)
class PhraseChosen(CallEvent):
    """The deployment, and not the model, says these words: a phrase of the human tier, or of the call itself.

    Attributes:
        text: the words.
    """

    text: str


@dataclass(frozen=True, slots=True)
class CameraChanged(CallEvent):
    """A camera or a shared screen of the caller has begun to show something, or has stopped.

    Attributes:
        is_on: pictures come.
        source: ``core.pictures.CAMERA`` or ``SCREEN``.
    """

    is_on: bool
    source: str = CAMERA


# Waits of the caller.


class Wait(StrEnum):
    """Reason for which a caller waits."""

    ANSWER = "answer"
    QUEUE = "queue"
    PERSON = "person"
    SCREENING = "screening"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class WaitBegan(CallEvent):
    """The caller begins to wait: for an answer, a free line, a person who is being rung, or on hold."""

    reason: Wait


@dataclass(frozen=True, slots=True)
class WaitEnded(CallEvent):
    """The caller no longer waits: the wait was fulfilled or given up."""

    reason: Wait


@dataclass(frozen=True, slots=True)
class WaitMasked(CallEvent):
    """A phrase covers the silence before the answer."""


@dataclass(frozen=True, slots=True)
class HoldRequested(CallEvent):
    """The caller puts the call on hold, or goes on with it."""

    is_on: bool


@dataclass(frozen=True, slots=True)
class HoldBegan(CallEvent):
    """The call is on hold: the bot is silent, and the caller is not heard."""


@dataclass(frozen=True, slots=True)
class HoldEnded(CallEvent):
    """The hold is over.

    Attributes:
        by: "caller", or "time" after its longest time and "goodbye" when the call ends otherwise.
    """

    by: str


# Responses of the model.


@dataclass(frozen=True, slots=True)
class ResponseStarted(CallEvent):
    """The model begins a response, which may be spoken or may only call tools.

    Attributes:
        prompt: with which it was asked; None where that is not known.
    """

    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class ResponseText(CallEvent):
    """The next piece of a response has arrived.

    Attributes:
        text: the piece.
        author: engine that wrote it in place of the call's language model, "deployment" for a phrase of the
            deployment; empty for the language model.
    """

    text: str
    author: str = ""


@dataclass(frozen=True, slots=True)
class ResponseEnded(CallEvent):
    """A response of the model is complete."""


@dataclass(frozen=True, slots=True)
class ToolsRenewed(CallEvent):
    """A client has declared other tools of its own, or its text has changed the tools that it may use."""


@dataclass(frozen=True, slots=True)
class ToolsCalled(CallEvent):
    """The model calls tools; the answer follows their results."""


@dataclass(frozen=True, slots=True)
class PhraseInserted(CallEvent):
    """A phrase that no model wrote is sent to the voice."""


@dataclass(frozen=True, slots=True)
class AnsweredAhead(CallEvent):
    """The answer of the turn was begun before the turn was over."""


@dataclass(frozen=True, slots=True)
class AnswerHeard(CallEvent):
    """The first sound of an answer has left.

    Attributes:
        latency_ms: time since the last sound of the caller.
        stages_ms: name and duration of each stage of that time, in order; they add up to it.
    """

    latency_ms: int
    stages_ms: tuple[tuple[str, float], ...] = ()


# A reply of the bot, from the first word of the model to the last packet.


@dataclass(frozen=True, slots=True)
class ReplyOpened(CallEvent):
    """The model begins to write a reply."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class PassagesCited(CallEvent):
    """The passages that a reply rests on are known; a later event of the same reply replaces an earlier one.

    Attributes:
        reply_id: the reply.
        passages: the best first; empty when it rests on none after all.
    """

    reply_id: str
    passages: tuple[CitedPassage, ...]


@dataclass(frozen=True, slots=True)
class ReplyWritten(CallEvent):
    """The model has written all of a reply."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class ReplyAnnounced(CallEvent):
    """The voice begins to synthesize a reply. Published again when the reply turns out to be protected.

    Attributes:
        protected: true when the reply may not be interrupted.
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
    """A piece of synthesized speech is on its way to the output.

    Attributes:
        audio_ms: its duration.
    """

    audio_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplyStarted(CallEvent):
    """The first sound of a reply leaves. A reply that was never announced may also start."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class WordsSpoken(CallEvent):
    """Words of the bot have passed the output; a voice without word times reports a sentence at a time."""

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
    """A client has reported how much of a finished reply it played."""

    heard: HeardReply


@dataclass(frozen=True, slots=True)
class ReplyBrought(CallEvent):
    """A client reports earlier speech of the bot."""

    text: str


@dataclass(frozen=True, slots=True)
class ClientDelayReported(CallEvent):
    """It is known how long the bot's audio takes to the caller's ear.

    Attributes:
        delay_ms: from the moment a packet leaves to its sound.
    """

    delay_ms: int


@dataclass(frozen=True, slots=True)
class LatencyHeard(CallEvent):
    """A client has measured how long its user waited for an answer, from sound to sound at the user's side.

    Attributes:
        turn: number of the turn that was answered (``telemetry.turns``).
        server_ms: the same wait at the server, from the last audible sample that came to the first that left.
        stages_ms: its parts, each with its name.
        heard_ms: at the user, with the delay of the loudspeaker.
        round_trip_ms: of the network.
        jitter_buffer_ms: delay of the client's jitter buffer.
        output_ms: delay of the client's loudspeaker.
    """

    turn: int
    server_ms: int
    stages_ms: tuple[tuple[str, float], ...]
    heard_ms: int
    round_trip_ms: int
    jitter_buffer_ms: int
    output_ms: int


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
    """The bot's turn is over and has been added to the context, as far as it was heard."""

    text: str
    interrupted: bool


# Voices that overlap the bot's speech.


@dataclass(frozen=True, slots=True)
class ReplyDucked(CallEvent):
    """A voice over the bot is being judged; the bot speaks at a lower level meanwhile."""


@dataclass(frozen=True, slots=True)
class ReplyRestored(CallEvent):
    """The voice was not an interruption; the bot speaks at its former level again."""


@dataclass(frozen=True, slots=True)
class ReplyCut(CallEvent):
    """The caller interrupts on purpose: the reply is flushed.

    Attributes:
        reason: basis of the decision.
        voice_ms: duration of the voice so far; None where an engine decided.
    """

    reason: str
    voice_ms: int | None


@dataclass(frozen=True, slots=True)
class ReplyResumed(CallEvent):
    """The interruption was unintended: the rest of the reply is spoken."""

    from_word: int


@dataclass(frozen=True, slots=True)
class VoteChanged(CallEvent):
    """A full-duplex engine decides otherwise than for the unit before.

    Attributes:
        vote: decision from this unit on: "listen", "speak", "backchannel" or "yield".
    """

    vote: str


@dataclass(frozen=True, slots=True)
class UnitTaken(CallEvent):
    """A full-duplex engine has taken a unit.

    Attributes:
        tick: its outcome.
    """

    tick: Tick


# Engines and media.


@dataclass(frozen=True, slots=True)
class EngineUsed(CallEvent):
    """An engine or a service has done work that is counted, and may be billed.

    Attributes:
        stage: its stage.
        model: name of its model; empty where it reports none.
        usage: amounts since its last report.
        is_out_of_band: for a text that a client requests outside of the conversation.
    """

    stage: Stage
    model: str
    usage: Usage
    is_out_of_band: bool = False


@dataclass(frozen=True, slots=True)
class ServiceSent(CallEvent):
    """A realtime service has sent text or sound of a reply, or the beginning or the end of one.

    Attributes:
        is_reply_open: a reply goes on after it.
    """

    is_reply_open: bool


@dataclass(frozen=True, slots=True)
class ServiceSpoke(CallEvent):
    """A realtime service has sent the first audio of a reply."""


@dataclass(frozen=True, slots=True)
class TurnPriced(CallEvent):
    """The use of engines since the last turn of the bot, with its cost.

    Attributes:
        turn: number of the caller's turns so far; 0 for the greeting.
        used: one for each model that was used.
    """

    turn: int
    used: tuple[PricedUsage, ...]


@dataclass(frozen=True, slots=True)
class EngineFailed(CallEvent):
    """An engine or a service of the call has reported an error.

    Attributes:
        stage: its stage; None where the error is of another part.
        is_permanent: the error will recur: the service cannot work any more in this call.
    """

    stage: Stage | None
    is_permanent: bool = False


@dataclass(frozen=True, slots=True)
class FallbackAnswers(CallEvent):
    """The fallback answers a turn in place of the language model.

    Attributes:
        reason: one word.
        engine, successor: names of the rows of the language model and of its fallback.
    """

    reason: str
    engine: str = ""
    successor: str = ""


@dataclass(frozen=True, slots=True)
class PacketLate(CallEvent):
    """A packet of the bot's audio leaves so late that the caller may hear it.

    Attributes:
        late_ms: time since it was due.
    """

    late_ms: int


# The call as a whole.


@dataclass(frozen=True, slots=True)
class CallBegan(CallEvent):
    """The call begins: from here on it is in the records of its session."""


@dataclass(frozen=True, slots=True)
class CallEnded(CallEvent):
    """The call is over, for any reason, and everything of it has been recorded."""


@dataclass(frozen=True, slots=True)
class TransferBegan(CallEvent):
    """A person is rung, to take the call over."""


@dataclass(frozen=True, slots=True)
class TransferEnded(CallEvent):
    """The transfer to a person is over.

    Attributes:
        outcome: "taken", "gone" when the caller hung up first, or why no person has taken the call.
    """

    outcome: str


@dataclass(frozen=True, slots=True)
class CallAnswered(CallEvent):
    """The party that answered an outbound call has been identified.

    Attributes:
        by: "person", "voicemail", or "nobody" where no word was said.
    """

    by: str


@dataclass(frozen=True, slots=True)
class EngineFailedOver(CallEvent):
    """Another engine of a stage goes on in place of the one so far.

    Attributes:
        stage: section of the deployment: "hearing", "speaking", or "duplex" for a realtime service.
        engine, successor: names of their rows.
        reason: why; ``RECOVERED`` when the successor had failed before.
    """

    stage: str
    engine: str
    successor: str
    reason: FailoverReason


@dataclass(frozen=True, slots=True)
class EnginesGivenUp(CallEvent):
    """Every engine of a stage has failed for good: no speech model, recogniser, language model or voice is
    left for the call.

    Attributes:
        error: failure of the last one.
        stage: the stage; None for a speech model, which is all of them.
    """

    error: Exception
    stage: Stage | None = None


@dataclass(frozen=True, slots=True)
class PauseExpired(CallEvent):
    """A client has paused a speech model for longer than is allowed."""


@dataclass(frozen=True, slots=True)
class CallEnding(CallEvent):
    """The call ends for a reason other than the caller leaving.

    Attributes:
        reason: one word.
        message: a sentence for people.
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class GoodbyeDue(CallEvent):
    """The bot says its last words now: a turn that ends from here on is kept, and not answered."""


@dataclass(frozen=True, slots=True)
class OperatorListened(CallEvent):
    """An operator listens to the call from here on, or no longer.

    Attributes:
        is_on: true when it began.
    """

    is_on: bool


@dataclass(frozen=True, slots=True)
class DisclosureHeard(CallEvent):
    """The caller has heard ``bot.disclosure`` to its end.

    Attributes:
        text: the phrase.
    """

    text: str


@dataclass(frozen=True, slots=True)
class RecordingAnnounced(CallEvent):
    """The caller has heard that the call is recorded, and stays.

    Attributes:
        text: the phrase.
    """

    text: str


@dataclass(frozen=True, slots=True)
class RecordingConsentChanged(CallEvent):
    """The caller agrees to a recording of the call, or refuses it.

    Attributes:
        is_given: true when they agree.
    """

    is_given: bool


@dataclass(frozen=True, slots=True)
class RecordingStarted(CallEvent):
    """The call is recorded from here on."""


@dataclass(frozen=True, slots=True)
class RecordingDegraded(CallEvent):
    """Part of the recording is lost; the call and the rest of its recording go on.

    Attributes:
        reason: a sentence for people.
        lost_ms: length of the audio that was lost so far, of both sides.
    """

    reason: str
    lost_ms: int


@dataclass(frozen=True, slots=True)
class RecordingEnded(CallEvent):
    """The recording of the call is complete.

    Attributes:
        duration_ms: its length.
        lost_ms: length of the audio that was lost, of both sides.
    """

    duration_ms: int
    lost_ms: int
