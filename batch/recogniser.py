"""Recogniser of a batch job: a row of the registry of live calls, with settings for pieces of recordings.

A row that takes many pieces at a time is used so (``models.stt.BatchSpeechToText``). Another one gets a piece
at a time through a stream, as in a call, and no partials are requested of it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from parley.batch.settings import RATE_HZ, RecogniserChoice
from parley.configs.engines import checked_settings, settings_model
from parley.core.errors import ConfigError
from parley.core.files import MODELS_DIR
from parley.core.installation import written_dir
from parley.core.media import float_to_pcm16
from parley.models.stt import STT, BatchSpeechToText, PieceTranscript, RecordedPiece, SpeechToText

# Name of the command line for the recogniser of the deployment ``embedded``.
EMBEDDED, EMBEDDED_ROW = "embedded", "moonshine_tiny"


def recogniser_choice(name: str, settings: dict[str, Any]) -> RecogniserChoice:
    """Return the choice of a command line.

    Raises:
        ConfigError: an unknown name.
    """
    row = EMBEDDED_ROW if name == EMBEDDED else name
    if row not in STT:
        raise ConfigError(f"--engine: unknown recogniser {name!r}", known=(EMBEDDED, *STT.names()))
    return RecogniserChoice(name=row, settings=settings)


def check_choice(choice: RecogniserChoice) -> BaseModel:
    """Return the checked settings of the row; its weights are in the folder of live calls.

    Raises:
        ConfigError: an unknown field, a wrong value, a missing file or package.
    """
    settings = {**weights_folder(STT.factory(choice.name)), **choice.settings}
    return checked_settings(STT, choice.name, settings, where="--engine")


def weights_folder(factory: Callable[..., Any]) -> dict[str, Path]:
    """Return the setting of an engine for the folder of its weights; empty for one without weights."""
    return (
        {"models_dir": written_dir() / MODELS_DIR}
        if "models_dir" in settings_model(factory).model_fields
        else {}
    )


def load_recogniser(choice: RecogniserChoice) -> BatchSpeechToText:
    """Load the row.

    Raises:
        ConfigError: as ``check_choice``.
        EngineError: it does not load.
    """
    engine = STT.create(choice.name, check_choice(choice))
    if engine.rate_hz != RATE_HZ:
        raise ConfigError(f"--engine: {choice.name!r} takes {engine.rate_hz} Hz, a batch job has {RATE_HZ}")
    return engine if isinstance(engine, BatchSpeechToText) else StreamedPieces(engine)


class StreamedPieces:
    """Pieces for a recogniser of streams, one at a time.

    Args:
        engine: recogniser.
    """

    batch_pieces = 1

    def __init__(self, engine: SpeechToText) -> None:
        self.rate_hz = engine.rate_hz
        self._stream = engine.open_stream()

    def transcribe(self, pieces: Sequence[RecordedPiece]) -> list[PieceTranscript]:
        """Return the transcript of each piece.

        Raises:
            EngineError: the recogniser failed.
        """
        found: list[PieceTranscript] = []
        for piece in pieces:
            self._stream.start()
            self._stream.feed(float_to_pcm16(piece.samples))
            final = self._stream.finish()
            found.append(PieceTranscript(final.text, final.words))
        return found
