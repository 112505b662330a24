"""Recogniser that transcribes each voice as a whole, by one request: it has no partial texts.

A segment is a voice with the sound before its onset. It is sent when voice activity reports the end of the
voice, and the turn waits for its words (``WordsOwedFrame``). Segments are transcribed at the same time, each
with its own deadline, and their words leave in the order in which they were said. A pause in a sentence ends
a segment too, so the words before it are there when the caller goes on.

Bounded are the sound before an onset, the length of a segment (a longer voice is cut) and the number of
segments that wait: when another one comes, the oldest is given up. One task, owned by the service, delivers;
each segment has one of its own for its request. Words have times: within the stretches that the server
reports, they are estimated from the spelling.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    InputAudioRawFrame,
    StartFrame,
    STTMuteFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.settings import STTSettings
from pipecat.services.stt_service import STTService
from pipecat.utils.time import time_now_iso8601

from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, samples_to_ms
from parley.processors.perception.hosted_words import HostedWord, estimated_words
from parley.processors.perception.owed_words import OwesWords
from parley.processors.perception.transcriptions import TimedText, TranscriptionClient
from parley.processors.perception.voice_onset import OnsetMeter
from parley.processors.pipecat_internals import VoiceEdges, record_audio_usage
from parley.processors.service_answers import ServiceAnswerError

# Sound before the onset of a voice, for its soft first sounds, as ``EngineSttSettings.pre_speech_ms``.
BEFORE_MS = 250
# Audio that is kept without a voice: a voice may be reported this long after its onset, by a service that is
# opened in its middle.
KEPT_MS = 4_000
# Whisper drops or spoils the last word of audio that ends with it. Voice activity reports the end of a voice
# after 0.2 s of silence, and Pipecat's services append 0.5 s.
PADDING_MS = 300
# A longer voice is cut into parts, each with its own words. With the deadline of an answer it fits into what
# is kept for another recogniser (``UnsettledAudio``), and Whisper's window is 30 s.
MOST_SEGMENT_MS = 20_000
# A segment has at least a part of a word.
LEAST_SEGMENT_MS = 100
# A caller pauses between two voices for 0.2 s at least and speaks for longer, so more wait only when the
# server is dead.
MOST_WAITING = 8
# Wait for the last words when a call ends, as ``EngineSttSettings.drain_ms``.
DRAIN_S = 1.0


@dataclass(slots=True, eq=False)
class _Segment:
    """Voice that is being transcribed.

    Attributes:
        began_ms: its beginning in the recogniser's time.
        ended_ms: the end of its voice.
        answer: its request.
    """

    began_ms: int
    ended_ms: int
    answer: "asyncio.Task[tuple[TimedText, ...] | ServiceAnswerError]"


class SegmentSttService(OwesWords, VoiceEdges, STTService):
    """Recogniser of one call.

    Args:
        client: client of the server.
        model: name of the model, for measurements.
        ttfs_p99_s: time from the end of a voice to its words, p99.
    """

    def __init__(self, client: TranscriptionClient, *, model: str, ttfs_p99_s: float) -> None:
        super().__init__(
            ttfs_p99_latency=ttfs_p99_s,
            settings=STTSettings(model=model, language=None),
            # Audio is only appended here: a queue and a task for each piece would cost more than the work.
            enable_direct_mode=True,
        )
        self._client = client
        # Audio of the voice, or of the silence before one.
        self._audio = bytearray()
        self._is_voice = False
        self._onset = OnsetMeter()
        # Bytes of audio that came; the recogniser's time.
        self._position = 0
        self._waiting: deque[_Segment] = deque()
        self._news, self._settled = asyncio.Event(), asyncio.Event()
        self._settled.set()
        self._delivery: asyncio.Task[None] | None = None

    def can_generate_metrics(self) -> bool:
        """Return True: the time from end of voice to final, and the seconds of audio, are measured."""
        return True

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        self._delivery = self.create_task(self._deliver(), "delivery")

    async def stop(self, frame: EndFrame) -> None:
        """Deliver the words of voices that are over, for at most ``DRAIN_S``, then stop."""
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._settled.wait()
        except TimeoutError:
            logger.warning(f"{self}: the call ended before its last words were recognised")
        await super().stop(frame)
        await self._release()

    async def cancel(self, frame: CancelFrame) -> None:
        await super().cancel(frame)
        await self._release()

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._release()

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        """Yield nothing: audio is appended in ``process_audio_frame``."""
        yield None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, STTMuteFrame) and frame.mute:
            self._audio.clear()
            self._is_voice = False

    async def process_audio_frame(self, frame: InputAudioRawFrame, direction: FrameDirection) -> None:
        """Append audio; a voice that has become too long is sent."""
        self._onset.hear(frame)
        if self.is_muted or not self.is_usable:
            return
        self._audio += frame.audio
        self._position += len(frame.audio)
        if not self._is_voice:
            del self._audio[: max(0, len(self._audio) - self._bytes(KEPT_MS))]
        elif len(self._audio) >= self._bytes(MOST_SEGMENT_MS):
            await self._send_segment(0)

    async def voice_started(self, frame: VADUserStartedSpeakingFrame) -> None:
        # The frame comes twice when voice activity is detected both before and after this processor.
        if self._is_voice or self.is_muted:
            return
        await super().voice_started(frame)
        self._is_voice = True
        before = self._bytes(BEFORE_MS + self._onset.since_ms(frame, self.sample_rate))
        del self._audio[: max(0, len(self._audio) - before)]

    async def voice_stopped(self, frame: VADUserStoppedSpeakingFrame) -> None:
        if not self._is_voice:
            return
        await super().voice_stopped(frame)
        self._is_voice = False
        await self._send_segment(round(frame.stop_secs * 1000))

    async def _send_segment(self, silence_ms: int) -> None:
        """Send the audio of a voice, of which the end is silence."""
        pcm = bytes(self._audio)
        self._audio.clear()
        if not self.is_usable or len(pcm) < self._bytes(LEAST_SEGMENT_MS):
            return
        if len(self._waiting) >= MOST_WAITING:
            lost = self._waiting.popleft()
            await self.cancel_task(lost.answer)
            await self.push_error(f"words of a voice are lost: {MOST_WAITING} wait for the server")
        record_audio_usage(self, pcm)
        ended_ms = self._ms(self._position)
        padded = pcm + bytes(self._bytes(PADDING_MS))
        answer = self.create_task(self._ask(padded), "transcription")
        began_ms = self._ms(self._position - len(pcm))
        self._waiting.append(_Segment(began_ms, max(began_ms, ended_ms - silence_ms), answer))
        self._settled.clear()
        await self.report_owed(bool(self._waiting))
        self._news.set()

    async def _ask(self, pcm: bytes) -> tuple[TimedText, ...] | ServiceAnswerError:
        """Return the transcript of a segment, or its error."""
        try:
            return await self._client.transcribe(pcm, self.sample_rate)
        except ServiceAnswerError as error:
            return error
        # The boundary of the task: Pipecat logs what a task raises, and its result is None then. A fault of
        # one request has to be reported as such, and must not end the delivery of all that follow.
        except Exception as error:
            logger.opt(exception=error).error(f"{self}: a request failed unexpectedly")
            failed = ServiceAnswerError(f"an unexpected {type(error).__name__}")
            failed.__cause__ = error
            return failed

    async def _deliver(self) -> None:
        while True:
            if not self._waiting:
                self._settled.set()
                self._news.clear()
                await self._news.wait()
                continue
            segment = self._waiting[0]
            await asyncio.wait([segment.answer])
            # It may be given up meanwhile, also by a request that is answered while it is cancelled.
            if self._waiting and self._waiting[0] is segment:
                self._waiting.popleft()
                # Its words, or its failure, come before the report that none are owed.
                await self._push_answer(segment)
                await self.report_owed(bool(self._waiting))

    async def _push_answer(self, segment: _Segment) -> None:
        await self.emit_stt_usage_metrics()
        answer = segment.answer.result()
        if isinstance(answer, ServiceAnswerError):
            await self.push_error(f"no transcript: {answer}", exception=answer, category=answer.category)
            return
        text = " ".join(stretch.text for stretch in answer)
        if text:
            words = _placed(answer, segment)
            await self.push_frame(
                TranscriptionFrame(text, "", time_now_iso8601(), result=words, finalized=True)
            )

    async def _release(self) -> None:
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            await self.cancel_task(delivery)
        while self._waiting:
            await self.cancel_task(self._waiting.popleft().answer)

    def _bytes(self, ms: int) -> int:
        return ms_to_samples(ms, self.sample_rate) * PCM_BYTES_PER_SAMPLE

    def _ms(self, position: int) -> int:
        return samples_to_ms(position // PCM_BYTES_PER_SAMPLE, self.sample_rate)


def _placed(stretches: Sequence[TimedText], segment: _Segment) -> tuple[HostedWord, ...]:
    """Return the words of a segment with times in the recogniser's time; the last one ends with the voice."""
    words: list[HostedWord] = []
    for stretch in stretches:
        start_ms = segment.began_ms + (stretch.start_ms or 0)
        end_ms = segment.ended_ms if stretch.end_ms is None else segment.began_ms + stretch.end_ms
        start_ms = min(max(start_ms, words[-1].end_ms if words else segment.began_ms), segment.ended_ms)
        end_ms = min(max(end_ms, start_ms), segment.ended_ms)
        words += estimated_words(stretch.text, start_ms, end_ms)
    return (*words[:-1], replace(words[-1], end_ms=segment.ended_ms))
