"""Voice of a server with OpenAI's speech endpoint, ``POST /v1/audio/speech``, OpenAI's or another one."""

from collections.abc import Mapping
from typing import Any

import aiohttp
from pipecat.services.settings import TTSSettings

from parley.processors.speech.audio_deadlines import AudioDeadlines
from parley.processors.speech.http_voice import HttpVoiceService, VoiceRequest


class OpenAiSpeechService(HttpVoiceService):
    """Voice of one call.

    Args:
        http: the process's HTTP session.
        base_url: address of the server, up to and including ``/v1``.
        model: name of the model.
        voice: name of the voice.
        api_key: the server's key; None for a server without keys.
        rate_hz: rate of the server's PCM.
        more: further fields of each request.
        deadlines: deadlines of the audio.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        *,
        base_url: str,
        model: str,
        voice: str,
        api_key: str | None,
        rate_hz: int,
        more: Mapping[str, Any],
        deadlines: AudioDeadlines,
    ) -> None:
        settings = TTSSettings(model=model, voice=voice, language=None)
        super().__init__(http, rate_hz=rate_hz, deadlines=deadlines, settings=settings)
        self._url = f"{base_url.rstrip('/')}/audio/speech"
        self._fields = {"model": model, "voice": voice, "response_format": "pcm", **more}
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}

    async def request_of(self, text: str) -> VoiceRequest:
        return VoiceRequest(self._url, {**self._fields, "input": text}, self._headers)
