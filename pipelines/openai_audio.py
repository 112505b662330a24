"""Speech and transcripts that OpenAI's clients request, by the deployment's voice and recogniser.

A text is spoken clause by clause, and its file is sent while it is made. A recording is transcribed utterance
by utterance. Both leave the engines to calls between two clauses or pieces.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import numpy as np

from parley.audio.quiet_cuts import quiet_cuts
from parley.audio.speech_file import speech_file
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, pcm16_to_float
from parley.core.speech_formats import SpeechFormat
from parley.models.vad import VoiceActivityDetector
from parley.models.vad.voiced_parts import voiced_parts
from parley.pipelines.engines.engines import Engines
from parley.pipelines.recordings import transcribed, understood_by_service
from parley.pipelines.sockets.chat_speech import open_speech
from parley.processors.front_end.vad import VOICE
from parley.protocols.chat_ws import AUDIO_RATE_HZ, VOICE_RATE_HZ
from parley.protocols.openai_http import RecordingText

# Longer speech without a pause is cut where it is quietest, after the shorter time.
LEAST_PART_S, MOST_PART_S = 8.0, 16.0
# Longest wait for one part; the server bounds the whole.
PART_S = 60.0


class FileSpeaker:
    """Speech of texts as files: the gateway's ``SpeakText``.

    Args:
        engines: engines of the process.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def __call__(self, text: str, kind: SpeechFormat) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file with the speech.

        Raises:
            EngineError: the voice failed.
        """
        spoken = open_speech(self._engines)
        spoken.write(text)
        spoken.end()
        file = speech_file(kind, VOICE_RATE_HZ)
        async with aclosing(spoken.pieces()) as pieces:
            async for piece in pieces:
                written = await asyncio.to_thread(file.feed, np.frombuffer(piece, "<f4"))
                if written:
                    yield written
        if last := await asyncio.to_thread(file.finish):
            yield last


class FileTranscriber:
    """Transcripts of recordings: the gateway's ``TranscribeRecording``.

    Args:
        engines: engines of the process.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def __call__(self, pcm: bytes) -> RecordingText:
        """Return the words of 16-bit mono PCM at ``AUDIO_RATE_HZ``.

        Raises:
            EngineError: the recogniser failed, or was full all the time.
        """
        texts: list[str] = []
        words: list[WordTime] = []
        for first, end in await asyncio.to_thread(_utterances, self._engines.vad, pcm):
            part = pcm[first * PCM_BYTES_PER_SAMPLE : end * PCM_BYTES_PER_SAMPLE]
            text, timed = await self._heard(part)
            begin_ms = first * 1000 // AUDIO_RATE_HZ
            texts.append(text)
            words += (
                replace(word, start_ms=begin_ms + word.start_ms, end_ms=begin_ms + word.end_ms)
                for word in timed
            )
        duration_s = len(pcm) / PCM_BYTES_PER_SAMPLE / AUDIO_RATE_HZ
        language = self._engines.deployment.bot.language.partition("-")[0]
        return RecordingText(" ".join(filter(None, texts)), tuple(words), duration_s, language)

    async def _heard(self, pcm: bytes) -> tuple[str, tuple[WordTime, ...]]:
        recogniser = self._engines.recogniser
        if recogniser is None:
            # A service reports words without their times.
            return await understood_by_service(self._engines.build_stt, pcm, within_s=PART_S), ()
        said = await transcribed(recogniser, pcm, within_s=PART_S)
        return said.text.strip(), said.words


def _utterances(vad: VoiceActivityDetector, pcm: bytes) -> list[tuple[int, int]]:
    found = VOICE.as_speech_input()
    voices = voiced_parts(
        vad, pcm, confidence=found.confidence, start_ms=found.start_ms, least_db=found.least_db
    )
    samples = pcm16_to_float(pcm)
    return [
        (began + first, began + end)
        for began, ended in voices
        for first, end in quiet_cuts(
            samples[began:ended], AUDIO_RATE_HZ, least_s=LEAST_PART_S, most_s=MOST_PART_S
        )
    ]
