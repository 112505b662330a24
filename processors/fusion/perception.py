"""Collect perceptions of the caller in the order in which they happened.

The processor stands between the recogniser and the user aggregator, and only observes. Transcripts, typed
text and the annotations of any other specialist (``AnnotationReported``: prosody, vision, diarization) go
into the sequencer of the call, and its commits go through fusion. ``take`` gives the tokens of a turn to the
commit gate. Frames pass unchanged and at once. The work takes microseconds in the pushing task. There is no
task of its own; a timer looks again while a report of a specialist waits.

Programs outside of Parley report too (``OutsideReportsReceived``). Their reports are streams of their own
(``vision.outside`` next to ``vision``): neither promises anything for the other, revises its statements or
ends with it. They come as events: a frame passes all the other stages as well, which costs a millisecond.

A turn waits for specialists that are still at work, at most ``settle_ms`` and only when there are any. A
specialist that is gone, late or silent costs its own tags. The commits, and the operations that a replay
needs to reach the same order (``session_store.replay``), are written to the session as records: nothing waits
for them.

A turn gets its own words. Words that no turn has taken are forgotten by age and number (a television may talk
for an hour without an answer). Words older than those of the turn by more than fusion's ``epsilon_us`` are
left out (a late tag brings the statement of an earlier turn again). The model reads the words of the turn's
record, which the caller of ``take`` supplies, with the annotations of the same words
(``processors.fusion.tag_alignment``).
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    LLMMessagesAppendFrame,
    StartFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pydantic import Field

from parley.core.call_events import (
    AnnotationReported,
    OutsideReportsReceived,
    OutsideStreamEnded,
    SpecialistLeft,
    VoicesLearnt,
    WordsDiscarded,
)
from parley.core.strict_model import StrictModel
from parley.core.timeline import (
    Annotation,
    DiarPayload,
    EnrichedToken,
    Source,
    SpeechPayload,
    SpokenWord,
    TextPayload,
)
from parley.language.perceived import NoPerceived, PerceivedRules
from parley.models.stt import Transcript
from parley.processors.dialogue.engine_llm import text_of
from parley.processors.fusion.perceived_events import PerceivedEvents
from parley.processors.fusion.pointing import pointed_us
from parley.processors.fusion.tag_alignment import align_tags
from parley.processors.perception.engine_stt import BEGAN_S
from parley.processors.perception.hosted_words import HostedWord, hosted_words, speaker_stretches
from parley.runtime.event_stream import CallEvents
from parley.sequencer.calibration import LearntLatencies
from parley.sequencer.fusion import Fused, Fusion, FusionSettings
from parley.sequencer.merge import Committed, Sequencer, SequencerSettings
from parley.sequencer.operations import (
    Advance,
    Heartbeat,
    Join,
    Journal,
    Learn,
    Operation,
    Report,
    StreamEnded,
    to_json,
)
from parley.sequencer.rendering import RenderingSettings, render, tags
from parley.sequencer.watermark import StreamState
from parley.session_store.conversation import Conversation
from parley.session_store.events import Draft, Kind

OWN_STREAMS = (Source.STT, Source.TEXT)
SPECIALISTS = (Source.PROSODY, Source.VISION, Source.DIAR)
# Streams that give tags: those of this process, and those of programs outside of it.
OUTSIDE = ".outside"
TAG_STREAMS = (*SPECIALISTS, *(f"{stream}{OUTSIDE}" for stream in SPECIALISTS))
# A voice is detected a moment after it began, but no word ends sooner after its beginning than this.
SHORTEST_WORD_US = 100_000
# During a voice the words of this long ago are known, with every recogniser that writes while it listens: the
# 95th percentile of the embedded one is 176 ms (``python -m evals.perception``). The learnt latency counts
# where it is longer.
WORDS_WITHIN_US = 200_000
# Interval of looks while a report of a specialist waits, which is at most for its deadline.
LOOK_S = 0.05
# Largest number of operations that wait for the next record.
MAX_OPERATIONS = 200
# Between two records of a call: a page shows what is perceived while it happens.
RECORD_EVERY_US = 1_000_000


class PerceptionSettings(StrictModel):
    """Settings of the sequencer, the fusion and the rendering of a call.

    Attributes:
        settle_ms: how long a turn that is over waits for specialists that are still at work.
        latency_ms: estimate of each specialist's latency before its first report.
        remembered_ms: words that no turn has taken by then are forgotten, in session time; longer than anyone
            speaks without a pause.
        remembered: largest number of statements that no turn has taken; the oldest are forgotten.
    """

    settle_ms: int = Field(default=150, ge=0, le=5_000)
    latency_ms: dict[Source, int] = Field(
        default={Source.STT: 80, Source.PROSODY: 80, Source.VISION: 200, Source.DIAR: 400, Source.TEXT: 0}
    )
    remembered_ms: int = Field(default=120_000, ge=1_000, le=3_600_000)
    remembered: int = Field(default=256, ge=1, le=10_000)
    sequencer: SequencerSettings = SequencerSettings()
    fusion: FusionSettings = FusionSettings()
    rendering: RenderingSettings = RenderingSettings()


@dataclass(frozen=True, slots=True)
class Perceived:
    """Perception of a turn.

    Attributes:
        text: text for the model: the words with their salient annotations; empty when nothing adds to the
            words.
        tokens: the annotated words, as JSON objects.
        pointed_us: when the last words that point were said, or something was pointed at without such words;
            None without either.
    """

    text: str
    tokens: Sequence[dict[str, object]]
    pointed_us: int | None = None


@dataclass(slots=True)
class _Revised:
    """A statement that is still revised.

    Attributes:
        revision: the newest revision.
        start_us: the earliest start that was ever given for it.
        event_us: the latest event time that was ever given for it.
        touched_us: when it was last revised.
    """

    revision: int
    start_us: int
    event_us: int
    touched_us: int


@dataclass(frozen=True, slots=True)
class _Said:
    """Words of a turn that is not over.

    Attributes:
        start_us: when they began.
        arrival_us: when they were final.
        words: with their times; all of them as one where the recogniser gives no times.
    """

    start_us: int
    arrival_us: int
    words: tuple[SpokenWord, ...]


class Perception(FrameProcessor):
    """Sequencer and fusion of one call.

    Args:
        conversation: the session.
        call_id: identifies the call.
        settings: None for the defaults.
        latencies: latencies of earlier calls, to which this one adds its own.
        engines: engine that reports in each stream; one that is not named starts without a prior in each
            call.
        events: events of the call; voices, words and typed text are published as they come.
        rules: rules of the caller's language for words that point.
    """

    def __init__(
        self,
        conversation: Conversation,
        *,
        call_id: str,
        settings: PerceptionSettings | None = None,
        latencies: LearntLatencies | None = None,
        engines: Mapping[Source, str] = MappingProxyType({}),
        events: CallEvents | None = None,
        rules: PerceivedRules = NoPerceived(),
    ) -> None:
        super().__init__(enable_direct_mode=True)
        self._rules = rules
        events = events or CallEvents()
        self._notices = PerceivedEvents(events)
        events.subscribe(WordsDiscarded, self._on_words_discarded)
        events.subscribe(AnnotationReported, self._on_annotation_reported)
        events.subscribe(SpecialistLeft, self._on_specialist_left)
        events.subscribe(VoicesLearnt, self._on_voices_learnt)
        events.subscribe(OutsideReportsReceived, self._on_outside_reports)
        events.subscribe(OutsideStreamEnded, self._on_outside_stream_ended)
        self._settings = settings or PerceptionSettings()
        self._conversation = conversation
        self._clock = conversation.clock
        self._call_id = call_id
        self._latencies = latencies or LearntLatencies()
        self._engines = engines
        # Streams of which this call has samples of its own.
        self._learnt: set[Source] = set()
        self._sequencer: Sequencer[Annotation] = Sequencer(self._settings.sequencer)
        self._fusion = Fusion(self._settings.fusion)
        self._journal: Journal[Annotation] = Journal()
        # For the next record: one a second at most, not one for each word.
        self._operations: list[str] = []
        # Who has spoken so far.
        self._speakers: set[str] = set()
        self._again: asyncio.TimerHandle | None = None
        # Reports that still come have no effect: there is no turn for them.
        self._is_over = False
        # With the moment of the commit.
        self._committed: list[tuple[Committed[Annotation], int]] = []
        self._journaled = False
        self._recorded_us = 0
        self._joined: set[str] = set()
        # Moments up to which specialists have judged everything, where those differ from their watermarks.
        self._judged_us: dict[str, int] = {}
        # Voice without final words so far, and when the last voice ended.
        self._is_voice = self._is_wordless = False
        self._voice_ended_us = self._silent_since_us = self._learnt_silence_us = 0
        # The newest of each statement since the last turn and when it came out, the longest unrevised first.
        self._fused: dict[int, tuple[int, Fused]] = {}
        # In the same order.
        self._revisions: dict[str, _Revised] = {}
        # Finals since the last turn.
        self._said: deque[_Said] = deque()
        self._utterances = 0
        self._news = asyncio.Event()

    @property
    def untaken(self) -> int:
        """Number of items that are remembered for the next turn."""
        return len(self._fused) + len(self._revisions) + len(self._said)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self._notices.publish(frame)
        if isinstance(frame, StartFrame):
            self._join_own()
        elif isinstance(frame, VADUserStartedSpeakingFrame):
            self._is_voice = self._is_wordless = True
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            self._is_voice, self._voice_ended_us = False, self._clock.now_us()
            self._silent_since_us = self._voice_ended_us - round(frame.stop_secs * 1_000_000)
        elif isinstance(frame, TranscriptionFrame | InterimTranscriptionFrame):
            self._hear(frame, final=isinstance(frame, TranscriptionFrame))
        elif isinstance(frame, LLMMessagesAppendFrame):
            self._read(frame)
        await self.push_frame(frame, direction)

    async def cleanup(self) -> None:
        self._is_over = True
        if self._again is not None:
            self._again.cancel()
        # What was perceived after the last turn.
        self._advance(overdue=True)
        self._write()
        for stream in self._learnt & self._engines.keys():
            self._latencies.learnt(self._engines[stream], stream, self._sequencer.latency_us(stream))
        await super().cleanup()

    async def take(self, said: str) -> Perceived:
        """Return the tokens of the turn that is over, once each. Waits for specialists at most ``settle_ms``.

        Args:
            said: its words, as they are recorded.
        """
        now_us = self._clock.now_us()
        for stream in OWN_STREAMS:
            self._apply(Heartbeat(stream, now_us, now_us))
        self._advance()
        try:
            async with asyncio.timeout(self._settings.settle_ms / 1000):
                while self._fusion.waiting or self._sequencer.waiting:
                    self._news.clear()
                    await self._news.wait()
                    self._advance()
        except TimeoutError:
            self._advance(overdue=True)
        words = [word for each in self._said for word in each.words]
        tokens = self._turn()
        self._write()
        rendering = self._settings.rendering
        shown = align_tags(said, tokens)
        self._speakers.update(token.speaker_id for token in shown if token.speaker_id is not None)
        named = len(self._speakers) > 1 and any(token.speaker_id is not None for token in shown)
        adds = named or any(tags(t, rendering) for t in shown)
        text = render(shown, rendering, named=named) if adds else ""
        return Perceived(text, [_as_json(token) for token in tokens], pointed_us(words, tokens, self._rules))

    def _on_words_discarded(self, _event: WordsDiscarded) -> None:
        """Exclude the words since the last turn from the next one."""
        self._said.clear()

    def _on_annotation_reported(self, event: AnnotationReported) -> None:
        self._pass_words()
        self._advance()
        self._join(event.stream)
        if (annotation := event.annotation) is not None:
            self._apply(_report_of(event.stream, annotation, event.identity, event.revision))
        else:
            now_us = self._clock.now_us()
            passed_us = None if event.passed_us is None else min(event.passed_us, now_us)
            self._apply(Heartbeat(event.stream, now_us, passed_us))
            if event.judged_us is not None:
                self._judged_us[event.stream] = event.judged_us
        self._pass_words()
        self._advance()
        self._news.set()
        self._look_again()

    def _on_specialist_left(self, event: SpecialistLeft) -> None:
        if event.stream in self._joined:
            self._joined.remove(event.stream)
            self._judged_us.pop(event.stream, None)
            self._apply(StreamEnded(event.stream))
            self._advance()
            self._news.set()

    def _look_again(self) -> None:
        """Advance without a report while something waits: it waits for time alone."""
        if self._again is None and not self._is_over and self._sequencer.waiting:
            self._again = asyncio.get_running_loop().call_later(LOOK_S, self._on_time)

    def _on_time(self) -> None:
        self._again = None
        self._pass_words()
        self._advance()
        self._news.set()
        self._look_again()

    def _on_voices_learnt(self, event: VoicesLearnt) -> None:
        """Know the speakers of earlier calls too."""
        self._speakers.update(voice.speaker_id for voice in event.voices)

    def _turn(self) -> list[EnrichedToken]:
        """Return the tokens of the turn."""
        fused, self._fused = self._fused, {}
        said, self._said = self._said, deque()
        since_us = min((each.start_us for each in said), default=self._clock.now_us())
        since_us -= self._settings.fusion.epsilon_us
        return [
            token
            for _, (_, one) in sorted(fused.items())
            if one.final
            for token in one.tokens
            if token.event_us >= since_us
        ]

    def _hear(self, frame: TranscriptionFrame | InterimTranscriptionFrame, *, final: bool) -> None:
        arrival_us = self._clock.now_us()
        began_s = BEGAN_S.of(frame)
        began_us = None
        if began_s is not None:
            began_us = arrival_us - round((asyncio.get_running_loop().time() - began_s) * 1_000_000)
            identity = f"utterance.{began_s:.6f}"
        else:
            identity = f"utterance.{self._utterances}"
        words: tuple[SpokenWord, ...] = ()
        confidence = 1.0
        if isinstance(frame.result, Transcript) and began_us is not None:
            words = tuple(
                SpokenWord(word.text, began_us + word.start_ms * 1000, began_us + word.end_ms * 1000)
                for word in frame.result.words
            )
            confidence = frame.result.confidence
            if words and final:
                self._apply(Learn(Source.STT, max(0, arrival_us - words[-1].end_us)))
                self._learnt.add(Source.STT)
        elif final:
            words = self._hear_hosted(hosted_words(frame.result), arrival_us)
            self._learn_by_silence(arrival_us)
        self._report(
            Source.STT,
            SpeechPayload(frame.text, words),
            arrival_us,
            start_us=words[0].start_us if words else began_us,
            event_us=words[-1].end_us if words else None,
            identity=identity,
            confidence=confidence,
            final=final,
        )
        self._is_wordless = not final
        if final:
            self._utterances += 1
            self._revisions.pop(identity, None)

    def _learn_by_silence(self, arrival_us: int) -> None:
        """Learn the latency of a recogniser on another clock: its last word ended with the voice.

        Once for each voice, by the first final words after it. Those that come before its end is noticed say
        nothing about it.
        """
        if self._is_voice or self._learnt_silence_us == self._silent_since_us:
            return
        self._learnt_silence_us = self._silent_since_us
        self._apply(Learn(Source.STT, max(0, arrival_us - self._silent_since_us)))
        self._learnt.add(Source.STT)

    def _hear_hosted(self, hosted: Sequence[HostedWord], arrival_us: int) -> tuple[SpokenWord, ...]:
        """Report the speakers of a hosted recogniser's words; return the words on the session clock.

        Its clock is another one. The last word ended with the voice, or a latency of the stream ago.
        """
        if not hosted:
            return ()
        end_us = arrival_us - self._sequencer.latency_us(Source.STT)
        if not self._is_voice and self._silent_since_us:
            end_us = min(arrival_us, self._silent_since_us)
        zero_us = max(0, end_us - hosted[-1].end_ms * 1000)
        for each in speaker_stretches(hosted):
            self._join(Source.DIAR)
            start_us, stop_us = zero_us + each.start_ms * 1000, zero_us + each.end_ms * 1000
            annotation = Annotation(
                min(stop_us, arrival_us),
                arrival_us,
                Source.DIAR,
                DiarPayload(start_us, stop_us, each.speaker),
                speaker_id=each.speaker,
            )
            self._apply(_report_of(Source.DIAR, annotation, None, 0))
            # Speakers come with the words: nothing more is to come about them.
            self._apply(Heartbeat(Source.DIAR, arrival_us, arrival_us))
        return tuple(
            SpokenWord(word.text, zero_us + word.start_ms * 1000, zero_us + word.end_ms * 1000)
            for word in hosted
        )

    def _read(self, frame: LLMMessagesAppendFrame) -> None:
        for message in frame.messages:
            if isinstance(message, dict) and message.get("role") == "user":
                text = text_of(message.get("content"))
                if text:
                    self._report(Source.TEXT, TextPayload(text), self._clock.now_us())

    def _on_outside_reports(self, event: OutsideReportsReceived) -> None:
        self._pass_words()
        self._advance()
        for each in event.reports:
            stream = f"{each.stream}{OUTSIDE}"
            self._join(each.stream, stream)
            if each.annotation is None:
                self._apply(Heartbeat(stream, self._clock.now_us(), each.passed_us))
            else:
                self._apply(_report_of(stream, each.annotation, each.identity, each.revision))
        self._pass_words()
        self._advance()
        self._news.set()
        self._look_again()

    def _on_outside_stream_ended(self, event: OutsideStreamEnded) -> None:
        stream = f"{event.stream}{OUTSIDE}"
        if stream in self._joined:
            self._joined.remove(stream)
            self._apply(StreamEnded(stream))
            self._advance()
            self._news.set()

    def _report(
        self,
        stream: Source,
        payload: SpeechPayload | TextPayload,
        arrival_us: int,
        *,
        start_us: int | None = None,
        event_us: int | None = None,
        identity: str | None = None,
        confidence: float = 1.0,
        final: bool = True,
    ) -> None:
        """Report what was said or typed.

        Args:
            stream: of the report.
            payload: its content.
            arrival_us: now.
            start_us: when it began; None: at its event.
            event_us: when it was complete: the end of its last word. None: estimated by the stream's latency.
            identity: of the statement, when it may be revised.
            confidence: 0..1.
            final: True when it will not be revised.
        """
        self._join(stream)
        if event_us is None:
            event_us = arrival_us - self._sequencer.latency_us(stream)
        event_us = min(event_us, arrival_us)
        start_us = event_us if start_us is None else min(start_us, event_us)
        revision = 0
        if identity is not None:
            known = self._revisions.pop(identity, None)
            if known is not None:
                # The end of a partial without word times is an estimate. A final that gave an earlier one
                # would come after the place of its own partial.
                revision, event_us = known.revision + 1, max(known.event_us, event_us)
                start_us = min(known.start_us, start_us)
            self._revisions[identity] = _Revised(revision, start_us, event_us, arrival_us)
        if final:
            words = payload.words if isinstance(payload, SpeechPayload) else ()
            words = words or (SpokenWord(payload.text, start_us, event_us),)
            self._said.append(_Said(start_us, arrival_us, words))
        annotation = Annotation(
            event_us, arrival_us, stream, payload, confidence=min(1.0, max(0.0, confidence)), final=final
        )
        self._apply(Report(stream, arrival_us, annotation, event_us, identity, revision, final))
        self._advance()

    def _join(self, source: Source, stream: str | None = None) -> None:
        """Begin a stream of a specialist, unless it has begun; ``stream``: its name, where it differs."""
        stream = stream or source
        if stream not in self._joined:
            self._joined.add(stream)
            latency_us = self._settings.latency_ms.get(source, 0) * 1000
            engine = self._engines.get(source) if stream == source else None
            prior_us = None if engine is None else self._latencies.prior_us(engine, source)
            self._apply(Join(stream, latency_us, self._clock.now_us(), prior_us))

    def _join_own(self) -> None:
        for stream in OWN_STREAMS:
            self._join(stream)

    def _apply(self, operation: Operation[Annotation]) -> None:
        self._sequencer.apply(operation)
        self._keep(operation)

    def _advance(self, *, overdue: bool = False) -> None:
        now_us = real_us = self._clock.now_us()
        if overdue:
            # The turn waits no longer: act as if all deadlines had passed.
            chosen = self._settings
            now_us += max(chosen.sequencer.deadline_us, chosen.fusion.deadline_us)
        committed = self._sequencer.advance(now_us)
        passed_us = self._judged(now_us)
        fused = self._fusion.advance(committed, now_us=now_us, passed_us=passed_us)
        for one in fused:
            self._fused.pop(one.statement, None)
            self._fused[one.statement] = real_us, one
        self._forget(real_us)
        self._keep(Advance(now_us), yielded=bool(committed))
        self._committed.extend((one, real_us) for one in committed)
        due = bool(self._committed) and real_us - self._recorded_us >= RECORD_EVERY_US
        if due or len(self._operations) + len(self._committed) >= MAX_OPERATIONS:
            self._write()

    def _pass_words(self) -> None:
        """Let no report of a specialist wait longer for words than a recogniser needs for them.

        The streams of the words are silent between words, and would hold the others until they stall.
        """
        if not self._sequencer.waiting:
            return
        # A report may come before the pipeline has started.
        self._join_own()
        now_us = self._clock.now_us()
        self._apply(Heartbeat(Source.TEXT, now_us, now_us))
        if self._is_voice:
            within_us = max(WORDS_WITHIN_US, self._sequencer.latency_us(Source.STT))
        elif self._is_wordless and now_us < self._voice_ended_us + self._settings.sequencer.stall_us:
            # The final words may be about any moment of the voice.
            return
        else:
            within_us = SHORTEST_WORD_US
        self._apply(Heartbeat(Source.STT, now_us, now_us - within_us))

    def _judged(self, now_us: int) -> int | None:
        """Return the moment up to which all tags are known; None without an active specialist."""
        passed_us = self._sequencer.passed_us(TAG_STREAMS, now_us)
        if passed_us is None:
            return None
        active = (
            judged_us
            for stream, judged_us in self._judged_us.items()
            if self._sequencer.state(stream, now_us) is StreamState.ACTIVE
        )
        return min([passed_us, *active])

    def _forget(self, now_us: int) -> None:
        """Forget old and excess statements that no turn has taken."""
        most, before_us = self._settings.remembered, now_us - self._settings.remembered_ms * 1000
        fused, revisions, said = self._fused, self._revisions, self._said
        while fused and (len(fused) > most or fused[next(iter(fused))][0] < before_us):
            del fused[next(iter(fused))]
        while revisions and (
            len(revisions) > most or revisions[next(iter(revisions))].touched_us < before_us
        ):
            del revisions[next(iter(revisions))]
        while said and (len(said) > most or said[0].arrival_us < before_us):
            said.popleft()

    def _keep(self, operation: Operation[Annotation], *, yielded: bool = False) -> None:
        kept = self._journal.record(operation, yielded=yielded)
        # The reports are stored as annotations; the order does not depend on their content.
        self._operations.extend(to_json(each, lambda _payload: None) for each in kept)

    def _write(self) -> None:
        committed, self._committed = self._committed, []
        self._recorded_us = self._clock.now_us()
        drafts: list[Draft] = []
        if self._operations:
            payload: dict[str, object] = {"call_id": self._call_id, "operations": self._operations}
            if not self._journaled:
                payload["settings"] = self._settings.sequencer.model_dump(mode="json")
            self._journaled = True
            self._operations = []
            drafts.append(self._conversation.draft(Kind.JOURNAL, "system", payload))
        drafts.extend(self._annotation(one, at_us) for one, at_us in committed)
        if drafts:
            self._conversation.record(*drafts)

    def _annotation(self, committed: Committed[Annotation], at_us: int) -> Draft:
        annotation = committed.payload
        payload = {
            "call_id": self._call_id,
            "order": committed.seq,
            "statement": committed.statement,
            "stream": committed.stream,
            "identity": committed.identity,
            "revision": committed.revision,
            "late": committed.late,
            "committed_us": at_us,
            "body": {"type": type(annotation.payload).__name__, **asdict(annotation.payload)},
        }
        return Draft(
            Kind.ANNOTATION,
            payload,
            committed.event_us,
            committed.arrival_us,
            committed.stream,
            speaker=annotation.speaker_id,
            final=committed.final,
            confidence=annotation.confidence,
        )


def _report_of(
    stream: str, annotation: Annotation, identity: str | None, revision: int
) -> Report[Annotation]:
    return Report(
        stream,
        annotation.arrival_us,
        annotation,
        annotation.event_us,
        identity,
        revision,
        annotation.final,
    )


def _as_json(token: EnrichedToken) -> dict[str, object]:
    return {name: value for name, value in asdict(token).items() if value not in (None, False)}
