"""Kill a batch job again and again, and judge that each source was done once.

A job over files, one of them corrupt, is killed (SIGKILL) at seeded moments. After each kill and at the end,
every finished transcript must be the one that was there before. At the end each must equal that of a job
which was not killed. In a folder, a transcript that was written again has another inode or time. In a bucket,
which keeps all versions of an object, it has two versions.
"""

import os
import random
import signal
import subprocess
import sys
import wave
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from parley.batch.manifest import LOCK, WORKERS_LOCK
from parley.batch.transcribe import EXIT_PARKED
from parley.core.errors import EngineError
from parley.core.media import float_to_pcm16
from parley.evals.harness.s3_server import BUCKET, S3Server
from parley.evals.stt.measure import RATE_HZ

FOLDER, BUCKETS = "folder", "bucket"
DESTINATIONS = (FOLDER, BUCKETS)
DEADLINE_S = 600.0
# Delay of a kill after the start of the job: from the imports to many files later, on an idle machine.
FIRST_KILL_S, LAST_KILL_S = 0.3, 3.0
CORRUPT = "corrupt.wav"
_SUFFIX = ".wav.json"
_PREFIX = "transcripts"


@dataclass(frozen=True, slots=True)
class Speech:
    """Recording with its words.

    Attributes:
        name: of its file.
        samples: float32, (samples,), 16 kHz, with silence before and after.
        text: spoken words.
    """

    name: str
    samples: np.ndarray
    text: str

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.samples) / RATE_HZ


class Outputs(Protocol):
    """Place of the outputs of the job that is killed.

    Attributes:
        kind: of the place.
        address: for the command.
        environment: variables for the command.
    """

    kind: str
    address: str
    environment: Mapping[str, str]

    def finished(self) -> dict[str, tuple[int, int]]:
        """Return facts of each finished transcript, which change when it is written again."""
        ...

    def content(self, name: str) -> bytes:
        """Return a transcript."""
        ...

    def left_over(self) -> list[str]:
        """Return the names of temporary files."""
        ...


class FolderOutputs:
    """Outputs in a folder (``Outputs``)."""

    def __init__(self, folder: Path) -> None:
        self.kind, self.address = FOLDER, str(folder)
        self.environment: Mapping[str, str] = {}
        self._folder = folder

    def finished(self) -> dict[str, tuple[int, int]]:
        return {
            path.name: (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in self._folder.glob(f"[0-9]*{_SUFFIX}")
        }

    def content(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def left_over(self) -> list[str]:
        hidden = [path.name for path in self._folder.iterdir() if path.name.startswith(".")]
        return [name for name in hidden if name not in (LOCK, WORKERS_LOCK)]


class BucketOutputs:
    """Outputs in a bucket of a local server, which keeps all versions (``Outputs``)."""

    def __init__(self, server: S3Server) -> None:
        self.kind, self.address = BUCKETS, f"s3://{BUCKET}/{_PREFIX}"
        self.environment: Mapping[str, str] = server.environment
        self._server = server
        server.keep_versions()

    def finished(self) -> dict[str, tuple[int, int]]:
        """Return the number of versions of each transcript.

        Raises:
            EngineError: one has several.
        """
        versions = self._server.versions(f"{_PREFIX}/")
        found = {name: count for name, count in versions.items() if name.endswith(_SUFFIX)}
        if again := [name for name, count in found.items() if count != 1]:
            raise EngineError(f"{again[0]} was written {found[again[0]]} times", engine="batch")
        return {name: (count, 0) for name, count in found.items()}

    def content(self, name: str) -> bytes:
        return self._server.content(f"{_PREFIX}/{name}")

    def left_over(self) -> list[str]:
        # An object is there as a whole or not at all.
        return []


@contextmanager
def outputs_in(kind: str, folder: Path) -> Iterator[Outputs]:
    """Provide a place for outputs: a folder, or a bucket of a server that is started for it."""
    if kind == FOLDER:
        yield FolderOutputs(folder)
        return
    with S3Server() as server:
        yield BucketOutputs(server)


def kills(
    clips: Sequence[Speech],
    folder: Path,
    outputs: Outputs,
    times: int,
    *,
    seed: int,
    within_s: float = LAST_KILL_S,
    options: Sequence[str] = (),
    python: str = sys.executable,
) -> dict[str, Any]:
    """Kill a job again and again, each within this time, then let it end; return what was seen.

    ``options`` and the interpreter are those of the job that is killed, and not of the one that it is
    compared with.

    Raises:
        EngineError: a finished transcript was written again, or differs from that of a job without kills.
    """
    source, whole = folder / "in", folder / "whole"
    _write_sources(clips, source, seed)
    with start(source, str(whole)) as job:
        expected_status = job.wait(DEADLINE_S)
    moments = random.Random(seed)
    seen: dict[str, tuple[int, int]] = {}
    effective = 0
    for _ in range(times):
        with start(source, outputs.address, *options, environment=outputs.environment, python=python) as job:
            try:
                job.wait(moments.uniform(FIRST_KILL_S, within_s))
            except subprocess.TimeoutExpired:
                job.send_signal(signal.SIGKILL)
                effective += 1
            job.wait(DEADLINE_S)
        seen = _unchanged(seen, outputs)
    done_when_killed = len(seen)
    with start(source, outputs.address, *options, environment=outputs.environment, python=python) as job:
        status = job.wait(DEADLINE_S)
    seen = _unchanged(seen, outputs)
    if (status, expected_status) != (EXIT_PARKED, EXIT_PARKED) or len(seen) != len(clips):
        raise EngineError(f"{len(seen)} of {len(clips)} files done, status {status}", engine="batch")
    if left := outputs.left_over():
        raise EngineError(f"{left[0]} and {len(left) - 1} more were left over", engine="batch")
    different = [name for name in seen if outputs.content(name) != (whole / name).read_bytes()]
    if different:
        raise EngineError(f"{different[0]} and {len(different) - 1} more differ", engine="batch")
    return {
        "destination": outputs.kind,
        "kills": effective,
        "files": len(clips),
        "done_before_the_last_run": done_when_killed,
        "done_once": len(seen),
        "written_again": 0,
        "parked": 1,
    }


def _write_sources(clips: Sequence[Speech], source: Path, seed: int) -> None:
    source.mkdir(parents=True)
    for place, clip in enumerate(clips):
        write_wav(source / f"{place:05}.wav", float_to_pcm16(clip.samples))
    (source / CORRUPT).write_bytes(random.Random(seed).randbytes(100_000))


def _unchanged(before: dict[str, tuple[int, int]], outputs: Outputs) -> dict[str, tuple[int, int]]:
    """Return the facts of the finished transcripts; check those before.

    Raises:
        EngineError: one was written again.
    """
    now = outputs.finished()
    for name, facts in before.items():
        if now.get(name) != facts:
            raise EngineError(f"{name} was written again", engine="batch")
    return now


def start(
    source: Path,
    out: str,
    *options: str,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> "subprocess.Popen[bytes]":
    """Start a job, with further variables of its environment."""
    command = (python, "-m", "parley.batch.transcribe", str(source), "--out", out, *options)
    return subprocess.Popen(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def write_wav(path: Path, pcm: bytes, *, channels: int = 1) -> None:
    """Write 16-bit PCM at ``RATE_HZ`` as a WAV."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(pcm)
