"""Client of OpenAI's transcription endpoint, ``POST /audio/transcriptions``, which other servers have too.

A recording is one request, with one deadline and no repetition. Whisper writes words for a noise as well,
often the same ones; it reports how probable speech was, and its own rule leaves such stretches out.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp

from parley.audio.wav import encode_wav
from parley.processors.service_answers import (
    ServiceAnswerError,
    connection_error,
    read_json,
    request_answer,
)

# A minute of speech has 200 words, and each stretch of it some hundred bytes of numbers.
MOST_ANSWER_BYTES = 1_000_000
# ``no_speech_threshold`` and ``logprob_threshold`` of Whisper's own code.
NO_SPEECH_PROBABILITY, NO_SPEECH_LOG_PROBABILITY = 0.6, -1.0


@dataclass(frozen=True, slots=True)
class TimedText:
    """Stretch of a transcript.

    Attributes:
        text: as it was written.
        start_ms, end_ms: from the beginning of the recording; None where the server does not report them.
    """

    text: str
    start_ms: int | None = None
    end_ms: int | None = None


class TranscriptionClient:
    """Client of one server.

    Args:
        http: the process's HTTP session; its owner closes it.
        url: address of the endpoint.
        api_key: the server's key.
        fields: fields of each request.
        timeout_s: deadline of an answer.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        *,
        url: str,
        api_key: str,
        fields: Sequence[tuple[str, str]],
        timeout_s: float,
    ) -> None:
        self._http, self._url, self._fields = http, url, tuple(fields)
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._timeout_s = timeout_s

    async def transcribe(self, pcm: bytes, rate_hz: int) -> tuple[TimedText, ...]:
        """Return the transcript of a recording, 16-bit mono PCM; empty when there is no speech in it.

        Raises:
            ServiceAnswerError: the server refuses it, is late, breaks off or sends something else.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await request_answer(
                    self._http,
                    "POST",
                    self._url,
                    headers=self._headers,
                    body=lambda: {"data": self._form(pcm, rate_hz)},
                )
                return _transcript(await read_json(response, most_bytes=MOST_ANSWER_BYTES))
        except TimeoutError as error:
            raise ServiceAnswerError(f"no transcript within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise connection_error(error) from error

    def _form(self, pcm: bytes, rate_hz: int) -> aiohttp.FormData:
        form = aiohttp.FormData()
        for name, value in self._fields:
            form.add_field(name, value)
        form.add_field("file", encode_wav(pcm, rate_hz), filename="audio.wav", content_type="audio/wav")
        return form


def _transcript(answer: object) -> tuple[TimedText, ...]:
    """Return the stretches of an answer that are speech.

    Raises:
        ServiceAnswerError: it is no transcript.
    """
    text = answer.get("text") if isinstance(answer, Mapping) else None
    if not isinstance(answer, Mapping) or not isinstance(text, str):
        raise ServiceAnswerError("the answer is no transcript", status=HTTPStatus.OK)
    stretches = answer.get("segments")
    if not isinstance(stretches, list) or not stretches:
        return (TimedText(text.strip()),) if text.strip() else ()
    found = []
    for each in stretches:
        if not isinstance(each, Mapping) or not isinstance(each.get("text"), str):
            raise ServiceAnswerError("the answer is no transcript", status=HTTPStatus.OK)
        if each["text"].strip() and not _is_noise(each):
            found.append(TimedText(each["text"].strip(), _ms(each.get("start")), _ms(each.get("end"))))
    return tuple(found)


def _is_noise(stretch: Mapping[object, object]) -> bool:
    """Return whether Whisper takes a stretch for a noise, and is not sure of its words."""
    no_speech, log_probability = stretch.get("no_speech_prob"), stretch.get("avg_logprob")
    return (
        isinstance(no_speech, int | float)
        and isinstance(log_probability, int | float)
        and no_speech > NO_SPEECH_PROBABILITY
        and log_probability < NO_SPEECH_LOG_PROBABILITY
    )


def _ms(at_s: object) -> int | None:
    if not isinstance(at_s, int | float):
        return None
    try:
        return round(float(at_s) * 1000)
    # It is no number, or infinite, also when it is an integer that no float can hold.
    except (ValueError, OverflowError):
        return None
