"""Process of a batch job that transcribes sources, one at a time (``jobs`` starts and ends it).

Input: frames of JSON on a connection: first the job's settings, then a source after each result. Output: that
the engines are loaded; progress with every block; the result of a source, after its files are written. Runs
at low priority with one thread, and ends with the process that started it.

    python -m batch.worker SOCKET_FD
"""

import asyncio
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from typing import Any

from parley.batch.decoding import RefusedSource
from parley.batch.destination import OutputError
from parley.batch.places import writer_at
from parley.batch.reading import SourceReader
from parley.batch.recogniser import load_recogniser
from parley.batch.session_export import session_export
from parley.batch.settings import BatchSettings
from parley.batch.sources import SourceKind
from parley.batch.transcriber import SourceTranscriber, TranscribedAudio
from parley.batch.transcript import Transcription
from parley.core.errors import AgentError, ConfigError, EngineError, MediaError
from parley.runtime.object_store import ObjectStoreError
from parley.runtime.parent_death import die_with_the_parent

MOST_MESSAGE_BYTES = 100_000
# Below live calls.
NICENESS = 10


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
        location: of the source (``BatchSource``).
        kind: of the source.
        version: of the source.
        key: of the item.
        written_us: time when the source was written.
        replaced: tags of the outputs that are there (``Destination.replaced``).
    """

    name: str
    location: str
    kind: str
    version: str
    key: str
    written_us: int
    replaced: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class JobStart:
    """First message to a worker: settings of the job, and the location of its outputs."""

    settings: dict[str, Any]
    location: str


@dataclass(frozen=True, slots=True)
class WorkReport:
    """Result of one source.

    Attributes:
        kind: of the result.
        audio_ms: length of its audio, when it is done.
        speech_ms: audio that was recognised.
        cpu_ms: processor time.
        reason: why it was refused, or why no source can be done.
        may_succeed: another try may succeed.
    """

    kind: ReportKind
    audio_ms: int = 0
    speech_ms: int = 0
    cpu_ms: int = 0
    reason: str = ""
    may_succeed: bool = False


class BatchWorker:
    """Engines of one process, which transcribe one source after the other. For one thread.

    Args:
        settings: of the job.
        location: of the outputs.
        on_progress: called with the milliseconds of audio so far of the source under way.

    Raises:
        ConfigError: an engine or a specialist is wrong.
        EngineError: it does not load.
    """

    def __init__(
        self,
        settings: BatchSettings,
        location: str,
        on_progress: Callable[[int], None] = lambda _audio_ms: None,
    ) -> None:
        self._settings = settings
        self._on_progress = on_progress
        self._transcriber = SourceTranscriber(settings, load_recogniser(settings.recogniser))
        self._reader = SourceReader(settings.limits, lambda: on_progress(0))
        self._writer = writer_at(location, settings.limits)

    def close(self) -> None:
        """End the decoder."""
        self._reader.close()

    def work(self, item: WorkItem) -> WorkReport:
        """Transcribe a source, write its outputs and return the result."""
        began_s = time.process_time()
        try:
            found = self._transcribe(item)
            written = Transcription(
                key=item.key,
                source=item.name,
                duration_ms=found.duration_ms,
                speech_ms=found.speech_ms,
                channels="split" if found.is_split else "mixed",
                recogniser=self._settings.recogniser,
                segments=found.segments,
            )
            session = self._session(written, item)
            self._writer.write(written, item.replaced, session)
        except RefusedSource as error:
            return WorkReport(ReportKind.REFUSED, reason=str(error), may_succeed=error.may_succeed)
        except (OutputError, ObjectStoreError, ConfigError) as error:
            return WorkReport(ReportKind.BROKEN, reason=str(error))
        except (MediaError, EngineError) as error:
            # A recogniser that fails on one source may work on the next.
            may_succeed = isinstance(error, EngineError)
            return WorkReport(ReportKind.REFUSED, reason=str(error), may_succeed=may_succeed)
        except OSError as error:
            reason = f"it cannot be read: {error.strerror or error}"
            return WorkReport(ReportKind.REFUSED, reason=reason, may_succeed=True)
        cpu_ms = round((time.process_time() - began_s) * 1_000) + self._reader.cpu_ms
        return WorkReport(ReportKind.DONE, found.duration_ms, found.speech_ms, cpu_ms)

    def _session(self, written: Transcription, item: WorkItem) -> bytes | None:
        if not self._settings.sessions:
            return None
        return asyncio.run(session_export(written, item.written_us))

    def _transcribe(self, item: WorkItem) -> TranscribedAudio:
        kind = SourceKind(item.kind)
        with closing(self._reader.blocks(kind, item.location, item.version)) as blocks:
            return self._transcriber.transcribe(
                blocks,
                sides=self._reader.sides(kind),
                most_ms=self._settings.limits.most_ms,
                on_progress=self._on_progress,
            )


def _serve(connection: Connection) -> int:
    def send(**facts: Any) -> None:
        connection.send_bytes(json.dumps(facts).encode())

    start = JobStart(**json.loads(connection.recv_bytes(MOST_MESSAGE_BYTES)))
    settings = BatchSettings.model_validate(start.settings, strict=False)
    os.nice(NICENESS)
    try:
        worker = BatchWorker(
            settings,
            start.location,
            lambda audio_ms: send(kind=ReportKind.PROGRESS, audio_ms=audio_ms),
        )
    except AgentError as error:
        send(kind=ReportKind.BROKEN, reason=str(error))
        return 1
    with closing(worker):
        send(kind=ReportKind.READY)
        while True:
            send(**asdict(worker.work(WorkItem(**json.loads(connection.recv_bytes(MOST_MESSAGE_BYTES))))))


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
