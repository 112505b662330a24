"""Recogniser of recordings with NVIDIA NeMo's models of whole utterances (Parakeet, Canary), in a process.

Input: pieces of recordings. Output: their transcripts, as ``models.stt.BatchSpeechToText``. NeMo has a Python
environment of its own (``requirements/nemo.txt``); ``python`` names its interpreter, in which
``nemo_offline_process`` has the model. It gets the pieces of a batch one by one, because a batch is larger
than a message, and answers the end of the batch with its transcripts.

Slow: an answer is waited for ``answer_s``. A process that does not answer for longer is killed, and one that
ends is restarted (``BlockingChild``). Either is an ``EngineError`` of this batch; the next one waits until
the model is loaded again. It ends with this process.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from parley.core.errors import ConfigError
from parley.core.media import WordTime, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.models.stt import PieceTranscript, RecordedPiece
from parley.models.stt.words import fit_words
from parley.runtime.engine_hosting.blocking import BlockingChild
from parley.runtime.engine_hosting.child import ChildSettings
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType

ENGINE = "nemo_offline"
RATE_HZ = 16_000
# A process that decodes on a device may use no processor meanwhile, and its deadline is ``answer_s``.
HUNG_MS = 60_000


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
        self._child = BlockingChild(
            (str(settings.python.absolute()), "-m", "parley.models.stt.nemo_offline_process"),
            settings.model_dump(mode="json"),
            limits=ChildSettings(start_timeout_s=settings.load_s, hung_ms=HUNG_MS),
            name=ENGINE,
        )
        self._child.start()

    def transcribe(self, pieces: Sequence[RecordedPiece]) -> list[PieceTranscript]:
        """Return the transcript of each piece, as ``models.stt.BatchSpeechToText``.

        Raises:
            EngineError: decoding failed, or the process is gone or silent.
        """
        if not pieces:
            return []
        self._child.wait_ready(lambda: False)
        life = self._child.restarts
        for piece in pieces:
            self._ask(MessageType.AUDIO, piece.samples.astype("<f4").tobytes(), life=life)
        found = json.loads(self._ask(MessageType.FINISH, life=life).payload)
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
        return self._child.pid or 0

    def close(self) -> None:
        """End the process. None is started afterwards."""
        self._child.close()

    def _ask(self, type_: MessageType, payload: bytes = b"", *, life: int) -> EngineMessage:
        answer = self._child.ask(type_, payload=payload, life=life, within_s=self._settings.answer_s)
        # Nothing stops a question.
        assert answer is not None
        return answer
