"""Speech to text: takes audio of one caller, returns words with times and confidences.

The engine holds the weights; a stream is one caller. A stream works in utterances: ``start`` opens one,
``feed`` takes audio and may return a partial, ``finish`` closes it and returns the final transcript,
``discard`` closes it without. All methods block, and a stream is used from one thread at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol, runtime_checkable

import numpy as np

from parley.core.media import WordTime
from parley.core.registry import Registry, Row


@dataclass(frozen=True, slots=True)
class Transcript:
    """Transcript of an utterance so far.

    Attributes:
        text: the words, lower case, joined by spaces; empty when nothing was understood.
        words: the same words with their times from the start of the utterance; a partial may leave it empty.
        confidence: 0..1, mean of the words; 0.0 for empty text.
        final: no later transcript of this utterance will come.
        floor_log_odds: log odds that the speaker claims the floor; None from an engine without an estimate.
    """

    text: str
    words: tuple[WordTime, ...] = ()
    confidence: float = 0.0
    final: bool = False
    floor_log_odds: float | None = None

    @property
    def confidences(self) -> tuple[float, ...]:
        """Confidence of each word that spaces divide; ``confidence`` alone where that is not known."""
        each = tuple(word.confidence for word in self.words for _ in word.text.split())
        return each if len(each) == len(self.text.split()) else (self.confidence,)


class SpeechStream(Protocol):
    """Stream of one caller. Not thread-safe."""

    def start(self) -> None:
        """Begin an utterance. Discards an open one."""
        ...

    def feed(self, pcm: bytes) -> Transcript | None:
        """Take 16-bit mono PCM at the engine's rate; return a partial when the text changed, else None.

        Raises EngineError outside an utterance.
        """
        ...

    def finish(self) -> Transcript:
        """End the utterance and return its final transcript (empty text when nothing was understood).

        Raises EngineError outside an utterance.
        """
        ...

    def discard(self) -> None:
        """End the utterance without a transcript. Allowed outside one."""
        ...

    def close(self) -> None:
        """Release the stream. It is not used again."""
        ...


class SpeechToText(Protocol):
    """Recogniser with shared weights."""

    rate_hz: int

    def open_stream(self) -> SpeechStream: ...


@dataclass(frozen=True, slots=True, eq=False)
class RecordedPiece:
    """Piece of a recording, cut at pauses.

    Attributes:
        samples: float32, (samples,), in [-1, 1], at the recogniser's rate.
        voiced: one flag per window of 32 ms: 1 for a voice and its edges, 0 for quiet.
    """

    samples: np.ndarray
    voiced: Sequence[int]


@dataclass(frozen=True, slots=True)
class PieceTranscript:
    """Transcript of a piece.

    Attributes:
        written: the words as the recogniser writes them, with punctuation where it has any.
        words: the words as in ``Transcript``, with times from the start of the piece.
    """

    written: str
    words: tuple[WordTime, ...]


@runtime_checkable
class BatchSpeechToText(Protocol):
    """Recogniser that also takes many pieces of recordings at a time, which costs less than one by one.

    Attributes:
        rate_hz: rate of the audio.
        batch_pieces: number of pieces that it takes best.
    """

    rate_hz: int
    batch_pieces: int

    def transcribe(self, pieces: Sequence[RecordedPiece]) -> list[PieceTranscript]:
        """Return the transcript of each piece, in the order of the pieces. Blocks.

        Raises:
            EngineError: the recogniser failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class RecogniserTraits:
    """Properties of a recogniser that stages before and after it adapt to, in any deployment.

    An engine that differs from the defaults has class attributes of these names in its settings model, and a
    service in its row.

    Attributes:
        wants_noise_suppression: it recognises better after WebRTC's noise suppression. Moonshine tiny has 4.3
            % word errors on 31 clean human clips without it and 8.9 % with it; at 10 dB of pink noise 11.5
            and 10.5 %, of babble 13.1 and 10.2 %, at 5 dB of babble 34.4 and 31.5 % (305 words).
        heard_for_fillers: words that it writes for "um" after a clause. PocketSphinx writes "them" for 10 of
            16 of flite's voices, and hardly any question ends with it.
        doubtful_below: mean confidence of a turn's words below which the bot asks back, unless the deployment
            sets one; None: the bot does not ask back.
        lost_below: mean confidence below which nothing was understood, unless the deployment sets one.
        sure_from: mean confidence of an utterance's words from which they replace another recogniser's
            doubtful ones.
        looks_at_voices: it answers questions about the beginning of a voice (``models.stt.looks``).
        has_partials: it reports words while a voice goes on. A service without them answers a voice as a
            whole, and reports an error where it does not, before its own deadline.
    """

    wants_noise_suppression: bool = False
    heard_for_fillers: tuple[str, ...] = ()
    doubtful_below: float | None = None
    lost_below: float = 0.0
    sure_from: float = 0.0
    looks_at_voices: bool = False
    has_partials: bool = True


def recogniser_traits(settings: object) -> RecogniserTraits:
    """Return the traits of the recogniser with these settings."""
    declared = {name: getattr(type(settings), name) for name in _TRAITS if hasattr(type(settings), name)}
    return RecogniserTraits(**declared)


_TRAITS = tuple(field.name for field in fields(RecogniserTraits))

STT: Registry[SpeechToText] = Registry(
    "stt engine",
    {
        "moonshine_tiny": Row(
            "parley.models.stt.moonshine_tiny:MoonshineTinyStt",
            "the default: partial texts, English, its weights come with `make run`",
        ),
        "pocketsphinx": Row(
            "parley.models.stt.pocketsphinx:PocketsphinxStt",
            "the fallback, which needs no weights: clear simple English with a small vocabulary",
        ),
        "moonshine": Row(
            "parley.models.stt.moonshine:MoonshineStt",
            "Moonshine's larger streaming models, English and some other languages; needs `make models`",
            extra="moonshine",
        ),
        "whisper": Row(
            "parley.models.stt.whisper:WhisperStt",
            "whole utterances, many languages, slow on a CPU; needs `make models`",
            extra="whisper",
        ),
        "nemo": Row(
            "parley.models.stt.nemo:NemoStt",
            "NVIDIA's streaming transducers (FastConformer, TDT), in a worker with its own Python "
            "environment",
        ),
        "worker": Row(
            "parley.models.stt.hosted.engine:WorkerStt",
            "any recogniser in a worker (`python runner.py --role worker`), reached at its url",
        ),
    },
)

# Recognisers that take whole pieces only: for recordings, and not for calls.
OFFLINE_STT: Registry[BatchSpeechToText] = Registry(
    "offline stt engine",
    {
        "nemo_offline": Row(
            "parley.models.stt.nemo_offline:NemoOfflineStt",
            "NVIDIA's models of whole utterances (Parakeet, Canary), in a process with its own Python "
            "environment",
        ),
        "mistral": Row(
            "parley.models.stt.mistral_recordings:MistralRecordings",
            "Mistral's cloud: Voxtral Mini Transcribe",
            env=("MISTRAL_API_KEY",),
        ),
    },
)
