"""Environment with Ray, and a cluster in it.

Ray is an optional extra with many processes, so it has an environment of its own: that of the tests, and
Ray. ``PARLEY_RAY_PYTHON`` names one; otherwise it is made once for a run, where packages can be installed.
"""

import asyncio
import json
import os
import select
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from parley.core.errors import PeerError
from parley.evals.foreign.programs import install
from tests.fakes.worker import SECRET
from tests.worker_process import ROOT

VARIABLE, PACKAGES = "PARLEY_RAY_PYTHON", ("ray==2.60.0",)
SECRET_ENV = "PARLEY_WORKER_SECRET"
# A cluster is up after some 5 s on an idle machine, and took 50 s on one with much other work.
PATIENCE_S = 180.0


def ray_python(folder: Path) -> str:
    """Return an interpreter that has Ray, made in a folder; skip the test where there is none."""
    if given := os.environ.get(VARIABLE):
        return given
    try:
        python = asyncio.run(install(PACKAGES, folder))
    except PeerError as error:
        # A registry without it is no fault of this product.
        pytest.skip(str(error))
    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "tests_environment.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@dataclass(slots=True)
class LocalCluster:
    """Cluster of two nodes. A worker with the resource ``far`` runs on the second, ``near`` on the head."""

    process: subprocess.Popen[str]
    address: str
    python: str

    def do(self, *words: str) -> int:
        """Do something to the cluster (``cluster_process``); return how often."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(*words, file=self.process.stdin, flush=True)
        return int(json.loads(_line(self.process)))


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
    line = process.stdout.readline() if ready else ""
    if not line:
        process.kill()
        pytest.fail(f"the Ray cluster ended or hangs (exit status {process.poll()})")
    return line


def variables(folder: Path) -> dict[str, str]:
    """Return the environment variables of a program on the cluster whose files are in a folder."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    (folder / "token").write_text("a token of the tests, long enough for Ray to take it")
    return kept | {
        "PYTHONPATH": str(ROOT),
        SECRET_ENV: SECRET,
        "RAY_TMPDIR": str(folder),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray starts two processes for each processor in advance otherwise.
        "RAY_worker_maximum_startup_concurrency": "2",
    }


@contextmanager
def running_cluster(python: str) -> Iterator[LocalCluster]:
    """Run a cluster until the block ends. Its variables are those of this process meanwhile."""
    # A socket's path may have 107 characters, and pytest's folders are deep.
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    environment = variables(folder)
    process = subprocess.Popen(
        [python, "-m", "tests.peers.ray.cluster_process"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            if name.startswith("RAY_") or name == SECRET_ENV:
                patch.setenv(name, value)
        try:
            yield LocalCluster(process, _line(process).strip(), python)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
                shutil.rmtree(folder, ignore_errors=True)
