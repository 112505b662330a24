"""Batch jobs whose workers run on two nodes of a Ray cluster."""

import json
import select
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from parley.batch.manifest import MANIFEST
from parley.batch.transcript import read_transcription
from parley.evals.bench.batch_kills import FolderOutputs, Speech, kills
from tests.audio_files import write_audio
from tests.human_speech import moonshine_tiny, opening
from tests.peers.ray.environment import LocalCluster
from tests.voices import RATE_HZ, say, silence
from tests.worker_process import ROOT

pytestmark = [pytest.mark.alone, pytest.mark.packages, pytest.mark.slow]

PATIENCE_S = 120.0
# Of 10 to 26 s: more work than fits between the start of a job and its kill, also on an idle machine.
FILES = 120
FAILING = ("--engine", "tests.recognisers_that_fail:FailingStt", "--set")


@pytest.fixture(scope="module", autouse=True)
def weights() -> None:
    """Skip the module without the weights of the embedded recogniser."""
    moonshine_tiny()


@contextmanager
def job(cluster: LocalCluster, source: Path, out: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Run a job on the cluster. It is killed after ``PATIENCE_S``, so that every wait for it ends."""
    command = [cluster.python, "-m", "batch.transcribe", str(source), "--out", str(out)]
    with subprocess.Popen(
        [*command, "--ray", cluster.address, *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        deadline = threading.Timer(PATIENCE_S, running.kill)
        deadline.start()
        try:
            yield running
        finally:
            deadline.cancel()
            running.kill()


def test_a_job_on_two_nodes_that_is_killed_does_every_file_once(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    speech = np.tile(np.frombuffer(opening(), "<i2").astype(np.float32) / 32_768, 5)
    clips = [Speech(str(place), speech[: RATE_HZ * (10 + 4 * (place % 5))], "") for place in range(FILES)]
    outputs = FolderOutputs(tmp_path / "killed")
    on_ray = ("--ray", cluster.address)
    seen = kills(clips, tmp_path, outputs, 6, seed=3, within_s=12.0, options=on_ray, python=cluster.python)
    assert seen["kills"] >= 4 and seen["done_before_the_last_run"] > 0
    assert (seen["done_once"], seen["written_again"], seen["parked"]) == (FILES, 0, 1)
    with sqlite3.connect(tmp_path / "killed" / MANIFEST) as database:
        states = dict(database.execute("SELECT state, count(*) FROM items GROUP BY state"))
    assert states == {"done": FILES, "parked": 1}


def sources(inside: Path, bad: str) -> None:
    """Write two short files, and one on which the recogniser of these tests fails."""
    write_audio(inside / bad, opening())
    for name in ("b.wav", "c.wav"):
        write_audio(inside / name, silence(500) + say("yes"))


def test_a_file_that_crashes_its_process_on_a_node_is_parked_after_two_tries(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    inside, out = tmp_path / "in", tmp_path / "out"
    sources(inside, "a.wav")
    with job(cluster, inside, out, *FAILING, "hangs=false") as running:
        printed, logged = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 3, logged
    # One worker for each processor of the nodes, and no more than files.
    assert "2 transcribed, 1 parked" in printed and "per core on 2;" in printed
    (parked,) = json.loads((out / "parked.json").read_text())
    assert (parked["source"], parked["tries"]) == ("a.wav", 2) and "SIGSEGV" in parked["reason"]
    for name in ("b.wav", "c.wav"):
        assert read_transcription(out / f"{name}.json").segments[0].text == "hello"


def test_an_actor_that_is_lost_is_no_try_of_its_file(cluster: LocalCluster, tmp_path: Path) -> None:
    inside, out = tmp_path / "in", tmp_path / "out"
    sources(inside, "z.wav")
    bounds = ("--limit", "stall_s=6", "--workers", "1")
    with job(cluster, inside, out, *FAILING, "hangs=true", *bounds) as running:
        assert running.stderr is not None
        while "2 of 3" not in (line := running.stderr.readline()):
            assert line, "the job ended, or took too long"
        # The last file, on which the process hangs, is under way.
        assert cluster.do("kill", "ray::NodeWorker") == 1
        printed, logged = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 3, logged
    assert "2 transcribed, 1 parked" in printed
    (parked,) = json.loads((out / "parked.json").read_text())
    # Two tries of its own after that.
    assert (parked["source"], parked["tries"]) == ("z.wav", 2) and "no progress for 6 s" in parked["reason"]


def test_a_folder_that_the_nodes_do_not_share_ends_the_job(cluster: LocalCluster, tmp_path: Path) -> None:
    inside, out = tmp_path / "in", tmp_path / "out"
    sources(inside, "a.wav")
    with job(cluster, inside, out, *FAILING, "hangs=false", "--workers", "1") as running:
        # As if the node had another folder of this name.
        until_s = time.monotonic() + PATIENCE_S
        while not (mark := out / ".ray-run").exists() or not mark.read_text():
            # It prints nothing before that, unless it fails.
            assert time.monotonic() < until_s
            assert select.select([running.stderr], [], [], 0.01)[0] == []
        mark.write_text("another run")
        printed, logged = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1
    assert "is not the same folder on the node" in logged and "transcribed," not in printed
