"""Process in NeMo's environment that transcribes pieces of recordings (``nemo_offline`` starts it).

Input: on a socket the settings (LOAD), then batches: the samples of each piece (AUDIO), and the end of the
batch (FINISH). Output: that the model is loaded, or why not; the transcripts of each batch in JSON.
Transducers (RNN-T, TDT), CTC and models of both are decoded greedily with times and confidences. The times of
Canary's words are estimated.

    python -m models.stt.nemo_offline_process SOCKET_FD
"""

import copy
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from nemo.collections.asr.models import (
    ASRModel,
    EncDecCTCModel,
    EncDecMultiTaskModel,
    EncDecRNNTModel,
)
from nemo.utils import logging as nemo_logging
from omegaconf import open_dict

from parley.core.errors import ConfigError, EngineError
from parley.core.media import WordTime, samples_to_ms
from parley.models.stt.nemo_decoding import change_decoding, confidences
from parley.models.stt.nemo_offline import ENGINE, RATE_HZ, NemoOfflineSettings
from parley.models.stt.words import plain_words, spread_words, timed_word
from parley.runtime.engine_hosting.child_server import ChildServer
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.runtime.parent_death import die_with_the_parent


class NemoPieces:
    """Model that transcribes batches of pieces.

    Args:
        settings: model and device.

    Raises:
        ConfigError: the model is of a kind that is not supported.
        EngineError: it does not load.
    """

    def __init__(self, settings: NemoOfflineSettings) -> None:
        nemo_logging.setLevel(nemo_logging.ERROR)
        torch.set_num_threads(settings.threads)
        self._settings = settings
        self._model = _load(settings)
        self._is_canary = isinstance(self._model, EncDecMultiTaskModel)

    def transcribe(self, pieces: Sequence[np.ndarray]) -> list[dict[str, Any]]:
        """Return the text and the words of each piece, float32, (samples,), in [-1, 1].

        Raises:
            EngineError: decoding failed.
        """
        try:
            with torch.inference_mode():
                found = self._decode(list(pieces))
        except Exception as error:  # torch's errors have no common base class
            raise EngineError(f"decoding failed: {type(error).__name__}", engine=ENGINE) from error
        best = found[0] if isinstance(found, tuple) else found
        return [_transcript(each, len(piece)) for each, piece in zip(best, pieces, strict=True)]

    def _decode(self, pieces: list[np.ndarray]) -> Any:
        options: dict[str, Any] = {"timestamps": True}
        if self._is_canary:
            language = self._settings.language
            options = {"source_lang": language, "target_lang": language, "task": "asr", "pnc": "yes"}
        return self._model.transcribe(
            pieces, batch_size=len(pieces), return_hypotheses=True, verbose=False, **options
        )


def _load(settings: NemoOfflineSettings) -> Any:
    try:
        if settings.model.endswith(".nemo"):
            model = ASRModel.restore_from(settings.model, map_location=settings.device)
        else:
            model = ASRModel.from_pretrained(settings.model, map_location=settings.device)
    except Exception as error:  # errors of torch, the hub and tar files have no common base class
        said = f"it does not load: {type(error).__name__}: {error}"
        raise EngineError(said, engine=ENGINE, retryable=False) from error
    if not isinstance(model, EncDecRNNTModel | EncDecCTCModel | EncDecMultiTaskModel):
        raise ConfigError(f"{ENGINE!r}: {settings.model} is neither a transducer, nor CTC, nor Canary")
    model.eval()
    model.freeze()
    if not isinstance(model, EncDecMultiTaskModel):
        _set_decoding(model)
    return model


def _set_decoding(model: Any) -> None:
    """Configure greedy decoding of batches, with times and with the confidence in each word."""
    decoding = copy.deepcopy(model.cfg.decoding)
    with open_dict(decoding):
        decoding.strategy = "greedy_batch"
        decoding.compute_timestamps = True
        decoding.confidence_cfg = confidences(words=True)
    change_decoding(model, decoding)


def _transcript(found: Any, samples: int) -> dict[str, Any]:
    written = str(found.text or "")
    times = found.timestamp.get("word", ()) if isinstance(found.timestamp, dict) else ()
    if times or not written:
        shares = [float(share) for share in found.word_confidence or ()]
        if len(shares) != len(times):
            shares = [1.0] * len(times)
        words = [
            timed_word(each["word"], float(each["start"]), float(each["end"]), share)
            for each, share in zip(times, shares, strict=True)
        ]
    else:
        words = list(spread_words(written, 0, samples_to_ms(samples, RATE_HZ)))
    return {"written": written, "words": [_facts(word) for word in plain_words(words)]}


def _facts(word: WordTime) -> list[Any]:
    return [word.text, word.start_ms, word.end_ms, word.confidence, word.estimated]


class PieceServer:
    """Answers of one model to the questions of ``nemo_offline``."""

    def __init__(self) -> None:
        self._model: NemoPieces | None = None
        self._pieces: list[np.ndarray] = []

    def carry_out(self, question: EngineMessage) -> tuple[dict[str, Any], bytes]:
        """Return facts and payload of an answer.

        Raises:
            ConfigError: the model is of a kind that is not supported.
            EngineError: it does not load, decoding failed, or the question is unknown.
        """
        if question.type is MessageType.LOAD:
            self._model = NemoPieces(NemoOfflineSettings.model_validate(dict(question.facts)))
            return {}, b""
        if question.type is MessageType.AUDIO:
            self._pieces.append(np.frombuffer(question.payload, "<f4").copy())
            return {}, b""
        if self._model is None or question.type is not MessageType.FINISH:
            raise EngineError(f"unexpected {question.type}", engine=ENGINE, retryable=False)
        pieces, self._pieces = self._pieces, []
        return {}, json.dumps(self._model.transcribe(pieces)).encode()


def main() -> None:
    """Serve until the socket is closed, which ends the process."""
    # The job decides when it ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    die_with_the_parent()
    with socket.socket(fileno=int(sys.argv[1])) as connection, suppress(OSError):
        ChildServer(connection, PieceServer().carry_out, name=ENGINE).serve()
    # Threads of NeMo's packages hold up the end of the interpreter.
    os._exit(0)


if __name__ == "__main__":
    main()
