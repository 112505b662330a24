"""Routes ``POST /v1/audio/speech`` and ``POST /v1/audio/transcriptions``, on the engines of the calls.

Live calls come first. A request is refused while the machine has no room for another call, at most
``audio_jobs`` are under way at a time and one of each client, and each counts as a turn of its client. The
length of a text, of an upload and of its sound are bounded, and so is the time that each may take. An upload
is read whole before its request takes a place, one of each client and ``MOST_UPLOADS`` at a time, and not at
any pace: a slow sender holds no engine. It is decoded in a process that may be harmed by it
(``reference_voices.decoder``).
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Protocol

from fastapi import APIRouter, Depends, Request, Response
from python_multipart.exceptions import FormParserError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from parley.core.call_choices import NO_VOICES, OWN_VOICE, VoiceNames
from parley.core.errors import CapacityError
from parley.core.grants import ClientIdentity, KeyScope
from parley.core.speech_formats import MEDIA_TYPES, SpeechFormat
from parley.protocols.openai_http import (
    OpenAiHttpError,
    RecordingText,
    SpeechRequest,
    TranscriptionOptions,
    check_model,
    transcription_body,
    transcription_options,
)
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.auth.usage import UsageLimits
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.http.event_stream import EventStream, SlowReaderError
from parley.serving.gateway.http.requests import check_origin, discard_rest, read_pieces
from parley.serving.gateway.limits import ConcurrencyLimit, Slot
from parley.serving.gateway.reference_voices.decoder import VoiceDecoder, VoiceError
from parley.serving.gateway.reference_voices.settings import VoiceTuning
from parley.serving.gateway.session_api import APP
from parley.serving.gateway.settings import ServerTuning

SPEECH_PATH, TRANSCRIPTIONS_PATH = "/v1/audio/speech", "/v1/audio/transcriptions"
MOST_FIELDS, MOST_FIELD_BYTES = 32, 16_384
# Uploads that are read at the same time. Each is on the disk, and in memory at its end.
MOST_UPLOADS = 8
# A telephone in a weak network sends more; a sender of a byte at a time is ended after ``body_s``.
LEAST_BYTES_PER_S = 8_000


class SpeakText(Protocol):
    """Function that speaks a text into a file (``pipelines.openai_audio``), piece by piece."""

    def __call__(self, text: str, kind: SpeechFormat, voice: str) -> AsyncGenerator[bytes, None]: ...


class TranscribeRecording(Protocol):
    """Function that transcribes 16-bit mono PCM of 16 kHz (``pipelines.openai_audio``)."""

    async def __call__(self, pcm: bytes) -> RecordingText: ...


class OpenAiAudio:
    """Speech and transcriptions of one process.

    Args:
        models: names of the models that are served.
        speak: speaks texts.
        transcribe: transcribes recordings.
        language: ISO code of the language that callers speak.
        calls: of this process, which come first.
        settings: of the server.
        usage: counts a request as a turn of its client.
        access: checks that a client may request one.
        voices: names of the voices that speak.
    """

    def __init__(
        self,
        models: Sequence[str],
        speak: SpeakText,
        transcribe: TranscribeRecording,
        language: str,
        calls: CallTasks,
        settings: ServerTuning,
        usage: UsageLimits,
        access: Access,
        voices: VoiceNames = NO_VOICES,
    ) -> None:
        self._models = models
        self._voices = voices
        self._speak = speak
        self._transcribe = transcribe
        self._language = language
        self._calls = calls
        self._settings = settings
        self._usage = usage
        self._access = access
        self._decoder = VoiceDecoder(
            VoiceTuning(min_ms=0, max_s=settings.max_recording_s, decodes=settings.audio_jobs)
        )
        self._jobs = ConcurrencyLimit(
            settings.audio_jobs,
            f"{settings.audio_jobs} requests for speech or transcripts are under way, try again in a moment",
            each=1,
            each_full="a request for speech or a transcript of this client is under way, try again later",
        )

        self._uploads = ConcurrencyLimit(
            MOST_UPLOADS,
            f"{MOST_UPLOADS} recordings are being received, try again in a moment",
            each=1,
            each_full="a recording of this client is being received, try again later",
        )

    def router(self) -> APIRouter:
        """Return the routes, to be included in an application."""
        router = APIRouter()
        # A dependency: a client without a credential gets that answer, whatever its body is.
        checked = [Depends(self._identify)]
        router.add_api_route(
            SPEECH_PATH, self.speech, methods=["POST"], response_model=None, dependencies=checked
        )
        # Identifies its client before it reads the body, and reads on when it refuses.
        router.add_api_route(TRANSCRIPTIONS_PATH, self.transcription, methods=["POST"], response_model=None)
        return router

    async def speech(self, request: Request, body: SpeechRequest) -> Response:
        """Speak a text with a voice of the deployment; the file is sent while it is made."""
        identity = await self._identify(request)
        check_model(body.model, self._models)
        kind = body.checked_format(self._voices)
        if not body.input.strip():
            raise OpenAiHttpError("Invalid value: 'input' must not be empty.", param="input")
        self._check_room(identity, uses_recogniser=False)
        chunks = self._spoken(body, kind, identity)
        stall_s = self._settings.reader_stall_s
        return EventStream(chunks, stall_s=stall_s, media_type=MEDIA_TYPES[kind], headers={})

    async def transcription(self, request: Request) -> Response:
        """Transcribe an uploaded recording."""
        try:
            return await self._transcription(request)
        except Exception:
            settings = self._settings
            await discard_rest(request, max_bytes=settings.max_recording_bytes, within_s=settings.body_s)
            raise

    async def _transcription(self, request: Request) -> Response:
        identity = await self._identify(request)
        self._check_room(identity, uses_recogniser=True)
        with self._uploads.take(_key_of(identity)):
            data, options = await self._upload(request)
            # It took its time: calls may have come meanwhile.
            self._check_room(identity, uses_recogniser=True)
            job = await self._take(identity)
        is_json = options.form in ("json", "verbose_json")
        chunks = self._transcribed(data, options, job)
        media_type = "application/json" if is_json else "text/plain; charset=utf-8"
        stall_s = self._settings.reader_stall_s
        return EventStream(chunks, stall_s=stall_s, media_type=media_type, headers={})

    async def _identify(self, request: Request) -> ClientIdentity:
        check_origin(request, allowed=self._settings.allowed_origins)
        identity = await self._access.identify(request, KeyScope.TALK)
        self._access.check_surface(identity, APP)
        return identity

    def _check_room(self, identity: ClientIdentity, *, uses_recogniser: bool) -> None:
        """Check that the machine has room for another call, without which it has none for this.

        Raises:
            CapacityError: it has none.
        """
        if not self._calls.has_room(uses_recogniser=uses_recogniser) or self._calls.is_stopping:
            raise CapacityError("the server is busy with calls, which come first; try again later", limit=0)
        self._usage.check(identity)

    async def _take(self, identity: ClientIdentity) -> Slot:
        """Take a place among the requests under way, and count a turn of the client."""
        job = self._jobs.take(_key_of(identity))
        try:
            await self._usage.take(identity)
        except BaseException:
            job.give_back()
            raise
        return job

    async def _spoken(
        self, body: SpeechRequest, kind: SpeechFormat, identity: ClientIdentity
    ) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._settings.audio_job_s
        voice = self._voices.find(body.voice_name) or OWN_VOICE
        with await self._take(identity):
            async with aclosing(self._speak(body.input, kind, voice)) as pieces:
                async for piece in pieces:
                    yield piece
                    if loop.time() > deadline_s:
                        # Its reader is slower than speech: the file breaks off, and the place is free.
                        raise SlowReaderError(f"a speech took over {self._settings.audio_job_s:g} s")

    async def _upload(self, request: Request) -> tuple[bytes, TranscriptionOptions]:
        """Read and check a form with a file.

        Raises:
            OpenAiHttpError: a field is missing or not accepted.
            BodyError: the body is too long or too slow.
        """
        settings = self._settings
        try:
            async with asyncio.timeout(settings.upload_s):
                form = await _form(request, max_bytes=settings.max_recording_bytes, within_s=settings.body_s)
        except TimeoutError:
            raise OpenAiHttpError(
                f"the file did not arrive within {settings.upload_s:g} s", status=408
            ) from None
        try:
            fields = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
            options = transcription_options(fields, models=self._models, language=self._language)
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise OpenAiHttpError("you must provide a file parameter", param="file")
            return await file.read(), options
        finally:
            await form.close()

    async def _transcribed(
        self, data: bytes, options: TranscriptionOptions, job: Slot
    ) -> AsyncGenerator[str, None]:
        with job:
            try:
                pcm = await self._decoder.decode(data)
            except VoiceError as error:
                code = "audio_too_long" if error.status == 413 else "invalid_value"
                raise OpenAiHttpError(
                    f"Invalid file: {error}.", status=error.status, param="file", code=code
                ) from error
            try:
                async with asyncio.timeout(self._settings.audio_job_s):
                    said = await self._transcribe(pcm)
            except TimeoutError:
                raise OpenAiHttpError(
                    f"no transcript was made within {self._settings.audio_job_s:g} s",
                    status=503,
                    kind="server_error",
                ) from None
            body = transcription_body(said, options)
            # An empty chunk would be the end of the stream.
            yield (body or "\n") if isinstance(body, str) else json.dumps(body)


def _key_of(identity: ClientIdentity) -> str:
    return identity.owner or identity.address


async def _form(request: Request, *, max_bytes: int, within_s: float) -> FormData:
    """Return a form with one file, which is written to the disk where it is long."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise OpenAiHttpError("the body must be multipart/form-data with a file", code="invalid_content_type")
    pieces = read_pieces(request, max_bytes=max_bytes, within_s=within_s, least_bytes_per_s=LEAST_BYTES_PER_S)
    parser = MultiPartParser(
        request.headers, pieces, max_files=1, max_fields=MOST_FIELDS, max_part_size=MOST_FIELD_BYTES
    )
    async with aclosing(pieces):
        try:
            return await parser.parse()
        except (MultiPartException, FormParserError) as error:
            raise OpenAiHttpError(f"the form cannot be read: {error}") from error
