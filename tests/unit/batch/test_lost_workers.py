"""Workers of a job that are lost with their machines, or die, while they load. Others are real processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from pathlib import Path

import pytest

from parley.batch.destination import Destination
from parley.batch.jobs import MOST_LOST, MOST_UNLOADED, BatchJob, JobResult
from parley.batch.places import destination_at, sources_at
from parley.batch.settings import BatchSettings, RecogniserChoice
from parley.batch.worker_process import JobWorker, LocalExecutor
from parley.core.errors import EngineError
from tests.audio_files import write_audio
from tests.human_speech import moonshine_tiny
from tests.voices import say, silence

SETTINGS = BatchSettings(recogniser=RecogniserChoice(name="tests.recognisers_that_fail:FailingStt"))


class LostWorker:
    """Worker that is gone before it has loaded (``JobWorker``)."""

    started_s: float | None = None

    def __init__(self, *, is_blameless: bool) -> None:
        self.connection, theirs = Pipe()
        theirs.close()
        self.is_blameless = is_blameless

    def death(self) -> str:
        return "its node was lost" if self.is_blameless else "no module named x"

    def end(self) -> None:
        self.connection.close()


class LosingExecutor(LocalExecutor):
    """Executor whose first workers are lost."""

    def __init__(self, destination: Destination, losses: list[bool]) -> None:
        super().__init__(SETTINGS, destination)
        self.losses = losses

    def start(self) -> JobWorker:  # type: ignore[override]
        return LostWorker(is_blameless=self.losses.pop(0)) if self.losses else super().start()


@contextmanager
def held(folder: Path) -> Iterator[Destination]:
    with destination_at(str(folder / "out"), SETTINGS.limits) as destination:
        yield destination


def transcribed(folder: Path, losses: list[bool]) -> JobResult:
    write_audio(folder / "in" / "a.wav", silence(500) + say("yes"))
    root, sources = sources_at(str(folder / "in"), SETTINGS.limits)
    with held(folder) as destination:
        destination.belong_to(root)
        to_do = destination.plan([(each, each.key(SETTINGS)) for each in sources])
        return BatchJob(SETTINGS, destination, LosingExecutor(destination, losses)).run(to_do, workers=1)


def test_nodes_that_are_lost_while_they_load_do_not_end_the_job(tmp_path: Path) -> None:
    moonshine_tiny()
    losses = [True] * (MOST_UNLOADED - 1)
    assert transcribed(tmp_path, losses).done == 1 and losses == []


def test_losses_without_any_worker_that_loads_end_the_job(tmp_path: Path) -> None:
    nodes, processes = [True] * 100, [False] * 100
    with pytest.raises(EngineError, match="workers do not start: its node was lost"):
        transcribed(tmp_path, nodes)
    with pytest.raises(EngineError, match="workers do not start: no module named x"):
        transcribed(tmp_path, processes)
    assert (100 - len(nodes), 100 - len(processes)) == (MOST_UNLOADED, MOST_LOST)
