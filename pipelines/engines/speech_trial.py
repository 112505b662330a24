"""A phrase in the embedded voice, and what the embedded recogniser makes of it.

For the measurement of a recogniser at the start of a server, and for ``parley doctor``.
"""

import asyncio
from concurrent.futures import Executor

from parley.audio.resample import Resampler
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.models.stt import Transcript
from parley.models.tts import SpeechPiece, TextToSpeech
from parley.runtime.utterances import UtteranceEngine

# As long as a short question, of common words.
MEASURED_PHRASE = "hello, i would like to know when you are open"


def spoken_pcm(voice: TextToSpeech, text: str, rate_hz: int) -> bytes:
    """Return 16-bit PCM of a text, at another rate than the voice's. Blocks."""
    pieces: list[bytes] = []

    def take(piece: SpeechPiece) -> bool:
        pieces.append(piece.pcm)
        return True

    voice.synthesize(text, take)
    samples = pcm16_to_float(b"".join(pieces))
    if voice.rate_hz != rate_hz:
        samples = Resampler(voice.rate_hz, rate_hz).feed(samples)
    return float_to_pcm16(samples)


async def recognised(stt: UtteranceEngine[Transcript], pcm: bytes) -> str:
    """Return the words that a recogniser finds in an utterance at its own rate.

    Raises:
        EngineError: it failed.
    """
    stream = await stt.open_stream(lambda _partial: None, lambda _error: None)
    try:
        stream.start()
        stream.feed(pcm)
        return (await stream.finish()).text
    finally:
        stream.close()


async def understood(
    voice: TextToSpeech, stt: UtteranceEngine[Transcript], executor: Executor, phrase: str = MEASURED_PHRASE
) -> str:
    """Return the words that a recogniser finds in a phrase of a voice.

    Raises:
        EngineError: one of them failed.
    """
    pcm = await asyncio.get_running_loop().run_in_executor(executor, spoken_pcm, voice, phrase, stt.rate_hz)
    return await recognised(stt, pcm)
