"""NeMo in a worker with an environment of its own: real code on tiny random models (``tests.tiny_nemo``)."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from parley.batch.transcribe import main
from parley.batch.transcript import read_transcription
from parley.core.errors import ConfigError, EngineError
from parley.core.media import pcm16_to_float
from parley.models.stt import STT, RecordedPiece, Transcript
from parley.models.stt.hosted.engine import WorkerStt, WorkerSttSettings
from parley.models.stt.nemo_offline import NemoOfflineSettings, NemoOfflineStt
from parley.models.stt.words import plain_text
from tests.audio_files import write_audio
from tests.fakes.worker import shared_secret
from tests.listening import play, understand
from tests.nemo_environment import ROOT, nemo_python, nemo_variables, nemo_worker, until_loaded, write_models
from tests.voices import say, silence

QUESTION = silence(200) + say("how much is a replacement card") + silence(300)
FRAME_MS = 80
KINDS = ("tdt", "rnnt", "hybrid")
# It says that it is dead, and ends.
ENDED = "its model failed to load|the connection to the worker is lost"

Hosted = tuple[WorkerStt, dict[str, Any]]


def patient_recogniser(url: str) -> WorkerStt:
    """Return a recogniser with long timeouts for its worker."""
    until_loaded(url)
    patient = {"open_timeout_s": 20, "request_timeout_s": 20}
    return WorkerStt(WorkerSttSettings(url=url, secret_env=shared_secret(), **patient))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return the folder of all models, and the result of NeMo's own loop for the question with each."""
    folder = tmp_path_factory.mktemp("nemo")
    return folder, write_models(folder, QUESTION, *KINDS, "whole")


@pytest.fixture(
    scope="module", params=["tdt", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[1:])]
)
def hosted(request: pytest.FixtureRequest, models: tuple[Path, dict[str, Any]]) -> Iterator[Hosted]:
    """Run a worker with a model; yield NeMo's result for the question too."""
    folder, expected = models
    with nemo_worker(folder / f"{request.param}.nemo") as url:
        engine = patient_recogniser(url)
        yield engine, expected[request.param]


@pytest.mark.parametrize("piece_bytes", [640, 1_002, 32_000])
def test_audio_in_pieces_becomes_what_nemo_makes_of_the_whole(hosted: Hosted, piece_bytes: int) -> None:
    engine, expected = hosted
    stream = engine.open_stream()
    heard = understand(stream, QUESTION, piece_bytes)
    stream.close()
    assert len(expected["tokens"]) > 3
    assert heard.text == plain_text(expected["text"])


def test_words_are_where_the_decoder_heard_them_with_its_confidence(hosted: Hosted) -> None:
    engine, expected = hosted
    stream = engine.open_stream()
    words = understand(stream, QUESTION).words
    stream.close()
    assert words[0].start_ms == expected["frames"][0] * FRAME_MS
    assert abs(words[-1].end_ms - (expected["frames"][-1] + 1) * FRAME_MS) <= FRAME_MS
    # Random weights are unsure of every word, and of each to another degree.
    assert len({word.confidence for word in words}) > 1
    assert all(0 < word.confidence < 1 and not word.estimated for word in words)


def test_partials_come_with_the_chunks_and_grow(hosted: Hosted) -> None:
    engine, _ = hosted
    stream = engine.open_stream()
    stream.start()
    partials = [partial.text for partial in play(stream, QUESTION)]
    final = stream.finish()
    stream.close()
    assert partials and all(final.text.startswith(partial) for partial in partials)


def test_streams_at_the_same_time_do_not_mix(hosted: Hosted) -> None:
    engine, _ = hosted
    stream = engine.open_stream()
    alone = understand(stream, QUESTION)
    stream.close()
    heard: list[Transcript] = []

    def listen() -> None:
        stream = engine.open_stream()
        heard.append(understand(stream, QUESTION))
        stream.close()

    threads = [threading.Thread(target=listen) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert heard == [alone] * 4


@pytest.mark.slow
def test_a_look_ahead_that_the_model_was_trained_with_is_taken_and_another_refused(
    models: tuple[Path, dict[str, Any]],
) -> None:
    model = models[0] / "tdt.nemo"
    with nemo_worker(model, "--set", "att_context_size=[16, 0]") as url:
        engine = patient_recogniser(url)
        stream = engine.open_stream()
        stream.start()
        # With a chunk of one frame of the encoder instead of four, words come earlier.
        early = play(stream, QUESTION[:32_000])
        assert early and stream.finish().text
        stream.close()
    with (
        nemo_worker(model, "--set", "att_context_size=[16, 7]") as url,
        pytest.raises(EngineError, match=ENDED),
    ):
        patient_recogniser(url)


@pytest.mark.paired
def test_a_worker_says_how_it_stands_while_it_imports_its_packages(tmp_path: Path) -> None:
    model = tmp_path / "broken.nemo"
    model.write_bytes(b"no model")
    # It is found to be broken when they are there. A worker that is silent meanwhile is taken for a dead one.
    with nemo_worker(model) as url, pytest.raises(EngineError, match=ENDED):
        WorkerStt(WorkerSttSettings(url=url, secret_env=shared_secret(), load_timeout_s=60))


def test_a_model_that_cannot_stream_is_refused(models: tuple[Path, dict[str, Any]]) -> None:
    done = subprocess.run(
        [nemo_python(), "runner.py", "--role", "worker", "--engine", "nemo", "--port", "0"]
        + ["--set", f"model={models[0] / 'whole.nemo'}"],
        cwd=ROOT,
        env=nemo_variables(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 3
    assert "attends to the whole utterance and cannot stream" in done.stderr


def test_a_model_that_is_not_there_is_told_before_anything_is_loaded() -> None:
    done = subprocess.run(
        [nemo_python(), "runner.py", "--role", "worker", "--engine", "nemo", "--set", "model=/no/such.nemo"],
        cwd=ROOT,
        env=nemo_variables(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "runner.py: 'nemo' needs /no/such.nemo, which does not exist"


def test_the_bots_own_environment_has_no_nemo_and_says_where_it_belongs() -> None:
    with pytest.raises(ConfigError, match="requirements/nemo.txt.*docs/how-to/workers.md"):
        STT.factory("nemo")


def offline(models: tuple[Path, dict[str, Any]], kind: str) -> NemoOfflineStt:
    """Return a recogniser of recordings with one of the models."""
    settings = NemoOfflineSettings(
        model=str(models[0] / f"{kind}.nemo"), python=Path(nemo_python()), load_s=300, answer_s=120
    )
    return NemoOfflineStt(settings)


def recorded(pcm: bytes) -> RecordedPiece:
    samples = pcm16_to_float(pcm)
    return RecordedPiece(samples, [1] * (len(samples) // 512))


@pytest.mark.parametrize(
    "kind", ["whole", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("tdt", "hybrid"))]
)
def test_pieces_of_recordings_become_what_nemo_makes_of_each(
    models: tuple[Path, dict[str, Any]], kind: str
) -> None:
    engine = offline(models, kind)
    with closing(engine):
        found = engine.transcribe([recorded(QUESTION), recorded(QUESTION[: len(QUESTION) // 4 * 2])])
        if kind == "whole":
            assert found[0].written == models[1]["whole"]["text"]
        assert len(found[0].written) > len(found[1].written) > 0
        words = found[0].words
        assert " ".join(word.text for word in words) == plain_text(found[0].written)
        assert words == tuple(sorted(words, key=lambda word: word.start_ms))
        assert all(0 < word.confidence < 1 and not word.estimated for word in words)


@pytest.mark.slow
def test_a_job_with_a_model_of_whole_utterances_ends_and_outlives_its_process(
    models: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    write_audio(tmp_path / "in" / "a.wav", QUESTION)
    engine = ["--engine", "nemo_offline", "--set", f"model={models[0] / 'whole.nemo'}"]
    limits = ["--set", f"python={nemo_python()}", "--set", "load_s=300", "--limit", "load_s=300"]
    out = tmp_path / "out"
    assert main([str(tmp_path / "in"), "--out", str(out), *engine, *limits]) == 0
    assert read_transcription(out / "a.wav.json").segments[0].words
    recogniser = offline(models, "whole")
    with closing(recogniser):
        os.kill(recogniser.pid, signal.SIGKILL)
        # A batch on its way is lost; one that comes when the end is known waits for the next process.
        with suppress(EngineError):
            recogniser.transcribe([recorded(QUESTION)])
        assert recogniser.transcribe([recorded(QUESTION)])[0].words


def test_an_environment_of_nemo_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set python to its interpreter"):
        NemoOfflineSettings(python=tmp_path / "python").check()
