"""Voice of an XTTS streaming server: one of its own speakers, or an imitation of a reference voice.

A speaker is two arrays of numbers (``speaker_embedding``, ``gpt_cond_latent``), which go with every request.
``GET /studio_speakers`` returns those of the server's speakers, ``POST /clone_speaker`` those of a recording.
They are requested once in a process and kept as JSON, because they are half a megabyte of text; the arrays of
another reference voice replace them. A reference voice that was deleted is not spoken with any more.
"""

import asyncio
import json
import math
import re
from http import HTTPStatus
from typing import Any

import aiohttp
from loguru import logger
from pipecat.frames.frames import StartFrame
from pipecat.services.settings import TTSSettings

from parley.audio.speech_level import active_level_dbm0
from parley.audio.wav import decode_wav
from parley.core.errors import AgentError, MediaError
from parley.core.media import pcm16_to_float
from parley.processors.service_answers import (
    ServiceAnswerError,
    connection_error,
    parse_json,
    read_body,
    request_answer,
)
from parley.processors.service_rows import ReferenceVoices
from parley.processors.speech.audio_deadlines import AudioDeadlines
from parley.processors.speech.http_voice import HttpVoiceService, VoiceRequest

RATE_HZ = 24_000
# A graphics processor takes a second for a minute of reference, a processor up to ten.
SPEAKER_S = 15.0
# Numbers of one speaker: 33 thousand, of up to 25 characters. The server has 58 speakers.
MOST_SPEAKER_BYTES, MOST_STUDIO_BYTES = 4_000_000, 200_000_000
# XTTS leaves out parts of a third of a second and less, and its authors ask for six seconds.
LEAST_REFERENCE_S = 2.0
REFERENCE_RATE_HZ = 16_000
# Names of speakers that an error lists.
MOST_NAMES = 60
_FULL_STOP = re.compile(r"\.(?=\s|$)")


class XttsSpeaker:
    """Speaker of a deployment at one server, for all calls of the process.

    A request for its arrays goes on when the call that needed them ends: the next one waits for the same
    request. It ends with its deadline.

    Args:
        base_url: address of the server.
        voice: name of one of the server's speakers, or None.
        reference: id or name of a reference voice in its place, or None.
    """

    def __init__(self, base_url: str, *, voice: str | None, reference: str | None) -> None:
        self._url = base_url.rstrip("/")
        self._voice, self._reference = voice, reference
        # The speaker that is known, or requested, by its name or the id of its reference.
        self._key = ""
        self._request: asyncio.Task[bytes | ServiceAnswerError] | None = None

    async def members(self, http: aiohttp.ClientSession, voices: ReferenceVoices | None) -> bytes:
        """Return the arrays as members of a JSON object.

        Raises:
            ServiceAnswerError: the reference voice is missing or bad, or the server gives no arrays.
        """
        key = self._voice or await self._find(voices)
        request = self._request
        if request is None or key != self._key or (request.done() and _has_failed(request)):
            self._key = key
            request = self._request = asyncio.create_task(self._fetch(http, voices, key), name="xtts.speaker")
        found = await asyncio.shield(request)
        if isinstance(found, ServiceAnswerError):
            raise found
        return found

    async def _find(self, voices: ReferenceVoices | None) -> str:
        if voices is None or self._reference is None:
            raise ServiceAnswerError("this process has no reference voices")
        try:
            return await asyncio.to_thread(voices.find, self._reference)
        except AgentError as error:
            raise ServiceAnswerError(str(error)) from error

    async def _fetch(
        self, http: aiohttp.ClientSession, voices: ReferenceVoices | None, key: str
    ) -> bytes | ServiceAnswerError:
        try:
            async with asyncio.timeout(SPEAKER_S):
                if self._reference is None:
                    return await self._studio_speaker(http, key)
                assert voices is not None
                return await self._clone(http, voices, key)
        except TimeoutError:
            return ServiceAnswerError(f"no speaker from the server within {SPEAKER_S:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return connection_error(error)
        except ServiceAnswerError as error:
            return error

    async def _studio_speaker(self, http: aiohttp.ClientSession, name: str) -> bytes:
        response = await request_answer(http, "GET", f"{self._url}/studio_speakers", headers={})
        body = await read_body(response, most_bytes=MOST_STUDIO_BYTES)
        return await asyncio.to_thread(_studio_members, body, name)

    async def _clone(self, http: aiohttp.ClientSession, voices: ReferenceVoices, key: str) -> bytes:
        try:
            wav = await asyncio.to_thread(_checked_reference, voices, key)
        except AgentError as error:
            raise ServiceAnswerError(f"the reference voice {self._reference!r}: {error}") from error

        def form() -> dict[str, Any]:
            data = aiohttp.FormData()
            data.add_field("wav_file", wav, filename="reference.wav", content_type="audio/wav")
            return {"data": data}

        try:
            response = await request_answer(
                http, "POST", f"{self._url}/clone_speaker", headers={}, body=form, repeats=True
            )
        except ServiceAnswerError as error:
            message = f"the server does not imitate the reference voice {self._reference!r}: {error}"
            raise ServiceAnswerError(message, status=error.status) from error
        body = await read_body(response, most_bytes=MOST_SPEAKER_BYTES)
        return await asyncio.to_thread(_members, body)


class XttsService(HttpVoiceService):
    """Voice of one call.

    Args:
        http: the process's HTTP session.
        base_url: address of the server.
        speaker: the speaker, shared by all calls.
        voices: reference voices of the deployment, or None.
        language: the server's code of the language.
        deadlines: deadlines of the audio.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        *,
        base_url: str,
        speaker: XttsSpeaker,
        voices: ReferenceVoices | None,
        language: str,
        deadlines: AudioDeadlines,
    ) -> None:
        settings = TTSSettings(model="xtts_v2", voice=None, language=None)
        super().__init__(http, rate_hz=RATE_HZ, deadlines=deadlines, settings=settings)
        self._url = f"{base_url.rstrip('/')}/tts_stream"
        self._speaker, self._voices, self._language = speaker, voices, language
        self._preparing: asyncio.Task[None] | None = None

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        self._preparing = self.create_task(self._prepare(), "speaker")

    async def cleanup(self) -> None:
        await super().cleanup()
        preparing, self._preparing = self._preparing, None
        if preparing is not None:
            await self.cancel_task(preparing)

    async def _prepare(self) -> None:
        """Request the speaker before the first text, which reports the error if there is one."""
        try:
            await self._speaker.members(self.http, self._voices)
        except ServiceAnswerError as error:
            logger.warning(f"{self}: no speaker: {error}")

    async def request_of(self, text: str) -> VoiceRequest:
        members = await self._speaker.members(self.http, self._voices)
        fields = {
            # The server says "dot" for a full stop, and reads the asterisks of emphasis.
            "text": _FULL_STOP.sub("", text).replace("*", ""),
            "language": self._language,
            "add_wav_header": False,
            "stream_chunk_size": "20",
        }
        head = json.dumps(fields).encode().removesuffix(b"}")
        return VoiceRequest(
            self._url, b"%s, %s}" % (head, members), headers={"Content-Type": "application/json"}
        )


def _has_failed(request: "asyncio.Task[bytes | ServiceAnswerError]") -> bool:
    return request.cancelled() or request.exception() is not None or not isinstance(request.result(), bytes)


def _checked_reference(voices: ReferenceVoices, key: str) -> bytes:
    """Return the WAV file of a reference voice that can be imitated. Blocks.

    Raises:
        AgentError: there is none, or it is too short, or has no voice.
    """
    wav = voices.read(key)
    samples = pcm16_to_float(decode_wav(wav, rate_hz=REFERENCE_RATE_HZ))
    length_s = len(samples) / REFERENCE_RATE_HZ
    if length_s < LEAST_REFERENCE_S:
        raise MediaError(f"it is {length_s:.1f} s long; XTTS needs at least {LEAST_REFERENCE_S:g} s")
    if active_level_dbm0(samples, REFERENCE_RATE_HZ) is None:
        raise MediaError("it is silent")
    return wav


def _studio_members(body: bytes, name: str) -> bytes:
    """Return the arrays of one of the server's speakers, of which the answer has dozens: 40 MB of JSON.

    Only its own part is parsed. Parsing all of it would hold every call for half a second, in a thread too.

    Raises:
        ServiceAnswerError: there is no speaker of that name.
    """
    for key in (json.dumps(name, ensure_ascii=False), json.dumps(name)):
        found = re.search(re.escape(key.encode()) + rb"\s*:\s*(\{[^{}]*\})", body)
        if found is not None:
            return _members(found[1])
    names = [each.decode(errors="replace") for each in re.findall(rb'"([^"\\]{1,60})"\s*:\s*\{', body)]
    known = ", ".join(names[:MOST_NAMES]) or "none"
    raise ServiceAnswerError(f"the server has no speaker {name!r} (known: {known})", status=HTTPStatus.OK)


def _members(body: bytes) -> bytes:
    """Return the arrays of a speaker as members of a JSON object, with as many digits as the model has.

    Raises:
        ServiceAnswerError: they are none.
    """
    try:
        fields = parse_json(body)
        embedding, latent = fields["speaker_embedding"], fields["gpt_cond_latent"]
        rows = ",".join(f"[{_numbers(row)}]" for row in latent)
        if not rows:
            raise ValueError("no rows")
        return f'"speaker_embedding":[{_numbers(embedding)}],"gpt_cond_latent":[{rows}]'.encode()
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ServiceAnswerError("the answer is no speaker", status=HTTPStatus.OK) from error


def _numbers(values: list[float]) -> str:
    """Return numbers as JSON.

    Raises:
        ValueError: there are none, or one is not finite.
        OverflowError: one is an integer that no float can hold.
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError("no numbers")
    # The server computes with 16 bits.
    return ",".join(f"{value:.6g}" for value in values)
