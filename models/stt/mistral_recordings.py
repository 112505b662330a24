"""Recogniser of recordings in Mistral's cloud (Voxtral Mini Transcribe), or a server with its protocol.

Input: pieces of recordings. Output: their texts, as ``models.stt.BatchSpeechToText``. Each piece is a request
of its own; those of a batch are sent at the same time. The times of words are estimated over the voiced
windows. Audio leaves the machine.

Slow, or too many requests: a request has ``timeout_s``, and is tried again with growing pauses. What fails
after that is an ``EngineError`` of the source. A key that is refused is a ``ConfigError``.
"""

import io
import os
import wave
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import openai
from pydantic import Field

from parley.core.errors import ConfigError, EngineError
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, float_to_pcm16, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.models.stt import PieceTranscript, RecordedPiece
from parley.models.stt.voice import WINDOW_BYTES
from parley.models.stt.words import fit_words, plain_words, spread_over_voice

ENGINE = "mistral"
RATE_HZ = 16_000
_WINDOW_MS = samples_to_ms(WINDOW_BYTES // PCM_BYTES_PER_SAMPLE, RATE_HZ)


class MistralRecordingsSettings(StrictModel):
    """Model, address and deadlines."""

    model: str = Field("voxtral-mini-latest", min_length=1, description="the provider's model name")
    url: str = Field(
        "https://api.mistral.ai/v1",
        pattern=r"^https?://[^?#]+$",
        description="address below which ``/audio/transcriptions`` is",
    )
    language: str | None = Field(
        None, min_length=2, description="language of the speech; null: the model finds it"
    )
    api_key_env: str = Field(
        "MISTRAL_API_KEY", min_length=1, description="environment variable that holds the key"
    )
    batch_pieces: int = Field(8, ge=1, le=64, description="requests at the same time")
    timeout_s: float = Field(60.0, gt=0, le=600, description="longest time of a request")
    retries: int = Field(4, ge=0, le=20, description="times that a failed request is tried again")

    def check(self) -> None:
        """Check that there is a key, as ``core.files.Checked`` requires."""
        if not os.environ.get(self.api_key_env):
            raise ConfigError(f"{ENGINE!r} needs a key in the environment variable {self.api_key_env}")


class MistralRecordings:
    """Recogniser of recordings in the cloud. For one thread.

    Args:
        settings: model, address and deadlines.

    Raises:
        ConfigError: there is no key.
    """

    rate_hz = RATE_HZ

    def __init__(self, settings: MistralRecordingsSettings) -> None:
        settings.check()
        self.batch_pieces = settings.batch_pieces
        self._settings = settings
        self._client = openai.OpenAI(
            api_key=os.environ[settings.api_key_env],
            base_url=settings.url,
            timeout=settings.timeout_s,
            max_retries=settings.retries,
        )

    def transcribe(self, pieces: Sequence[RecordedPiece]) -> list[PieceTranscript]:
        """Return the transcript of each piece, as ``models.stt.BatchSpeechToText``.

        Raises:
            EngineError: a request failed, also when it was tried again.
            ConfigError: the key is refused.
        """
        if not pieces:
            return []
        try:
            with ThreadPoolExecutor(len(pieces), thread_name_prefix=ENGINE) as threads:
                return list(threads.map(self._transcribe, pieces))
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise ConfigError(
                f"{ENGINE!r}: the key of {self._settings.api_key_env} is refused ({error.status_code})"
            ) from error
        except openai.OpenAIError as error:
            # Its text may hold the answer of a server.
            status = getattr(error, "status_code", None)
            reason = type(error).__name__ if status is None else f"status {status}"
            raise EngineError(f"{ENGINE}: a request failed: {reason}", engine=ENGINE) from error

    def _transcribe(self, piece: RecordedPiece) -> PieceTranscript:
        chosen = self._settings
        language = openai.omit if chosen.language is None else chosen.language
        found = self._client.audio.transcriptions.create(
            file=("piece.wav", _wav(float_to_pcm16(piece.samples))), model=chosen.model, language=language
        )
        written = found.text.strip()
        duration_ms = samples_to_ms(len(piece.samples), RATE_HZ)
        words = plain_words([WordTime(word, 0, 0) for word in written.split()])
        spread = spread_over_voice(words, piece.voiced, _WINDOW_MS, duration_ms)
        return PieceTranscript(written, fit_words(tuple(spread), duration_ms))


def _wav(pcm: bytes) -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(PCM_BYTES_PER_SAMPLE)
        file.setframerate(RATE_HZ)
        file.writeframes(pcm)
    return content.getvalue()
