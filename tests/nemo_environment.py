"""NeMo's own Python environment, which the tests' own knows nothing of: models and workers are made there."""

import json
import os
import subprocess
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.worker import SECRET
from tests.system import missing

ROOT = Path(__file__).resolve().parents[1]
VARIABLE = "NEMO_PYTHON"
# ``make nemo`` makes it.
MADE = ROOT / ".venv-nemo" / "bin" / "python"


def nemo_python() -> str:
    """The interpreter of an environment with ``requirements/nemo.txt``."""
    python = os.environ.get(VARIABLE, "")
    if not python and not MADE.exists():
        missing(f"an environment of NeMo's (make nemo, or {VARIABLE})")
    return python or str(MADE)


def write_models(folder: Path, pcm: bytes, *kinds: str) -> dict[str, Any]:
    """Write tiny models, ``FOLDER/KIND.nemo``, in one process: importing NeMo takes longer than all of them.

    Returns what NeMo makes of the recording with each; see ``tests.tiny_nemo``.
    """
    recording = folder / "recording.wav"
    with wave.open(str(recording), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(pcm)
    arguments = ["-m", "tests.tiny_nemo", str(folder), str(recording), *kinds]
    done = subprocess.run(
        [nemo_python(), *arguments], cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    heard: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return heard


@contextmanager
def nemo_worker(model: Path, *more: str) -> Iterator[str]:
    """A worker in that environment with a model of these; yields its address."""
    command = [nemo_python(), "runner.py", "--role", "worker", "--engine", "nemo", "--set", f"model={model}"]
    process = subprocess.Popen(
        [*command, "--port", "0", "--print-url", "--set", "threads=1", *more],
        cwd=ROOT,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            pytest.fail("NeMo's worker ended")
        yield url
    finally:
        process.kill()
        process.communicate(timeout=10)


def _environment() -> dict[str, str]:
    # Its packages look for others in what they are given.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return kept | {"PARLEY_WORKER_SECRET": SECRET, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
