"""Recogniser of recordings with NVIDIA NeMo's models of whole utterances (Parakeet, Canary), in a process.

Input: pieces of recordings. Output: their transcripts, as ``models.stt.BatchSpeechToText``. NeMo has a Python
environment of its own (``requirements/nemo.txt``); ``python`` names its interpreter, in which
``nemo_offline_process`` has the model. It gets a batch and answers with its transcripts.

Slow: an answer is waited for ``answer_s``. A process that is silent for longer, or ends, is an
``EngineError`` of this batch; the next one starts another process. It ends with this process.
"""

import json
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from parley.core.errors import ConfigError, EngineError
from parley.core.media import WordTime, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.models.stt import PieceTranscript, RecordedPiece
from parley.models.stt.words import fit_words
from parley.runtime.engine_hosting.supervisor import child_environment

ENGINE = "nemo_offline"
RATE_HZ = 16_000
# Of an answer: the words of some pieces.
MOST_ANSWER_BYTES = 10_000_000


class NemoOfflineSettings(StrictModel):
    """Model, its environment and deadlines."""

    model: str = Field(
        "nvidia/parakeet-tdt-0.6b-v2",
        min_length=1,
        description="a .nemo file, or the name of a model that NeMo downloads: a transducer, CTC or Canary",
    )
    python: Path = Field(
        Path("nemo-venv/bin/python"),
        description="interpreter of an environment with requirements/worker.txt and requirements/nemo.txt",
    )
    device: str = Field("cpu", description="torch device: cpu, cuda or cuda:1")
    threads: int = Field(1, ge=1, le=64, description="threads of torch on the CPU")
    batch_pieces: int = Field(8, ge=1, le=256, description="pieces that are decoded together; more on a GPU")
    language: str = Field("en", min_length=2, description="language of the speech, for Canary")
    load_s: float = Field(110.0, gt=0, le=3_600, description="longest time in which the model loads")
    answer_s: float = Field(170.0, gt=0, le=3_600, description="longest time in which a batch is decoded")

    def check(self) -> None:
        """Check that the interpreter and a model file exist, as ``core.files.Checked`` requires."""
        if self.model.endswith(".nemo") and not Path(self.model).is_file():
            raise ConfigError(f"{ENGINE!r} needs {self.model}, which does not exist")
        if not self.python.exists():
            raise ConfigError(
                f"{ENGINE!r} needs {self.python}, an environment of NeMo's (docs/how-to/workers.md); set "
                "python to its interpreter"
            )


class NemoOfflineStt:
    """Recogniser of recordings in a process of NeMo's environment. For one thread.

    Args:
        settings: model, its environment and deadlines.

    Raises:
        ConfigError: the model is of another kind, or a file is missing.
        EngineError: it does not load, or not in time.
    """

    rate_hz = RATE_HZ

    def __init__(self, settings: NemoOfflineSettings) -> None:
        settings.check()
        self.batch_pieces = settings.batch_pieces
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._start()

    def transcribe(self, pieces: Sequence[RecordedPiece]) -> list[PieceTranscript]:
        """Return the transcript of each piece, as ``models.stt.BatchSpeechToText``.

        Raises:
            EngineError: decoding failed, or the process is gone or silent.
        """
        if not pieces:
            return []
        if self._connection is None:
            self._start()
        self._send(json.dumps({"samples": [len(piece.samples) for piece in pieces]}).encode())
        self._send(np.concatenate([piece.samples for piece in pieces]).astype("<f4").tobytes())
        found = self._answer(self._settings.answer_s)["transcripts"]
        return [
            PieceTranscript(
                each["written"],
                fit_words(
                    tuple(WordTime(*word) for word in each["words"]),
                    samples_to_ms(len(piece.samples), RATE_HZ),
                ),
            )
            for piece, each in zip(pieces, found, strict=True)
        ]

    @property
    def pid(self) -> int:
        """Id of the process; 0 without one."""
        return 0 if self._process is None else self._process.pid

    def close(self) -> None:
        """End the process; the next batch starts another."""
        connection, process, self._connection, self._process = self._connection, self._process, None, None
        if connection is not None:
            connection.close()
        if process is not None:
            process.kill()
            process.wait()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            handle = theirs.fileno()
            python = str(self._settings.python.absolute())
            self._process = subprocess.Popen(
                (python, "-m", "parley.models.stt.nemo_offline_process", str(handle)),
                env=child_environment(on_device=True),
                pass_fds=(handle,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # NeMo's remarks about its optional packages fill a screen.
                stderr=subprocess.DEVNULL,
            )
        self._connection = Connection(ours.detach())
        self._send(self._settings.model_dump_json().encode())
        loaded = self._answer(self._settings.load_s)
        if (reason := loaded.get("config_error")) is not None:
            self.close()
            raise ConfigError(str(reason))

    def _send(self, content: bytes) -> None:
        assert self._connection is not None
        # A process that is gone is noticed when its answer is read.
        with suppress(OSError):
            self._connection.send_bytes(content)

    def _answer(self, within_s: float) -> dict[str, Any]:
        assert self._connection is not None
        try:
            if not self._connection.poll(within_s):
                self.close()
                raise self._failed(f"its process did not answer in {within_s:g} s")
            answer: dict[str, Any] = json.loads(self._connection.recv_bytes(MOST_ANSWER_BYTES))
        except (EOFError, OSError) as error:
            self.close()
            raise self._failed("its process has ended") from error
        if (reason := answer.get("error")) is not None:
            raise self._failed(str(reason))
        return answer

    def _failed(self, reason: str) -> EngineError:
        return EngineError(f"{self._settings.model}: {reason}", engine=ENGINE)
