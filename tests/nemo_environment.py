"""NeMo's own Python environment, separate from that of the tests: models and workers are made there."""

import json
import os
import subprocess
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.core.errors import EngineError
from parley.models.hosted.link import ConversationLink
from parley.models.hosted.worker import OneWorker, WorkerAddress
from parley.runtime.engine_hosting.messages import MessageType
from tests.fakes.worker import SECRET, shared_secret
from tests.system import missing
from tests.worker_process import worker_process

ROOT = Path(__file__).resolve().parents[1]
VARIABLE = "NEMO_PYTHON"
# ``make nemo`` makes it.
MADE = ROOT / ".venv-nemo" / "bin" / "python"
# What is judged begins when a model is loaded, however long that takes.
PATIENCE_S = 60


def nemo_python() -> str:
    """Return the interpreter of an environment with ``requirements/nemo.txt``."""
    python = os.environ.get(VARIABLE, "")
    if not python and not MADE.exists():
        missing(f"an environment of NeMo's (make nemo, or {VARIABLE})")
    return python or str(MADE)


def write_models(folder: Path, pcm: bytes, *kinds: str) -> dict[str, Any]:
    """Write tiny models, ``FOLDER/KIND.nemo``, in one process: importing NeMo takes longer than all of them.

    Returns NeMo's own result for the recording with each model, as ``tests.tiny_nemo`` prints it.
    """
    recording = folder / "recording.wav"
    with wave.open(str(recording), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(pcm)
    arguments = ["-m", "tests.tiny_nemo", str(folder), str(recording), *kinds]
    done = subprocess.run(
        [nemo_python(), *arguments],
        cwd=ROOT,
        env=nemo_variables(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    heard: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return heard


@contextmanager
def nemo_worker(model: Path, *more: str) -> Iterator[str]:
    """Run a worker in that environment with one of these models; yield its address."""
    command = [nemo_python(), "runner.py", "--role", "worker", "--engine", "nemo", "--set", f"model={model}"]
    command += ["--port", "0", "--print-url", "--set", "threads=1", *more]
    with worker_process(command, nemo_variables(), stderr=subprocess.DEVNULL) as (_, url):
        if not url:
            pytest.fail("NeMo's worker ended")
        yield url


def until_loaded(url: str) -> None:
    """Wait until a worker has its model. Raises EngineError when it does not load.

    A recogniser waits as well, but takes a worker that says nothing for some seconds for a dead one. While
    packages are imported next to other processes it may be silent for so long: a test alone judges that.
    """
    address = WorkerAddress(url=url, secret_env=shared_secret())
    watch = OneWorker(address).watch()
    link = ConversationLink(url, watch, open_s=PATIENCE_S, write_s=PATIENCE_S, engine="nemo")
    try:
        facts = link.facts
        while facts.get("engine") is None:
            if facts.get("state") == "dead":
                raise EngineError("nemo: its model failed to load", engine="nemo")
            facts = link.next(MessageType.STATE, within_s=PATIENCE_S).facts
    finally:
        link.close()


def nemo_variables() -> dict[str, str]:
    """The environment variables of a process in that environment, which takes one core and no more."""
    # Its packages look for others in these variables.
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    # Torch starts a thread for each core, also while a model is loaded.
    one_core = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    own = {"PARLEY_WORKER_SECRET": SECRET, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    return kept | one_core | own
