"""Speech and transcripts that OpenAI's clients request, by the deployment's voice and recogniser.

A text is spoken clause by clause, and its file is sent while it is made. A recording is transcribed utterance
by utterance. Both leave the engines to calls between two clauses or pieces.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import numpy as np

from parley.audio.speech_file import speech_file
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime
from parley.core.speech_formats import SpeechFormat
from parley.models.stt.speech_cutter import CutPiece, SpeechCutter
from parley.pipelines.engines.engines import Engines
from parley.pipelines.recordings import transcribed, understood_by_service
from parley.pipelines.sockets.chat_speech import open_speech
from parley.protocols.chat_ws import AUDIO_RATE_HZ, VOICE_RATE_HZ
from parley.protocols.openai_http import RecordingText

# Silence that ends a piece, 416 ms. Recognisers lose and repeat words in audio with long pauses: of one
# sentence that was said 14 times with half a second between, in parts of 20 s, Moonshine tiny returned six.
PAUSE_WINDOWS = 13
# Silence around a piece, 256 ms: as much as in a call (``pre_speech_ms``).
EDGE_WINDOWS = 8
# Audio that is cut between two looks at whether the client is still there.
BLOCK_BYTES = 10 * AUDIO_RATE_HZ * PCM_BYTES_PER_SAMPLE
# Longest wait for one part; the server bounds the whole.
PART_S = 60.0


class FileSpeaker:
    """Speech of texts as files: the gateway's ``SpeakText``.

    Args:
        engines: engines of the process.
    """

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def __call__(self, text: str, kind: SpeechFormat, voice: str) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a file with the speech of a voice.

        Raises:
            EngineError: the voice failed.
        """
        spoken = open_speech(self._engines, voice)
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
        async with aclosing(self._pieces(pcm)) as pieces:
            async for piece in pieces:
                text, timed = await self._heard(piece.pcm)
                begin_ms = piece.start * 1000 // AUDIO_RATE_HZ
                texts.append(text)
                words += (
                    replace(word, start_ms=begin_ms + word.start_ms, end_ms=begin_ms + word.end_ms)
                    for word in timed
                )
        duration_s = len(pcm) / PCM_BYTES_PER_SAMPLE / AUDIO_RATE_HZ
        language = self._engines.deployment.bot.language.partition("-")[0]
        return RecordingText(" ".join(filter(None, texts)), tuple(words), duration_s, language)

    async def _pieces(self, pcm: bytes) -> AsyncGenerator[CutPiece, None]:
        cutter = SpeechCutter(self._engines.vad, pause_windows=PAUSE_WINDOWS, edge_windows=EDGE_WINDOWS)
        for start in range(0, len(pcm), BLOCK_BYTES):
            for piece in await asyncio.to_thread(cutter.feed, pcm[start : start + BLOCK_BYTES]):
                yield piece
        for piece in await asyncio.to_thread(cutter.finish):
            yield piece

    async def _heard(self, pcm: bytes) -> tuple[str, tuple[WordTime, ...]]:
        recogniser = self._engines.recogniser
        if recogniser is None:
            # A service reports words without their times.
            return await understood_by_service(self._engines.build_stt, pcm, within_s=PART_S), ()
        said = await transcribed(recogniser, pcm, within_s=PART_S)
        return said.text.strip(), said.words
