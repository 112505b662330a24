"""Recogniser of a batch job: a row of the registry of live calls, or one for recordings only.

A row that takes many pieces at a time is used so (``models.stt.BatchSpeechToText``). Another one gets a piece
at a time through a stream, as in a call, and no partials are requested of it.
"""

import os
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
from parley.core.registry import Registry
from parley.models.stt import (
    OFFLINE_STT,
    STT,
    BatchSpeechToText,
    PieceTranscript,
    RecordedPiece,
    SpeechToText,
)

# Name of the command line for the recogniser of the deployment ``embedded``.
EMBEDDED, EMBEDDED_ROW = "embedded", "moonshine_tiny"


def recogniser_choice(name: str, settings: dict[str, Any]) -> RecogniserChoice:
    """Return the choice of a command line.

    Raises:
        ConfigError: an unknown name.
    """
    row = EMBEDDED_ROW if name == EMBEDDED else name
    if row not in STT and row not in OFFLINE_STT:
        known = (EMBEDDED, *STT.names(), *OFFLINE_STT.names())
        raise ConfigError(f"--engine: unknown recogniser {name!r}", known=known)
    return RecogniserChoice(name=row, settings=settings)


def check_choice(choice: RecogniserChoice) -> BaseModel:
    """Return the checked settings of the row; its weights are in the folder of live calls.

    Raises:
        ConfigError: an unknown field, a wrong value, a missing file or package.
    """
    rows = _registry(choice)
    settings = {**weights_folder(rows.factory(choice.name)), **choice.settings}
    return checked_settings(rows, choice.name, settings, where="--engine")


def _registry(choice: RecogniserChoice) -> Registry[Any]:
    # A row of a deployment's own module is found in the first one.
    return OFFLINE_STT if choice.name in OFFLINE_STT.own_names() else STT


def gpus_of(choice: RecogniserChoice) -> int:
    """Return the number of GPUs that the row uses: all workers have the same one.

    Raises:
        ConfigError: as ``check_choice``.
    """
    return int(str(getattr(check_choice(choice), "device", "cpu")).startswith("cuda"))


def secrets_of(choice: RecogniserChoice) -> dict[str, str]:
    """Return the variables of the environment with the secrets that the row needs.

    Raises:
        ConfigError: as ``check_choice``.
    """
    name = getattr(check_choice(choice), "api_key_env", None)
    return {name: os.environ[name]} if isinstance(name, str) and name in os.environ else {}


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
    engine = _registry(choice).create(choice.name, check_choice(choice))
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
