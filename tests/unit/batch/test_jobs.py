from pathlib import Path

from parley.batch.jobs import JobResult
from parley.batch.recogniser import gpus_of
from parley.batch.settings import RecogniserChoice
from tests.tiny_whisper import install_whisper


def test_speed_is_reported_per_core_and_per_gpu():
    result = JobResult(audio_ms=600_000, wall_s=10.0, workers=2, gpus=1)
    assert "RTFx 60.0, 30.0 per core on 2, 60.0 per GPU on 1;" in result.summary()
    assert "GPU" not in JobResult(audio_ms=600_000, wall_s=10.0).summary()


def test_a_recogniser_uses_a_gpu_by_its_device(tmp_path: Path):
    install_whisper(tmp_path)
    settings = {"models_dir": str(tmp_path)}
    assert gpus_of(RecogniserChoice(name="whisper", settings=settings)) == 0
    assert gpus_of(RecogniserChoice(name="whisper", settings=settings | {"device": "cuda"})) == 1
