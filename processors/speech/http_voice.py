"""Voices behind an HTTP server that streams the audio of one text in its answer.

Each text is one request. The audio leaves as it comes, in pieces of any length, at the rate of the pipeline.
Two deadlines bound the wait: for the first audio of a text, and for what follows. An interruption cancels the
request, and closing its connection tells the server to stop.

An answer that is refused, late, cut off, longer than any text or no audio is reported as an error. Messages
contain no text that was to be said, which a server may quote. The servers send no word times.
"""

import asyncio
import io
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp
import numpy as np
from pipecat.frames.frames import Frame, TTSAudioRawFrame
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService

from parley.audio.resample import Resampler
from parley.audio.wav_stream import WavStream
from parley.core.errors import MediaError
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16, ms_to_samples, pcm16_to_float
from parley.processors.pipecat_internals import end_context_with_turn
from parley.processors.service_answers import ServiceAnswerError, connection_error, request_answer
from parley.processors.speech.audio_deadlines import AudioDeadlines

# With a fallback, the same deadlines are watched outside of the service (``ServiceLeg``), which records that
# the voice was late or has stalled. The service's own end the wait where there is none.
GRACE_S = 0.3
# A text is a sentence, or a clause of one.
MOST_AUDIO_S = 120
BREATH_MS = 40
# Pipecat ends the audio of a text after this much quiet; the deadlines are shorter.
_QUIET_S = 120.0
# Types of an answer that is 16-bit little-endian PCM, or a WAV file of it. A server may name none.
# ``audio/basic`` is mu-law, and ``audio/L16`` is big-endian (RFC 2586).
PCM_TYPES = frozenset(
    {
        *("", "application/octet-stream", "binary/octet-stream"),
        *("audio/pcm", "audio/raw", "audio/x-raw"),
        *("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"),
    }
)


@dataclass(frozen=True, slots=True)
class VoiceRequest:
    """Request for the audio of a text.

    Attributes:
        url: address.
        body: fields of the JSON body, or the body as JSON.
        headers: further headers.
    """

    url: str
    body: Mapping[str, Any] | bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpVoiceService(TTSService):
    """Voice of one call that speaks by one HTTP request for each text.

    Args:
        http: the process's HTTP session; its owner closes it.
        rate_hz: rate of the server's audio, where it comes without a header.
        deadlines: deadlines of the audio.
        settings: names of the model and the voice, for measurements.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        *,
        rate_hz: int,
        deadlines: AudioDeadlines,
        settings: TTSSettings,
    ) -> None:
        super().__init__(
            push_start_frame=True,
            push_stop_frames=True,
            stop_frame_timeout_s=_QUIET_S,
            settings=settings,
        )
        self.http = http
        self._server_hz = rate_hz
        self._first_s = deadlines.first_s + GRACE_S
        self._next_s = deadlines.next_s + GRACE_S

    def can_generate_metrics(self) -> bool:
        """Return True: the time to the first audio, and the characters, are measured."""
        return True

    @abstractmethod
    async def request_of(self, text: str) -> VoiceRequest:
        """Return the request for a text.

        Raises:
            ServiceAnswerError: the server does not give what the request needs.
        """

    async def on_turn_context_completed(self) -> None:
        # Its last text may have had no audio.
        end_context_with_turn(self)
        await super().on_turn_context_completed()

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Speak a text.

        Yields:
            Audio frames as the audio comes.
        """
        if not any(char.isalnum() for char in text):
            # Nothing to pronounce. A breath of silence, or Pipecat takes it for a voice that does not work.
            breath = bytes(ms_to_samples(BREATH_MS, self.sample_rate) * PCM_BYTES_PER_SAMPLE)
            yield TTSAudioRawFrame(breath, self.sample_rate, 1, context_id=context_id)
            return
        try:
            async with aclosing(self._audio_of(text)) as pieces:
                async for pcm in pieces:
                    yield TTSAudioRawFrame(pcm, self.sample_rate, 1, context_id=context_id)
        except ServiceAnswerError as error:
            await self.push_error(f"no speech: {error}", exception=error, category=error.category)

    async def _audio_of(self, text: str) -> AsyncGenerator[bytes, None]:
        """Yield the audio of a text, 16-bit mono PCM at the pipeline's rate.

        Raises:
            ServiceAnswerError: the server refuses it, is late, breaks off or sends something else.
        """
        loop = asyncio.get_running_loop()
        due_s, has_audio = loop.time() + self._first_s, False
        response: aiohttp.ClientResponse | None = None
        try:
            try:
                async with asyncio.timeout_at(due_s):
                    response = await self._answer(await self.request_of(text), text)
                await self.start_tts_usage_metrics(text)
                reader = _AnswerReader(self._server_hz, self.sample_rate)
                while not reader.is_over:
                    async with asyncio.timeout_at(due_s):
                        pcm = reader.feed(await response.content.readany())
                    if pcm:
                        has_audio = True
                        yield pcm
                        due_s = loop.time() + self._next_s
            except TimeoutError as error:
                wait_s = (self._next_s if has_audio else self._first_s) - GRACE_S
                message = f"no more audio for {wait_s:g} s" if has_audio else f"no audio within {wait_s:g} s"
                raise ServiceAnswerError(message) from error
            except (aiohttp.ClientError, OSError) as error:
                raise connection_error(error) from error
            except MediaError as error:
                raise ServiceAnswerError(str(error), status=HTTPStatus.OK) from error
        finally:
            if response is not None:
                # An answer that was read to its end has returned its connection already.
                response.close()

    async def _answer(self, request: VoiceRequest, text: str) -> aiohttp.ClientResponse:
        """Send a request; return an answer that is audio.

        Raises:
            ServiceAnswerError: it is refused, or answered with something else.
        """
        response = await request_answer(
            self.http,
            "POST",
            request.url,
            headers=request.headers,
            # A file, because aiohttp warns of a large body in one piece.
            body=lambda: (
                {"data": io.BytesIO(request.body)}
                if isinstance(request.body, bytes)
                else {"json": request.body}
            ),
            private=text,
            repeats=True,
        )
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind not in PCM_TYPES:
            response.close()
            raise ServiceAnswerError(f"the answer is {kind[:60]!r}, not PCM or WAV", status=HTTPStatus.OK)
        return response


class _AnswerReader:
    """Audio of one answer, at the rate of the pipeline.

    Args:
        server_hz: rate of audio without a header.
        to_hz: rate of the pipeline.
    """

    def __init__(self, server_hz: int, to_hz: int) -> None:
        self._stream = WavStream(server_hz)
        self._to_hz = to_hz
        self._resampler: Resampler | None = None
        self._left_bytes = MOST_AUDIO_S * to_hz * PCM_BYTES_PER_SAMPLE
        self.is_over = False

    def feed(self, data: bytes) -> bytes:
        """Return the audio that a piece of the answer completes; an empty piece is its end.

        Raises:
            MediaError: it has a header of another format, or is longer than any text.
        """
        self.is_over = not data
        pcm = self._at_rate(self._stream.feed(data)) if data else self._tail()
        self._left_bytes -= len(pcm)
        if self._left_bytes < 0:
            raise MediaError(f"more than {MOST_AUDIO_S} s of audio for one text")
        return pcm

    def _at_rate(self, pcm: bytes) -> bytes:
        if not pcm or self._stream.rate_hz == self._to_hz:
            return pcm
        if self._resampler is None:
            self._resampler = Resampler(self._stream.rate_hz, self._to_hz)
        return float_to_pcm16(self._resampler.feed(pcm16_to_float(pcm)))

    def _tail(self) -> bytes:
        """Return the audio that waits for samples after the last one."""
        if self._resampler is None:
            return b""
        return float_to_pcm16(self._resampler.feed(np.zeros(self._resampler.delay_samples, np.float32)))
