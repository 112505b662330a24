"""Process of a batch job that transcribes sources, one at a time (``jobs`` starts and ends it).

Input: frames of JSON on a connection: first the job's settings, then a source after each result. Output: that
the engines are loaded; progress with every block; the result of a source, after its files are written. Runs
at low priority with one thread, and ends with the process that started it.

    python -m batch.worker SOCKET_FD
"""

import errno
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from parley.batch.decoding import AudioFileDecoder, RefusedSource
from parley.batch.recogniser import load_recogniser
from parley.batch.settings import RATE_HZ, BatchSettings
from parley.batch.sources import SourceKind
from parley.batch.transcriber import SourceTranscriber, TranscribedAudio
from parley.batch.transcript import Transcription, write_transcription
from parley.core.errors import AgentError, EngineError, MediaError
from parley.core.media import float_to_pcm16
from parley.recording.folder import read_recording
from parley.recording.merge import side_blocks
from parley.runtime.parent_death import die_with_the_parent

MOST_MESSAGE_BYTES = 100_000
CALL_BLOCK_MS = 10_000
# Below live calls.
NICENESS = 10
CALL_SIDES = ("caller", "agent")
_TAKEN = "the outputs of another source have the place of its own"
# Failures of one source's outputs; others are the disk's.
UNUSABLE_NAME = {
    errno.ENAMETOOLONG: "its name is too long for the names of its outputs",
    errno.EEXIST: _TAKEN,
    errno.ENOTDIR: _TAKEN,
}


class ReportKind(StrEnum):
    """Kind of a message of a worker."""

    READY = "ready"
    PROGRESS = "progress"
    DONE = "done"
    REFUSED = "refused"
    # No source can be transcribed.
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class WorkItem:
    """Source for a worker.

    Attributes:
        name: of the source.
        path: of the file, or of the folder of the call.
        kind: of the source.
        key: of the item.
        folder: of the outputs.
    """

    name: str
    path: str
    kind: str
    key: str
    folder: str


class BatchWorker:
    """Worker's side of the connection.

    Args:
        connection: to the job.
        settings: of the job.

    Raises:
        ConfigError: an engine or a specialist is wrong.
        EngineError: it does not load.
    """

    def __init__(self, connection: Connection, settings: BatchSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._transcriber = SourceTranscriber(settings, load_recogniser(settings.recogniser))
        self._decoder = AudioFileDecoder(settings.limits)

    def close(self) -> None:
        """End the decoder."""
        self._decoder.close()

    def work(self, item: WorkItem) -> None:
        """Transcribe a source and report the result."""
        began_s = time.process_time()
        try:
            found, decoder_ms = self._transcribe(item)
        except RefusedSource as error:
            self._send(ReportKind.REFUSED, reason=str(error), may_succeed=error.may_succeed)
            return
        except (MediaError, EngineError) as error:
            # A recogniser that fails on one source may work on the next.
            self._send(ReportKind.REFUSED, reason=str(error), may_succeed=isinstance(error, EngineError))
            return
        except OSError as error:
            reason = f"it cannot be read: {error.strerror or error}"
            self._send(ReportKind.REFUSED, reason=reason, may_succeed=True)
            return
        try:
            write_transcription(
                Path(item.folder),
                Transcription(
                    key=item.key,
                    source=item.name,
                    duration_ms=found.duration_ms,
                    speech_ms=found.speech_ms,
                    channels="split" if found.is_split else "mixed",
                    recogniser=self._settings.recogniser,
                    segments=found.segments,
                ),
            )
        except OSError as error:
            if error.errno in UNUSABLE_NAME:
                self._send(ReportKind.REFUSED, reason=UNUSABLE_NAME[error.errno], may_succeed=False)
            else:
                reason = f"{item.folder}: cannot be written: {error.strerror or error}"
                self._send(ReportKind.BROKEN, reason=reason)
        else:
            cpu_ms = round((time.process_time() - began_s) * 1_000) + decoder_ms
            self._send(ReportKind.DONE, audio_ms=found.duration_ms, speech_ms=found.speech_ms, cpu_ms=cpu_ms)

    def _transcribe(self, item: WorkItem) -> tuple[TranscribedAudio, int]:
        """Return the result, and the processor time of the decoder's process."""
        limits = self._settings.limits
        if item.kind == SourceKind.CALL:
            found = self._transcriber.transcribe(
                _call_blocks(Path(item.path)),
                sides=CALL_SIDES,
                most_ms=limits.most_ms,
                on_progress=self._report,
            )
            return found, 0
        blocks = self._decoder.blocks(Path(item.path))
        with closing(blocks):
            found = self._transcriber.transcribe(blocks, most_ms=limits.most_ms, on_progress=self._report)
        return found, self._decoder.cpu_ms

    def _report(self, audio_ms: int) -> None:
        self._send(ReportKind.PROGRESS, audio_ms=audio_ms)

    def _send(self, kind: ReportKind, **facts: Any) -> None:
        self._connection.send_bytes(json.dumps({"kind": kind, **facts}).encode())


def _call_blocks(path: Path) -> Generator[np.ndarray]:
    for block in side_blocks(read_recording(path), RATE_HZ, CALL_BLOCK_MS):
        yield np.stack([np.frombuffer(float_to_pcm16(side), "<i2") for side in block])


def _serve(connection: Connection) -> int:
    settings = BatchSettings.model_validate_json(connection.recv_bytes(MOST_MESSAGE_BYTES))
    os.nice(NICENESS)
    try:
        worker = BatchWorker(connection, settings)
    except AgentError as error:
        connection.send_bytes(json.dumps({"kind": ReportKind.BROKEN, "reason": str(error)}).encode())
        return 1
    with closing(worker):
        connection.send_bytes(json.dumps({"kind": ReportKind.READY}).encode())
        while True:
            worker.work(WorkItem(**json.loads(connection.recv_bytes(MOST_MESSAGE_BYTES))))


def main() -> int:
    """Serve until the connection ends; return the exit status."""
    # Ctrl-C reaches the whole group; the job ends its workers.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    die_with_the_parent()
    # A crash is reported by the job, and a dump of the weights helps no one.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Connection(int(sys.argv[1])) as connection:
        try:
            return _serve(connection)
        except (EOFError, ConnectionError):
            return 0


if __name__ == "__main__":
    sys.exit(main())
